"""Lists of receipts and deliveries: complete and without repetition, whatever happens while they are read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from uuid import UUID

import pytest

from relay.domain import ids
from relay.domain.delivery import DeadReason, DeliveryMove, DeliveryStatus
from relay.domain.endpoint import EndpointConfig
from relay.store import filters
from relay.store.filters import ReceiptFilter, UnknownConsumer
from relay.store.history import MOST_DELIVERIES, NEWEST, History
from relay.store.pages import Page, walk
from tests.store.world import TENANT, World, attempt, event, new_id, of_event, of_type

OTHER = "acct_other"
TYPES = ("invoice.paid", "invoice.paid.late", "user.added", "invoice")


@pytest.fixture
def history(world: World) -> History:
    return History(world.database)


async def read_receipts(
    history: History,
    wanted: ReceiptFilter,
    *,
    limit: int = 7,
    tenant: str = TENANT,
    between: Callable[[], Awaitable[None]] | None = None,
) -> list[UUID]:
    """All receipts of the list, page after page; something may happen between two pages."""
    shown: list[UUID] = []
    place: UUID | None = NEWEST
    while place is not None:
        page = await history.receipts(tenant, wanted, before=place, limit=limit)
        assert len(page.items) <= limit
        shown.extend(view.id for view in page.items)
        place = page.next
        if between is not None:
            await between()
    return shown


@pytest.fixture
async def thousand(world: World) -> list[UUID]:
    """A thousand receipts of one millisecond, their types and fan-outs in turn; every tenth has no route."""
    one, two = [await world.add_endpoint(EndpointConfig(name=n, url="http://h/", max_in_flight=9999)) for n in "ab"]
    moment = new_id().int >> 80
    routes: Sequence[tuple[UUID, ...]] = [(one,), (one, two), (two,)] * 3 + [()]
    events = [
        of_type(event(to=to, receipt=new_id(unix_ms=moment)), event_type)
        for to, event_type in islice(zip(cycle(routes), cycle(TYPES), strict=False), 1000)
    ]
    await world.append(*events)
    return sorted((each.envelope.receipt_id for each in events), reverse=True)


FILTERS = [
    ReceiptFilter(),
    ReceiptFilter(type="*"),
    ReceiptFilter(open=True),
    ReceiptFilter(open=True, type="invoice.*"),
    ReceiptFilter(open=True, consumer="b"),
    ReceiptFilter(open=True, type="user.added"),
    ReceiptFilter(type="user.added"),
    ReceiptFilter(type="invoice.*"),
    ReceiptFilter(consumer="a"),
    ReceiptFilter(consumer="a", type="invoice.*"),
    ReceiptFilter(consumer="b", type="invoice"),
]

each_filter = pytest.mark.parametrize("wanted", FILTERS, ids=lambda each: str(each).removeprefix("ReceiptFilter"))


async def expected(world: World, wanted: ReceiptFilter, tenant: str = TENANT) -> list[UUID]:
    """What the list must hold, asked for in the plainest way."""
    rows = await world.sql(
        "select r.id from receipts r where r.tenant = $1 and ($2::boolean is null or (r.outcome is null) = $2)"
        " and ($3::text is null or r.type = $3 or $3 = '*'"
        "      or ($3 like '%.*' and starts_with(r.type, rtrim($3, '*'))))"
        " and ($4::text is null or exists (select from deliveries d join endpoints e on e.id = d.endpoint_id"
        "                                  where d.receipt_id = r.id and e.name = $4))"
        " order by r.id desc",
        tenant, wanted.open, wanted.type, wanted.consumer,
    )  # fmt: skip # the arguments of one call
    return [row[0] for row in rows]


@each_filter
async def test_a_list_read_in_pages_has_every_receipt_once_and_newest_first(
    world: World, history: History, thousand: list[UUID], wanted: ReceiptFilter
) -> None:
    assert await read_receipts(history, wanted) == await expected(world, wanted) != []


@each_filter
async def test_what_is_there_throughout_is_shown_once_while_rows_come_and_change(
    world: World, history: History, thousand: list[UUID], wanted: ReceiptFilter
) -> None:
    before = await expected(world, wanted)
    lanes = [row[0] for row in await world.sql("select id from endpoints order by name")]

    async def busy() -> None:
        """New events of the same millisecond arrive, and deliveries are acknowledged, retried and buried."""
        moment = ids.unix_ms(thousand[0])
        await world.append(*(event(to=lanes, receipt=new_id(unix_ms=moment)) for _ in range(3)), event())
        moves = cycle((DeliveryMove.ACK, DeliveryMove.ACK, DeliveryMove.RETRY, DeliveryMove.BURY))
        claimed = (await world.claim(batch=20)).deliveries
        await world.record(
            *(
                attempt(each, move, dead=DeadReason.EXHAUSTED if move is DeliveryMove.BURY else None)
                for each, move in zip(claimed, moves, strict=False)
            )
        )

    shown = await read_receipts(history, wanted, limit=20, between=busy)
    throughout = set(before) & set(await expected(world, wanted))
    assert len(shown) == len(set(shown))
    assert shown == sorted(shown, reverse=True)
    assert throughout - set(shown) == set()
    assert throughout != set()


async def test_a_closed_receipt_is_listed_as_closed_and_no_longer_as_open(world: World, history: History) -> None:
    await world.owe(2, await world.add_endpoint())
    done = await world.claim_one()
    await world.record(attempt(done))
    assert await read_receipts(history, ReceiptFilter(open=False)) == [done.receipt_id]
    assert done.receipt_id not in await read_receipts(history, ReceiptFilter(open=True))


async def test_a_dead_letter_keeps_its_receipt_among_the_open_ones(world: World, history: History) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    await world.record(attempt(await world.claim_one(), DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))
    assert await read_receipts(history, ReceiptFilter(open=True)) == [receipt]


async def test_an_event_is_found_by_its_id_whoever_made_that(world: World, history: History) -> None:
    lane = await world.add_endpoint(EndpointConfig(name="a", url="http://h/"))
    own = event(to=(lane,))
    twice = [of_event(event(to=to), "order-7") for to in ((lane,), ())]
    await world.append(own, *twice)
    newest_first = sorted((each.envelope.receipt_id for each in twice), reverse=True)
    assert await read_receipts(history, ReceiptFilter(event_id=own.envelope.event_id)) == [own.envelope.receipt_id]
    assert await read_receipts(history, ReceiptFilter(event_id="order-7"), limit=1) == newest_first
    assert await read_receipts(history, ReceiptFilter(event_id="order-7", consumer="a")) == [
        twice[0].envelope.receipt_id
    ]
    assert await read_receipts(history, ReceiptFilter(event_id=own.envelope.event_id, open=False)) == []
    assert await read_receipts(history, ReceiptFilter(event_id="order")) == []


async def test_an_event_id_that_relay_could_have_made_is_found_where_a_sender_made_it(
    world: World, history: History
) -> None:
    """It has the form of Relay's own, and even names another receipt."""
    first = event()
    named_like_it = of_event(event(), first.envelope.event_id)
    await world.append(first, named_like_it)
    both = sorted((first.envelope.receipt_id, named_like_it.envelope.receipt_id), reverse=True)
    assert await read_receipts(history, ReceiptFilter(event_id=first.envelope.event_id), limit=1) == both


async def test_since_includes_its_millisecond_and_until_does_not(world: World, history: History) -> None:
    moments = [1_700_000_000_000 + step for step in (-1, 0, 1, 2)]
    receipts = [new_id(unix_ms=moment) for moment in moments]
    await world.append(*(event(receipt=receipt) for receipt in receipts))
    since = datetime.fromtimestamp(1_700_000_000, UTC)
    wanted = ReceiptFilter(since=since, until=since + timedelta(milliseconds=2))
    for each in (wanted, replace(wanted, open=True), replace(wanted, type="invoice.paid")):
        assert await read_receipts(history, each) == [receipts[2], receipts[1]]
    assert await read_receipts(history, replace(wanted, until=since)) == []


async def test_a_name_that_many_had_stands_for_the_living_one_and_those_removed_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "MOST_OF_A_NAME", 2)
    lanes = []
    for last in (False, False, True):
        lanes.append(await world.add_endpoint(EndpointConfig(name="ledger", url="http://h/")))
        if not last:
            await world.endpoints.remove(TENANT, lanes[-1])
    async with world.database.connection() as connection:
        assert await filters.endpoints_of(connection, TENANT, "ledger") == [lanes[2], lanes[1]]


async def test_a_removed_endpoints_name_still_finds_what_it_was_owed(world: World, history: History) -> None:
    config = EndpointConfig(name="ledger", url="http://h/")
    old = await world.add_endpoint(config)
    before = await world.owe(2, old)
    await world.endpoints.remove(TENANT, old)
    after = await world.owe(2, await world.add_endpoint(config))
    assert await read_receipts(history, ReceiptFilter(consumer="ledger"), limit=1) == sorted(before + after)[::-1]


async def test_a_name_that_no_endpoint_ever_had_is_refused(world: World, history: History) -> None:
    await world.add_tenant(OTHER, 1)
    await world.add_endpoint(EndpointConfig(name="theirs", url="http://h/"), tenant=OTHER)
    with pytest.raises(UnknownConsumer, match="theirs"):
        await history.receipts(TENANT, ReceiptFilter(consumer="theirs"), limit=5)


@each_filter
async def test_another_tenants_receipts_never_appear(
    world: World, history: History, thousand: list[UUID], wanted: ReceiptFilter
) -> None:
    await world.add_tenant(OTHER, 1)
    config = EndpointConfig(name="a", url="http://h/")
    lanes = [await world.add_endpoint(replace(config, name=name), tenant=OTHER) for name in ("a", "b")]
    moment = ids.unix_ms(thousand[0])
    events = [
        of_type(event(to=to, receipt=new_id(unix_ms=moment), tenant=OTHER, partition=1), event_type)
        for to in (lanes, lanes[:1], ())
        for event_type in TYPES
    ]
    await world.append(*events)
    theirs = {each.envelope.receipt_id for each in events}
    assert theirs.isdisjoint(await read_receipts(history, wanted, limit=100))
    mine = await read_receipts(history, wanted, limit=5, tenant=OTHER)
    assert mine == await expected(world, wanted, OTHER)
    assert set(mine) <= theirs


async def test_receipts_that_share_a_key_range_are_listed_each_once(world: World, history: History) -> None:
    lane = await world.add_endpoint(EndpointConfig(name="a", url="http://h/"))
    first = new_id()
    pair = [first, ids.delivery_id(first, b"\x80\x00\x00\x00")]
    await world.append(*(event(receipt=receipt) for receipt in pair))
    for receipt, own in zip(pair, (b"\xff\x00\x00\x00", b"\x00\x00\x00\x01"), strict=True):
        await world.sql(
            "insert into deliveries (id, receipt_id, endpoint_id, tenant, journal_day, due_at)"
            " values ($1, $2, $3, $4, current_date, now())",
            ids.delivery_id(first, own), receipt, lane, TENANT,
        )  # fmt: skip # the arguments of one call
    await world.sql("update receipts set expected = 1, unrouted_at = null, reason = null")
    newest_first = sorted(pair, reverse=True)
    for wanted in (ReceiptFilter(open=True), ReceiptFilter(consumer="a"), ReceiptFilter()):
        assert await read_receipts(history, wanted, limit=1) == newest_first


async def test_a_receipt_in_a_list_shows_its_first_deliveries_and_how_many_it_has(
    world: World, history: History
) -> None:
    lanes = await world.add_endpoints(MOST_DELIVERIES + 5)
    (receipt,) = await world.owe(1, *lanes)
    (shown,) = (await history.receipts(TENANT, ReceiptFilter(), limit=10)).items
    whole = await world.receipts.get(TENANT, receipt)
    assert whole is not None
    assert len(shown.deliveries) == MOST_DELIVERIES
    assert shown.expected == whole.expected == len(whole.deliveries) == MOST_DELIVERIES + 5
    assert replace(whole, deliveries=whole.deliveries[:MOST_DELIVERIES]) == shown


async def test_a_list_shows_a_receipt_as_it_is_shown_alone(
    world: World, history: History, thousand: list[UUID]
) -> None:
    page = await history.receipts(TENANT, ReceiptFilter(), limit=20)
    assert list(page.items) == [await world.receipts.get(TENANT, each.id) for each in page.items]


async def test_a_page_that_looked_at_enough_is_short_and_tells_where_to_go_on() -> None:
    """Of a hundred thousand rows the last one is wanted."""
    asked: list[tuple[int, int]] = []

    async def stretch(before: int, window: int, wanted: int) -> tuple[int | None, Sequence[int]]:
        asked.append((before, window))
        floor = before - window
        return (floor, ()) if floor > 0 else (None, (0,))

    first = await walk(stretch, 100_000, 10, windows=(200, 1_000, 5_000))
    assert first == Page((), 93_800)
    assert asked == [(100_000, 200), (99_800, 1_000), (98_800, 5_000)]
    page = first
    while page.next is not None:
        page = await walk(stretch, page.next, 10, windows=(200, 1_000, 5_000))
    assert page == Page((0,), None)


async def test_a_page_that_ends_with_the_list_does_not_promise_another(world: World, history: History) -> None:
    await world.owe(10, await world.add_endpoint())
    first = await history.receipts(TENANT, ReceiptFilter(), limit=5)
    assert first.next == first.items[-1].id
    assert (await history.receipts(TENANT, ReceiptFilter(), before=first.next, limit=5)).next is None


async def read_deliveries(
    history: History,
    endpoint: UUID,
    status: DeliveryStatus | None,
    between: Callable[[], Awaitable[None]] | None = None,
) -> list[UUID]:
    shown: list[UUID] = []
    place: UUID | None = NEWEST
    while place is not None:
        page = await history.deliveries(TENANT, endpoint, status=status, before=place, limit=10)
        shown.extend(view.id for view in page.items)
        place = page.next
        if between is not None:
            await between()
    return shown


STATUSES = [None, DeliveryStatus.PENDING, DeliveryStatus.IN_FLIGHT, DeliveryStatus.DELIVERED, DeliveryStatus.DEAD]


async def progress(world: World, number: int) -> None:
    """Take so many deliveries: of five, two stay in flight, one is acknowledged, one retried, one buried."""
    claimed = (await world.claim(batch=number)).deliveries
    moves = (DeliveryMove.ACK, DeliveryMove.RETRY, DeliveryMove.BURY, None, None)
    await world.record(
        *(
            attempt(each, move, delay=3600.0, dead=DeadReason.EXHAUSTED if move is DeliveryMove.BURY else None)
            for each, move in zip(claimed, cycle(moves), strict=False)
            if move is not None
        )
    )


@pytest.mark.parametrize("status", STATUSES)
async def test_an_endpoints_deliveries_are_listed_once_each_while_workers_move_them(
    world: World, history: History, status: DeliveryStatus | None
) -> None:
    """The order hangs on nothing that changes, so no page comes twice and no row that stays is left out."""
    lane, other = await world.add_endpoints(2)
    moment = new_id().int >> 80
    await world.append(*(event(to=(lane, other), receipt=new_id(unix_ms=moment)) for _ in range(500)))
    await progress(world, 400)

    async def there() -> set[UUID]:
        rows = await world.sql(
            "select id from deliveries where endpoint_id = $1 and ($2::text is null or status::text = $2)", lane, status
        )
        return {row[0] for row in rows}

    async def busy() -> None:
        await world.append(*(event(to=(lane,), receipt=new_id(unix_ms=moment)) for _ in range(2)))
        await progress(world, 8)

    before = await there()
    shown = await read_deliveries(history, lane, status, busy)
    throughout = before & await there()
    assert len(shown) == len(set(shown))
    assert throughout - set(shown) == set()
    assert throughout != set()


async def test_an_endpoints_deliveries_are_its_tenants_alone(world: World, history: History) -> None:
    await world.add_tenant(OTHER, 1)
    lane = await world.add_endpoint(tenant=OTHER)
    await world.append(event(to=(lane,), tenant=OTHER, partition=1))
    assert await history.deliveries(TENANT, lane, limit=10) == Page((), None)
    assert len((await history.deliveries(OTHER, lane, limit=10)).items) == 1


async def test_what_is_void_is_not_listed(world: World, history: History) -> None:
    lane = await world.add_endpoint()
    await world.owe(1, lane)
    await world.sql("update deliveries set status = 'void'")
    assert await history.deliveries(TENANT, lane, limit=10) == Page((), None)


async def test_the_closed_among_waited_for_receipts_are_told_apart(world: World) -> None:
    open_ones = await world.owe(3, await world.add_endpoint())
    done = await world.claim_one()
    await world.record(attempt(done))
    assert await world.receipts.closed_among([*open_ones, new_id()]) == {done.receipt_id}
