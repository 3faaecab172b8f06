"""Retention: events go with all that belongs to them once their windows are over, and nothing that is owed does."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest

from relay.domain import ids
from relay.domain.delivery import DeadReason, DeliveryMove
from relay.store.acks import Acks, AckWanted
from relay.store.faults import StoreBusy
from relay.store.filters import ReceiptFilter
from relay.store.health import Health
from relay.store.history import History
from relay.store.redrive import Redrive, Redrives
from relay.store.request_keys import KeptAnswer
from relay.store.retention import Expired, Pruned, Retention
from tests.store.verifying import discard, in_every_state, redrive, verified
from tests.store.world import TENANT, World, attempt, event, named, only
from tests.support.days import age, make_day

DELIVERED, DEAD, ATTEMPTS = 30.0, 90.0, 30.0
LONG_READ = "select count(*) from journal"


@pytest.fixture
def retention(world: World) -> Retention:
    return Retention(world.database)


def today() -> date:
    return datetime.now(UTC).date()


async def run(retention: Retention) -> list[tuple[Pruned, int, int]]:
    """One round over everything old; answers what came of each day."""
    while (await retention.expire_dead_letters(DEAD, batch=100)).dead_letters:
        pass
    found = []
    for day in await retention.days_to_prune(min(DELIVERED, DEAD)):
        pruned = await retention.prune_day(day, DELIVERED)
        found.append((pruned.result, pruned.gone, pruned.kept))
    await sweep(retention)
    return found


async def sweep(retention: Retention, *, batch: int = 100) -> None:
    """Remove everything that pruned days have left."""
    for old in await retention.days_to_sweep():
        after = None
        while (swept := await retention.sweep(old, after=after, batch=batch)).reached is not None:
            after = swept.reached
        await retention.mark_swept(old)


async def delivered(world: World, *to: UUID, days: int, number: int = 1) -> list[UUID]:
    """Events that everybody had got so many days ago."""
    receipts = await world.owe(number, *(to or [await world.add_endpoint()]))
    await world.record(*(attempt(each) for each in (await world.claim()).deliveries))
    return await age(world.database, receipts, days)


async def dead(world: World, *, days: int) -> UUID:
    """An event that is a dead letter for so many days."""
    (receipt,) = await world.owe(1, await world.add_endpoint())
    await world.record(attempt(await world.claim_one(), DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))
    return (await age(world.database, [receipt], days))[0]


async def left(world: World) -> dict[str, int]:
    """How many rows there are of what an event is made of."""
    tables = ("journal", "receipts", "deliveries", "past_generations")
    return {table: await world.rows_in(table) for table in tables}


NOTHING = {"journal": 0, "receipts": 0, "deliveries": 0, "past_generations": 0}


async def is_right(world: World) -> bool:
    return (await verified(world)).ok


async def test_a_delivered_event_goes_with_its_receipt_and_deliveries_after_its_window(
    world: World, retention: Retention
) -> None:
    await delivered(world, days=32, number=3)
    assert await run(retention) == [(Pruned.DROPPED, 3, 0)]
    assert await left(world) == NOTHING
    assert await is_right(world)


async def test_a_delivered_event_stays_inside_its_window(world: World, retention: Retention) -> None:
    await delivered(world, days=30)
    assert await run(retention) == []
    assert await world.rows_in("journal") == 1


async def test_verify_names_how_many_positions_were_pruned(world: World, retention: Retention) -> None:
    await delivered(world, days=40, number=3)
    await world.owe(2, await world.add_endpoint())
    await run(retention)
    found = await verified(world)
    assert found.ok
    assert [(each.first, each.last, each.pruned) for each in found.partitions] == [(4, 5, 3)]


async def test_an_event_is_kept_for_its_window_from_its_closing_on(world: World, retention: Retention) -> None:
    """It was owed for long, and delivered yesterday."""
    (receipt,) = await delivered(world, days=40)
    await world.sql("update deliveries set acked_at = now(); ")
    await world.sql("update receipts set closed_at = now() - interval '1 day' where id = $1", receipt)
    assert await run(retention) == [(Pruned.KEPT, 0, 1)]
    assert await is_right(world)


@pytest.mark.parametrize("state", ["pending", "in_flight", "awaiting"])
async def test_what_is_owed_never_goes(world: World, retention: Retention, state: str) -> None:
    """Case C102: nor does it after years."""
    (receipt,) = await world.owe(1, await world.add_endpoint())
    if state != "pending":
        claimed = await world.claim_one()
        if state == "awaiting":
            await world.record(attempt(claimed, DeliveryMove.RECEIVE))
    await age(world.database, [receipt], 1000)
    assert await run(retention) == [(Pruned.KEPT, 0, 1)]
    assert await is_right(world)


async def test_a_dead_letter_stays_for_its_own_window_and_then_closes_as_expired(
    world: World, retention: Retention
) -> None:
    await dead(world, days=89)
    assert await run(retention) == [(Pruned.KEPT, 0, 1)]
    await dead(world, days=91)
    assert await retention.expire_dead_letters(DEAD, batch=10) == Expired(1, 1)
    assert await world.value("select count(*) from receipts where outcome = 'expired'") == 1
    assert await is_right(world)
    assert await run(retention) == [(Pruned.DROPPED, 1, 0), (Pruned.KEPT, 0, 1)]
    assert (await left(world))["receipts"] == 1
    assert await is_right(world)


async def test_an_event_that_matched_no_rule_expires_like_a_dead_letter(world: World, retention: Retention) -> None:
    (receipt,) = await world.owe(1)
    await age(world.database, [receipt], 92)
    assert await retention.expire_dead_letters(DEAD, batch=10) == Expired(1, 1)
    assert await is_right(world)
    assert await run(retention) == [(Pruned.DROPPED, 1, 0)]
    assert await left(world) == NOTHING


async def test_a_dead_letter_that_expires_leaves_its_receipt_open_while_another_delivery_is_owed(
    world: World, retention: Retention
) -> None:
    lanes = await world.add_endpoints(2)
    (receipt,) = await world.owe(1, *lanes)
    await world.record(attempt(await world.claim_one(), DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))
    (old,) = await age(world.database, [receipt], 100)
    assert await retention.expire_dead_letters(DEAD, batch=10) == Expired(1, 0)
    assert await run(retention) == [(Pruned.KEPT, 0, 1)]
    await world.record(attempt(await world.claim_one()))
    assert await world.value("select outcome::text from receipts where id = $1", old) == "closed_incomplete"
    assert await is_right(world)


async def test_a_dead_letter_that_is_being_sent_again_does_not_expire(world: World) -> None:
    """The pruning found it dead, and waits for the re-drive that holds it."""
    receipt = await dead(world, days=91)
    (delivery,) = (row[0] for row in await world.sql("select id from deliveries"))

    async def expired() -> tuple[int, ...]:
        async with world.database.connection() as connection:  # without the bound on its waits
            return tuple(await connection.fetchrow("select * from expire_dead_letters($1, 10)", DEAD) or ())

    async with world.database.transaction() as connection:
        assert await Redrive(connection, TENANT, os.urandom).delivery(delivery) is not None
        expiring = asyncio.create_task(expired())
        await world.until_blocked(expiring)
    assert await expiring == (0, 0, 0)
    assert (await world.claim_one()).receipt_id == receipt
    assert await is_right(world)


@pytest.mark.parametrize(("acked", "outcome"), [(1, "expired"), (2, "delivered")])
async def test_an_ack_after_the_age_leaves_a_receipt_expired_until_nothing_of_it_is_given_up(
    world: World, retention: Retention, acked: int, outcome: str
) -> None:
    (receipt,) = await world.owe(1, *await world.add_endpoints(2))
    for _ in range(2):
        await world.record(attempt(await world.claim_one(), DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))
    (old,) = await age(world.database, [receipt], 100)
    assert await retention.expire_dead_letters(DEAD, batch=10) == Expired(2, 1)
    taken = [
        ack
        for name in ("consumer-0", "consumer-1")[:acked]
        for ack in await Acks(world.database).acknowledge([AckWanted(TENANT, old, consumer=name)])
    ]
    assert [ack and (ack.is_new, ack.closed) for ack in taken] == [(True, False), (True, True)][:acked]
    assert await world.value("select outcome::text from receipts where id = $1", old) == outcome
    assert await is_right(world)


async def test_what_a_sibling_of_an_expired_dead_letter_was_delivered_lately_keeps_the_event(
    world: World, retention: Retention
) -> None:
    lanes = await world.add_endpoints(2)
    (receipt,) = await world.owe(1, *lanes)
    await world.record(attempt(await world.claim_one(), DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))
    await age(world.database, [receipt], 100)
    await world.record(attempt(await world.claim_one()))
    assert await retention.expire_dead_letters(DEAD, batch=10) == Expired(1, 1)
    assert await run(retention) == [(Pruned.KEPT, 0, 1)]


async def test_of_a_day_only_what_must_stay_is_left(world: World, retention: Retention) -> None:
    """Case C102: a day that holds what is owed or may be sent again is not dropped, and what is over goes from it."""
    lane = await world.add_endpoint()
    receipts = await world.owe(5, lane)
    claimed = (await world.claim()).deliveries
    of = {each.receipt_id: each for each in claimed}
    moves = [DeliveryMove.ACK, DeliveryMove.BURY, DeliveryMove.ACK, DeliveryMove.RECEIVE, DeliveryMove.ACK]
    await world.record(
        *(
            attempt(of[receipt], move, dead=DeadReason.EXHAUSTED if move is DeliveryMove.BURY else None)
            for receipt, move in zip(receipts, moves, strict=True)
        )
    )
    aged = await age(world.database, receipts, 40)
    assert await run(retention) == [(Pruned.THINNED, 3, 2)]
    for table in ("journal", "receipts", "deliveries"):
        assert await world.rows_in(table) == 2
    assert await world.value("select octet_length(payload) from journal where receipt_id = $1", aged[1]) == 2
    found = await verified(world)
    assert found.ok
    assert [(each.gaps, each.pruned) for each in found.partitions] == [(0, 3)]


async def test_a_day_that_was_thinned_is_dropped_when_the_rest_is_over(world: World, retention: Retention) -> None:
    await delivered(world, days=92, number=2)
    old = await dead(world, days=91)
    await delivered(world, days=91, number=2)
    await world.sql("update deliveries set dead_at = now() - interval '80 days' where receipt_id = $1", old)
    assert await run(retention) == [(Pruned.DROPPED, 2, 0), (Pruned.THINNED, 2, 1)]
    assert await is_right(world)
    await world.sql("update deliveries set dead_at = now() - interval '90 days' where receipt_id = $1", old)
    assert await run(retention) == [(Pruned.DROPPED, 1, 0)]
    assert await left(world) == NOTHING
    assert await world.rows_in("pruned_ranges") == len({*await world.sql("select day from pruned_ranges")})
    assert await is_right(world)


@pytest.mark.parametrize("kept", [0, 1])
async def test_a_day_that_was_pruned_again_while_it_was_swept_is_swept_again(
    world: World, retention: Retention, kept: int
) -> None:
    await delivered(world, days=40)
    (day,) = await retention.days_to_prune(DELIVERED)
    await retention.prune_day(day, DELIVERED)
    (first,) = await retention.days_to_sweep()
    await world.sql("update old_days set pruned_at = pruned_at + interval '1 second', kept = $1", kept)
    await retention.mark_swept(first)
    assert [each.day for each in await retention.days_to_sweep()] == [day]


async def test_a_void_event_stays_while_its_sender_may_repeat_it_and_goes_then(
    world: World, retention: Retention
) -> None:
    addition = event(to=[await world.add_endpoint()], key=named("K"))
    (appended,) = await world.append(addition)
    receipt = addition.envelope.receipt_id
    await world.journal.void(
        [receipt], log_from=appended.log_from, timeline=appended.timeline, standbys=1, names=["r2"], promise=None
    )
    (receipt,) = await age(world.database, [receipt], 32)
    await world.sql("update receipts set void_at = now() - interval '29 days'")
    assert await run(retention) == [(Pruned.KEPT, 0, 1)]
    await world.sql("update receipts set void_at = now() - interval '31 days'")
    assert await run(retention) == [(Pruned.DROPPED, 1, 0)]
    assert await left(world) == NOTHING


async def test_a_day_stays_while_a_name_that_is_in_force_leads_to_it(world: World, retention: Retention) -> None:
    """Case C60: the event's day is due to go, and its sender's name is not over."""
    addition = event(to=[await world.add_endpoint()], key=named("K"))
    await world.append(addition)
    await world.record(attempt(await world.claim_one()))
    await age(world.database, [addition.envelope.receipt_id], 40)
    await world.sql("update idempotency_keys set expires_at = now() + interval '1 minute'")
    assert await run(retention) == [(Pruned.KEPT, 0, 1)]
    (answer,) = await world.append(event(key=named("K")))
    assert answer.position is not None
    assert await world.rows_in("receipts") == 1
    await world.sql("update idempotency_keys set expires_at = now() - interval '2 hours'")
    assert await run(retention) == [(Pruned.DROPPED, 1, 0)]


async def test_an_event_without_a_receipt_stays_for_verify_to_name(world: World, retention: Retention) -> None:
    await delivered(world, days=40)
    await world.sql("delete from receipts")
    assert await run(retention) == [(Pruned.KEPT, 0, 1)]
    assert {each.kind.value for each in (await verified(world)).faults} == {"event_without_receipt"}


async def test_what_is_owed_although_its_event_went_stays_for_verify_to_name(
    world: World, retention: Retention
) -> None:
    await delivered(world, days=40)
    (day,) = await retention.days_to_prune(DELIVERED)
    await retention.prune_day(day, DELIVERED)
    await world.sql("update deliveries set status = 'pending', acked_at = null")
    await sweep(retention)
    assert await world.rows_in("deliveries") == await world.rows_in("receipts") == 1
    assert not await is_right(world)


async def test_what_deliveries_were_before_goes_with_them(world: World, retention: Retention) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    await world.record(attempt(await world.claim_one(), DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))
    await redrive(world, receipt)
    await world.record(attempt(await world.claim_one()))
    await age(world.database, [receipt], 40)
    assert (await left(world))["past_generations"] == 1
    await run(retention)
    assert await left(world) == NOTHING


async def test_a_database_in_every_state_is_right_after_years(world: World, retention: Retention) -> None:
    """Everything that could have an end has had it, and what is owed is all that is left."""
    await in_every_state(world)
    await discard(world)
    for day in {row[0] for row in await world.sql("select day from journal")}:
        receipts = [row[0] for row in await world.sql("select receipt_id from journal where day = $1", day)]
        await age(world.database, receipts, 1000)
    await world.sql("update idempotency_keys set expires_at = now() - interval '2 hours'")
    await run(retention)
    assert await world.rows_in("journal") == 3
    assert await world.statuses() == {"pending": 2, "in_flight": 3, "delivered": 1}
    assert await is_right(world)


async def test_a_state_in_the_middle_of_pruning_is_right_and_the_next_run_goes_on_from_it(
    world: World, retention: Retention
) -> None:
    """As after a kill -9 between any two transactions, with batches of one row."""
    await delivered(world, days=40, number=3)
    (day,) = await retention.days_to_prune(DELIVERED)
    await retention.prune_day(day, DELIVERED)
    assert await is_right(world)
    (old,) = await retention.days_to_sweep()
    await retention.sweep(old, after=None, batch=1)
    assert await world.rows_in("receipts") == 2
    assert await is_right(world)
    assert await run(Retention(world.database)) == []
    assert await left(world) == NOTHING
    assert await retention.days_to_sweep() == []
    assert await is_right(world)


async def test_a_session_that_dies_in_the_middle_of_a_step_leaves_everything_as_it_was(
    world: World, retention: Retention, database_dsn: str
) -> None:
    """As after a kill -9: after all that the step does, and before its commit."""
    await delivered(world, days=40, number=3)
    await dead(world, days=40)
    (day,) = await retention.days_to_prune(DELIVERED)
    connection = await asyncpg.connect(database_dsn)
    server = connection.get_server_pid()
    await connection.transaction().start()
    assert (await Retention(only(connection)).prune_day(day, DELIVERED)).result is Pruned.THINNED
    connection.terminate()
    async with asyncio.timeout(20):
        while await world.value("select count(*) from pg_stat_activity where pid = $1", server):
            pass
    assert await run(retention) == [(Pruned.THINNED, 3, 1)]
    assert await world.rows_in("receipts") == 1
    assert await is_right(world)


async def test_a_verification_beside_retention_finds_everything_right(world: World, retention: Retention) -> None:
    lane = await world.add_endpoint()
    for days in range(35, 41):
        await delivered(world, lane, days=days, number=20)
        await dead(world, days=days)
    pruning = asyncio.create_task(run(retention))
    verified_beside = 0
    while not pruning.done():
        found = await verified(world, window=16)
        assert found.ok, found
        verified_beside += 1
    assert await pruning == [(Pruned.THINNED, 20, 1)] * 6
    assert verified_beside > 1
    assert await is_right(world)


async def test_a_sweep_takes_about_as_many_rows_as_it_is_told_to(world: World, retention: Retention) -> None:
    """A receipt counts as many as it has deliveries."""
    await delivered(world, *await world.add_endpoints(4), days=40, number=3)
    (day,) = await retention.days_to_prune(DELIVERED)
    await retention.prune_day(day, DELIVERED)
    (old,) = await retention.days_to_sweep()
    swept = await retention.sweep(old, after=None, batch=8)
    assert (swept.receipts, swept.deliveries) == (2, 8)


async def test_another_session_that_prunes_the_day_is_left_to_it(world: World, retention: Retention) -> None:
    await delivered(world, days=40)
    (day,) = await retention.days_to_prune(DELIVERED)
    async with world.database.transaction() as connection:
        assert (await Retention(only(connection)).prune_day(day, DELIVERED)).result is Pruned.DROPPED
        assert (await retention.prune_day(day, DELIVERED)).result is Pruned.ELSEWHERE
    assert (await retention.prune_day(day, DELIVERED)).result is Pruned.ABSENT


async def test_a_day_that_is_being_read_is_left_alone_at_once(
    world: World, retention: Retention, database_dsn: str
) -> None:
    """Case C124: it waits for no lock behind a long read, so nobody waits behind it."""
    await delivered(world, days=40)
    (day,) = await retention.days_to_prune(DELIVERED)
    reader = await asyncpg.connect(database_dsn)
    try:
        async with reader.transaction():
            await reader.execute(LONG_READ)
            with pytest.raises(StoreBusy, match="in use for long"):
                await retention.prune_day(day, DELIVERED)
    finally:
        await reader.close()
    assert (await retention.prune_day(day, DELIVERED)).result is Pruned.DROPPED


async def test_a_redrive_that_is_under_way_keeps_its_event(world: World, retention: Retention) -> None:
    """It has read the event, so the day is in use; and once it has committed, the event is owed."""
    (receipt,) = await delivered(world, days=40)
    (day,) = await retention.days_to_prune(DELIVERED)
    (delivery,) = (row[0] for row in await world.sql("select id from deliveries"))
    async with world.database.transaction() as connection:
        assert await Redrive(connection, TENANT, os.urandom).delivery(delivery) is not None
        with pytest.raises(StoreBusy):
            await retention.prune_day(day, DELIVERED)
    assert (await retention.prune_day(day, DELIVERED)).result is Pruned.KEPT
    assert (await world.claim_one()).receipt_id == receipt
    assert await is_right(world)


async def test_what_was_sent_again_after_the_first_look_at_its_day_is_seen_in_the_last(
    world: World, retention: Retention
) -> None:
    """The pruning is held up between the two; the re-drive begins and commits in that time."""
    (receipt,) = await delivered(world, days=40)
    (day,) = await retention.days_to_prune(DELIVERED)
    (delivery,) = (row[0] for row in await world.sql("select id from deliveries"))
    prune = "select * from prune_journal_day($1, $2, $3, $4)"

    async def pruned() -> None:
        async with world.database.connection() as connection:  # without the bound on its waits
            await connection.execute(prune, day, ids.first_of(day), ids.last_of(day), DELIVERED)

    async with world.database.transaction() as holding:
        await holding.execute("lock table pruned_ranges in share mode")
        pruning = asyncio.create_task(pruned())
        await world.until_blocked(pruning)
        async with world.database.transaction() as connection:
            assert await Redrive(connection, TENANT, os.urandom).delivery(delivery) is not None
    with pytest.raises(StoreBusy, match="is owed again"):
        await pruning
    assert (await world.claim_one()).receipt_id == receipt
    assert await is_right(world)


async def test_what_went_can_not_be_sent_again(world: World, retention: Retention) -> None:
    """Its delivery and its receipt are there for a moment longer than its event."""
    (receipt,) = await delivered(world, days=40)
    (day,) = await retention.days_to_prune(DELIVERED)
    await retention.prune_day(day, DELIVERED)
    (delivery,) = (row[0] for row in await world.sql("select id from deliveries"))

    async def work(change: Redrive) -> KeptAnswer:
        assert await change.delivery(delivery) is None
        assert await change.receipt(receipt) is None
        return KeptAnswer(404, b"")

    await Redrives(world.database, entropy=os.urandom, key_retention_seconds=60).perform(TENANT, None, work)
    assert await world.statuses() == {"delivered": 1}
    assert await is_right(world)


async def test_a_day_of_which_much_stays_is_looked_at_again_later(world: World, retention: Retention) -> None:
    await delivered(world, days=40)
    (day,) = await retention.days_to_prune(DELIVERED)
    await world.sql("insert into old_days values ($1, 60000, now() + interval '1 hour')", day)
    assert await retention.days_to_prune(DELIVERED) == []


async def test_days_of_attempts_are_dropped_the_oldest_first_and_today_never(
    world: World, retention: Retention
) -> None:
    """Case C102: nothing was written for long, and every day with anything in it is over."""
    for days in (40, 32, 31, 30):
        await make_day(world.database, "delivery_attempts", today() - timedelta(days=days))
    dropped = []
    while (day := await retention.drop_day_of_attempts(ATTEMPTS)) is not None:
        dropped.append((today() - day).days)
    assert dropped == [40, 32, 31]
    while await retention.drop_day_of_attempts(0.0) is not None:
        pass
    first = await world.value("select min(from_at) from partitions_of('delivery_attempts') where not is_default")
    assert (today() - first.date()).days <= 1
    await world.owe(1, await world.add_endpoint())
    await world.record(attempt(await world.claim_one()))
    assert await world.rows_in("delivery_attempts_default") == 0


async def test_days_are_found_by_what_they_hold_whatever_they_are_called(world: World, retention: Retention) -> None:
    await world.sql(
        "create table somebodys partition of delivery_attempts for values from ('2026-01-01') to ('2026-01-08')"
    )
    assert await retention.drop_day_of_attempts(ATTEMPTS) == date(2026, 1, 1)
    assert await retention.drop_day_of_attempts(ATTEMPTS) is None


async def shown(world: World) -> list[UUID]:
    """Every receipt, as history lists them."""
    page = await History(world.database).receipts(TENANT, ReceiptFilter(), limit=100)
    return [each.id for each in page.items]


async def test_events_that_no_day_took_are_taken_listed_and_moved_and_go_when_they_are_over(
    world: World, retention: Retention
) -> None:
    """Case C100: no maintenance ran until there was no partition for today, ten events came, and it runs again."""
    await world.sql(f"drop table journal_{today():%Y%m%d}")
    receipts = await world.owe(10, await world.add_endpoint())
    assert await world.rows_in("journal_default") == 10
    assert await shown(world) == sorted(receipts, reverse=True)
    assert await Health(world.database).ensure_partitions(14) == 1
    assert await world.rows_in("journal_default") == 0
    assert await shown(world) == sorted(receipts, reverse=True)
    assert await is_right(world)


async def test_old_events_that_no_day_took_are_pruned_like_others(world: World, retention: Retention) -> None:
    """Case C100: retention sees those rows."""
    (receipt,) = await delivered(world, days=40)
    day = ids.day_of(receipt)
    await world.sql(f"alter table journal detach partition journal_{day:%Y%m%d}")
    await world.sql(f"insert into journal table journal_{day:%Y%m%d}")
    assert await world.rows_in("journal_default") == 1
    assert await run(retention) == []
    assert await Health(world.database).ensure_partitions(14) == 1
    assert await run(retention) == [(Pruned.DROPPED, 1, 0)]
    assert await left(world) == NOTHING
    assert await is_right(world)


async def test_a_table_of_a_days_name_does_not_keep_the_day_from_being_made(world: World) -> None:
    """Somebody has detached the partition, to look at it or to keep it."""
    tomorrow = today() + timedelta(days=1)
    await world.sql(f"alter table journal detach partition journal_{tomorrow:%Y%m%d}")
    assert await Health(world.database).ensure_partitions(14) == 1
    assert await world.value("select days_ahead('journal')") == 14


async def test_a_dropped_day_of_attempts_leaves_no_dead_rows(world: World, retention: Retention) -> None:
    await make_day(world.database, "delivery_attempts", today() - timedelta(days=40))
    await world.sql(
        "insert into delivery_attempts (delivery_id, at, lease_token, attempt, generation, outcome_class)"
        " select gen_random_uuid(), now() - interval '40 days', gen_random_uuid(), 1, 0, 'success'"
        " from generate_series(1, 1000)"
    )
    await retention.drop_day_of_attempts(ATTEMPTS)
    await world.sql("select pg_stat_force_next_flush()")
    assert await world.rows_in("delivery_attempts") == 0
    dead_rows = "select coalesce(sum(n_dead_tup), 0) from pg_stat_all_tables where relname like 'delivery_attempts%'"
    assert await world.value(dead_rows) == 0


async def test_days_ahead_are_counted_up_to_the_first_that_is_missing(world: World) -> None:
    """Case C101."""
    assert await world.value("select days_ahead('journal')") == 14
    await world.sql(f"drop table journal_{today() + timedelta(days=5):%Y%m%d}")
    assert await world.value("select days_ahead('journal')") == 4
    await world.sql(f"drop table journal_{today():%Y%m%d}")
    assert await world.value("select days_ahead('journal')") == -1
