"""The list of dead letters: complete and without repetition, and each with what a person needs to judge it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from uuid import UUID

import pytest

from relay.domain.delivery import DeadReason, DeliveryMove
from relay.domain.endpoint import EndpointConfig
from relay.store.dead_letters import DEAD_NEWEST, DeadLetter, DeadLetters, DeadPlace
from relay.store.filters import DeadLetterFilter, UnknownConsumer
from tests.store.world import TENANT, World, attempt, event, new_id, of_type

OTHER = "acct_other"
TYPES = ("invoice.paid", "invoice.paid.late", "user.added", "invoice")
REASONS = (DeadReason.EXHAUSTED, DeadReason.REFUSED, DeadReason.PERMANENT_FAILURE)


@pytest.fixture
def letters(world: World) -> DeadLetters:
    return DeadLetters(world.database)


async def read(
    letters: DeadLetters,
    wanted: DeadLetterFilter,
    *,
    limit: int = 9,
    tenant: str = TENANT,
    between: Callable[[], Awaitable[None]] | None = None,
) -> list[DeadLetter]:
    """All dead letters of the list, page after page; something may happen between two pages."""
    shown: list[DeadLetter] = []
    place: DeadPlace | None = DEAD_NEWEST
    while place is not None:
        page = await letters.list(tenant, wanted, before=place, limit=limit)
        assert len(page.items) <= limit
        shown.extend(page.items)
        place = page.next
        if between is not None:
            await between()
    return shown


async def bury(world: World, number: int) -> None:
    """Let so many deliveries die, of one reason after the other."""
    claimed = (await world.claim(batch=number)).deliveries
    await world.record(
        *(
            attempt(each, DeliveryMove.BURY, dead=reason, reason="server_error")
            for each, reason in zip(claimed, cycle(REASONS), strict=False)
        )
    )


async def add_dead_letters(world: World, number: int, *, tenant: str = TENANT, partition: int = 6) -> None:
    """So many dead letters that died in one instant, to two consumers, every fifth without a route."""
    lanes = [
        await world.add_endpoint(EndpointConfig(name=name, url="http://h/", max_in_flight=9999), tenant=tenant)
        for name in ("a", "b")
    ]
    routes = cycle([(lanes[0],), (lanes[1],), (lanes[0],), (lanes[1],), ()])
    await world.append(
        *(
            of_type(event(to=to, tenant=tenant, partition=partition), event_type)
            for to, event_type in islice(zip(routes, cycle(TYPES), strict=False), number)
        )
    )
    await bury(world, number)
    # the append and the record are instants of their own
    await world.sql("update deliveries set dead_at = '2026-09-14T09:41:07.214159Z' where tenant = $1", tenant)
    await world.sql(
        "update receipts set unrouted_at = '2026-09-14T09:41:07.214159Z' where tenant = $1 and expected = 0", tenant
    )


@pytest.fixture
async def thousand(world: World) -> None:
    """A thousand dead letters of one instant."""
    await add_dead_letters(world, 1000)


FILTERS = [
    DeadLetterFilter(),
    DeadLetterFilter(type="invoice.*"),
    DeadLetterFilter(type="user.added"),
    DeadLetterFilter(reason=DeadReason.REFUSED),
    DeadLetterFilter(reason=DeadReason.REFUSED, type="user.added"),
    DeadLetterFilter(reason=DeadReason.NO_ROUTE),
    DeadLetterFilter(reason=DeadReason.NO_ROUTE, type="invoice.*"),
    DeadLetterFilter(consumer="a"),
    DeadLetterFilter(consumer="b", reason=DeadReason.EXHAUSTED),
    DeadLetterFilter(consumer="a", type="user.*"),
    DeadLetterFilter(since=datetime(2026, 9, 14, 9, 41, 7, 214_159, tzinfo=UTC)),
]
each_filter = pytest.mark.parametrize("wanted", FILTERS, ids=lambda each: str(each).removeprefix("DeadLetterFilter"))


async def expected(world: World, wanted: DeadLetterFilter, tenant: str = TENANT) -> list[UUID]:
    """What the list must hold, asked for in the plainest way."""
    rows = await world.sql(
        "with letters as ("
        "  select d.dead_at, d.id, r.type, d.dead_reason::text as reason, e.name from deliveries d"
        "  join receipts r on r.id = d.receipt_id join endpoints e on e.id = d.endpoint_id"
        "  where d.status = 'dead' and d.discarded_at is null and d.tenant = $1"
        "  union all select unrouted_at, id, type, 'no_route', null from receipts where unrouted_at is not null"
        "  and tenant = $1)"
        " select l.id from letters l where ($2::text is null or l.name = $2) and ($3::text is null or l.reason = $3)"
        " and ($4::text is null or l.type = $4 or ($4 like '%.*' and starts_with(l.type, rtrim($4, '*'))))"
        " and ($5::timestamptz is null or l.dead_at >= $5) order by l.dead_at desc, l.id desc",
        tenant, wanted.consumer, wanted.reason, wanted.type, wanted.since,
    )  # fmt: skip # the arguments of one call
    return [row[0] for row in rows]


def ids_of(shown: list[DeadLetter]) -> list[UUID]:
    return [each.place.id for each in shown]


@each_filter
async def test_the_list_read_in_pages_has_every_dead_letter_once_and_newest_first(
    world: World, letters: DeadLetters, thousand: None, wanted: DeadLetterFilter
) -> None:
    assert ids_of(await read(letters, wanted)) == await expected(world, wanted) != []


@each_filter
async def test_what_is_there_throughout_is_shown_once_while_letters_come_and_go(
    world: World, letters: DeadLetters, thousand: None, wanted: DeadLetterFilter
) -> None:
    before = await expected(world, wanted)
    lanes = [row[0] for row in await world.sql("select id from endpoints order by name")]

    async def busy() -> None:
        """Some more die, in this instant and in that one; others are given up or sent again."""
        await world.append(*(event(to=lanes) for _ in range(2)), event())
        await bury(world, 2)
        await world.sql(
            "update deliveries set dead_at = '2026-09-14T09:41:07.214159Z' where dead_at > '2026-09-15' and id in"
            " (select id from deliveries where status = 'dead' order by dead_at desc limit 1)"
        )
        await world.sql(
            "update deliveries set discarded_at = now() where id in"
            " (select id from deliveries where status = 'dead' order by attempts, id limit 1)"
        )
        await world.sql(
            "update deliveries set status = 'pending', dead_reason = null, discarded_at = null where id in"
            " (select id from deliveries where status = 'dead' order by id desc limit 1)"
        )

    shown = await read(letters, wanted, limit=20, between=busy)
    throughout = set(before) & set(await expected(world, wanted))
    assert len(shown) == len(set(ids_of(shown)))
    assert [each.place for each in shown] == sorted((each.place for each in shown), reverse=True)
    assert throughout - set(ids_of(shown)) == set()
    assert throughout != set()


@each_filter
async def test_another_tenants_dead_letters_never_appear(
    world: World, letters: DeadLetters, wanted: DeadLetterFilter
) -> None:
    await world.add_tenant(OTHER, 1)
    await add_dead_letters(world, 60)
    await add_dead_letters(world, 60, tenant=OTHER, partition=1)
    for tenant in (TENANT, OTHER):
        assert ids_of(await read(letters, wanted, tenant=tenant)) == await expected(world, wanted, tenant) != []


async def test_a_dead_letter_tells_what_happened_to_it(world: World, letters: DeadLetters) -> None:
    lane = await world.add_endpoint(EndpointConfig(name="ledger", url="http://h/"))
    added = event(to=(lane,))
    await world.append(added)
    claimed = await world.claim_one()
    buried = attempt(claimed, DeliveryMove.BURY, dead=DeadReason.PERMANENT_FAILURE, reason="not_found")
    await world.record(buried)
    (letter,) = await read(letters, DeadLetterFilter())
    assert letter == DeadLetter(
        receipt_id=added.envelope.receipt_id,
        delivery_id=claimed.id,
        endpoint_id=lane,
        consumer="ledger",
        type="invoice.paid",
        event_id=added.envelope.event_id,
        reason=DeadReason.PERMANENT_FAILURE,
        last_error="not_found",
        attempts=1,
        display_url=buried.display_url,
        dead_at=await world.value("select dead_at from deliveries"),
    )


async def test_an_event_without_a_route_is_a_dead_letter_of_no_consumer(world: World, letters: DeadLetters) -> None:
    added = event()
    await world.append(added)
    (letter,) = await read(letters, DeadLetterFilter())
    assert (letter.receipt_id, letter.reason) == (added.envelope.receipt_id, DeadReason.NO_ROUTE)
    assert (letter.delivery_id, letter.endpoint_id, letter.consumer, letter.display_url) == (None, None, None, None)
    assert letter.dead_at == await world.value("select unrouted_at from receipts")


async def test_a_dead_letter_that_was_never_tried_shows_no_address(world: World, letters: DeadLetters) -> None:
    lane = await world.add_endpoint()
    await world.owe(1, lane)
    await world.endpoints.remove(TENANT, lane)
    await world.queue.bury_removed(batch=10)
    (letter,) = await read(letters, DeadLetterFilter(reason=DeadReason.ENDPOINT_REMOVED))
    assert (letter.attempts, letter.display_url, letter.consumer) == (0, None, lane.hex)


async def test_since_counts_to_the_microsecond_and_includes_it(world: World, letters: DeadLetters) -> None:
    await add_dead_letters(world, 10)
    at = datetime(2026, 9, 14, 9, 41, 7, 214_159, tzinfo=UTC)
    assert len(await read(letters, DeadLetterFilter(since=at))) == 10
    assert await read(letters, DeadLetterFilter(since=at + timedelta(microseconds=1))) == []


async def test_a_name_that_no_endpoint_ever_had_is_refused(letters: DeadLetters) -> None:
    with pytest.raises(UnknownConsumer, match="nobody"):
        await letters.list(TENANT, DeadLetterFilter(consumer="nobody"), limit=5)


async def test_a_place_before_everything_is_the_end_of_the_list(world: World, letters: DeadLetters) -> None:
    await add_dead_letters(world, 10)
    place = DeadPlace(datetime(2000, 1, 1, tzinfo=UTC), new_id())
    page = await letters.list(TENANT, DeadLetterFilter(), before=place, limit=5)
    assert (page.items, page.next) == ((), None)
