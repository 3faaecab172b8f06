"""Recording what came of attempts: fenced, idempotent, and closing each receipt once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from relay.domain.attempt import AttemptRecord
from relay.domain.delivery import ClaimedDelivery, DeadReason, DeliveryMove, DeliveryStatus
from relay.domain.endpoint import EndpointState
from relay.domain.outcome import LaneNotice
from relay.domain.receipt import ReceiptOutcome
from relay.domain.sending import ErrorClass, Phases
from relay.store.database import Database
from relay.store.faults import StoreRefused
from relay.store.queue import Recorded
from tests.store.world import GONE, TENANT, World, attempt, held, new_id

NOTHING_LOST: frozenset[tuple[UUID, UUID]] = frozenset()


async def outcome_of(world: World, receipt: UUID) -> ReceiptOutcome | None:
    view = await world.receipts.get(TENANT, receipt)
    assert view is not None
    return view.outcome


async def test_an_ack_delivers_and_closes_the_receipt(world: World) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    claimed = await world.claim_one()
    recorded = await world.record(attempt(claimed))
    assert recorded == Recorded(NOTHING_LOST, {receipt: ReceiptOutcome.DELIVERED})
    row = await world.delivery(claimed.id)
    assert (row["status"], row["lease_token"], row["lease_until"]) == (DeliveryStatus.DELIVERED, None, None)
    assert row["acked_at"] is not None
    view = await world.receipts.get(TENANT, receipt)
    assert view is not None
    assert (view.acked, view.outcome) == (1, ReceiptOutcome.DELIVERED)
    assert view.closed_at is not None


async def test_an_attempt_is_kept_with_everything_that_is_known_of_it(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    claimed = await world.claim_one()
    made = attempt(claimed, DeliveryMove.RETRY, delay=5.0, reason="timed_out")._replace(
        status_code=None,
        error_class=ErrorClass.TOTAL_TIMEOUT,
        snippet="é \N{PILE OF POO}",
        phases=Phases(wait_ms=1.5, connect_ms=2.5, send_ms=None, first_byte_ms=None, total_ms=10_000.0),
    )
    await world.record(made)
    delivery = await world.receipts.delivery(TENANT, claimed.id)
    assert delivery is not None
    (kept,) = await world.receipts.attempts(delivery)
    assert (kept.attempt, kept.generation, kept.outcome_class, kept.reason) == (1, 0, "retryable", "timed_out")
    assert (kept.status_code, kept.error_class, kept.snippet) == (None, ErrorClass.TOTAL_TIMEOUT, made.snippet)
    assert (kept.wait_ms, kept.connect_ms, kept.send_ms, kept.total_ms) == (1.5, 2.5, None, 10_000.0)
    assert (kept.display_url, kept.deferred_for_ms) == (made.display_url, None)
    assert kept.at == claimed.claimed_at + timedelta(milliseconds=1.5)


async def test_a_receipt_closes_with_the_last_of_its_acks(world: World) -> None:
    (receipt,) = await world.owe(1, *await world.add_endpoints(3))
    claimed = (await world.claim()).deliveries
    assert (await world.record(attempt(claimed[0]))).closed == {}
    assert await outcome_of(world, receipt) is None
    assert (await world.record(attempt(claimed[1]), attempt(claimed[2]))).closed == {receipt: ReceiptOutcome.DELIVERED}


async def test_a_receipt_that_was_redriven_closes_as_such(world: World) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    await world.sql("update receipts set redriven = true")
    recorded = await world.record(attempt(await world.claim_one()))
    assert recorded.closed == {receipt: ReceiptOutcome.DELIVERED_AFTER_REDRIVE}


async def test_a_receipt_of_which_a_person_gave_up_a_part_closes_incomplete(world: World) -> None:
    (receipt,) = await world.owe(1, *await world.add_endpoints(2))
    acked, buried = (await world.claim()).deliveries
    await world.record(attempt(buried, DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))
    await world.sql("update receipts set discarded = 1")
    assert (await world.record(attempt(acked))).closed == {receipt: ReceiptOutcome.CLOSED_INCOMPLETE}


async def test_a_retry_is_due_after_its_delay_and_not_before(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    claimed = await world.claim_one()
    await world.record(attempt(claimed, DeliveryMove.RETRY, delay=12.5, reason="server_error"))
    row = await world.delivery(claimed.id)
    wait = await world.value("select extract(epoch from due_at - now())::float from deliveries")
    assert (row["status"], row["last_error"], row["lease_token"]) == (DeliveryStatus.PENDING, "server_error", None)
    assert 11.5 < wait <= 12.5
    assert (await world.claim()).deliveries == ()
    await world.make_due_again()
    assert (await world.claim_one()).attempt == 2


async def test_a_retried_delivery_keeps_its_receipt_open(world: World) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    recorded = await world.record(attempt(await world.claim_one(), DeliveryMove.RETRY))
    assert recorded == Recorded(NOTHING_LOST, {})
    assert await outcome_of(world, receipt) is None


@pytest.mark.parametrize("dead", [DeadReason.EXHAUSTED, DeadReason.PERMANENT_FAILURE, DeadReason.REFUSED])
async def test_a_buried_delivery_waits_for_a_person_and_keeps_its_receipt_open(world: World, dead: DeadReason) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    claimed = await world.claim_one()
    recorded = await world.record(attempt(claimed, DeliveryMove.BURY, dead=dead, reason="rejected"))
    assert recorded == Recorded(NOTHING_LOST, {})
    view = await world.receipts.get(TENANT, receipt)
    assert view is not None
    (delivery,) = view.deliveries
    assert (delivery.status, delivery.dead_reason, delivery.last_error) == (DeliveryStatus.DEAD, dead, "rejected")
    assert delivery.dead_at is not None
    assert view.outcome is None
    await world.make_due_again()
    assert (await world.claim()).deliveries == ()


async def test_what_was_received_stays_in_flight_without_a_lease_until_it_is_acked(world: World) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    claimed = await world.claim_one()
    recorded = await world.record(attempt(claimed, DeliveryMove.RECEIVE))
    assert recorded == Recorded(NOTHING_LOST, {})
    view = await world.receipts.get(TENANT, receipt)
    assert view is not None
    (delivery,) = view.deliveries
    assert (delivery.status, delivery.awaits_ack, view.outcome) == (DeliveryStatus.IN_FLIGHT, True, None)
    assert (await world.delivery(claimed.id))["lease_token"] is None
    assert await world.queue.reap(batch=10) == 0
    assert await world.queue.hand_back([(claimed.id, claimed.lease_token)]) == 0


async def test_a_reaped_lease_cannot_record_its_outcome(world: World) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    stalled = await world.claim_lapsed()
    assert await world.queue.reap(batch=10) == 1
    recorded = await world.record(attempt(stalled))
    assert recorded == Recorded(frozenset({(stalled.id, stalled.lease_token)}), {})
    assert (await world.delivery(stalled.id))["status"] == DeliveryStatus.PENDING
    assert await outcome_of(world, receipt) is None


async def test_a_stalled_worker_cannot_overwrite_its_successor(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    stalled = await world.claim_lapsed()
    await world.queue.reap(batch=10)
    successor = await world.claim_one()
    recorded = await world.record(attempt(stalled, DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))
    assert recorded.lost == {(stalled.id, stalled.lease_token)}
    row = await world.delivery(successor.id)
    assert (row["status"], row["lease_token"]) == (DeliveryStatus.IN_FLIGHT, successor.lease_token)
    assert (await world.record(attempt(successor))).lost == NOTHING_LOST


async def test_the_attempt_of_a_lost_lease_is_kept_all_the_same(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    stalled = await world.claim_lapsed()
    await world.queue.reap(batch=10)
    successor = await world.claim_one()
    await world.record(attempt(stalled, DeliveryMove.RETRY, reason="timed_out"), attempt(successor))
    delivery = await world.receipts.delivery(TENANT, successor.id)
    assert delivery is not None
    kept = await world.receipts.attempts(delivery)
    assert (kept[0].attempt, kept[0].error_class) == (1, "lease_expired")
    others = [(each.attempt, each.outcome_class, each.reason) for each in kept[1:]]
    assert sorted(others) == [(1, "retryable", "timed_out"), (2, "success", None)]


async def test_of_two_tokens_of_one_delivery_in_one_batch_only_the_living_one_counts(world: World) -> None:
    (receipt,) = await world.owe(1, await world.add_endpoint())
    stalled = await world.claim_lapsed()
    await world.queue.reap(batch=10)
    successor = await world.claim_one()
    dead = DeadReason.PERMANENT_FAILURE
    recorded = await world.record(attempt(stalled, DeliveryMove.BURY, dead=dead), attempt(successor))
    assert recorded == Recorded(frozenset({(stalled.id, stalled.lease_token)}), {receipt: ReceiptOutcome.DELIVERED})
    assert (await world.delivery(successor.id))["status"] == DeliveryStatus.DELIVERED


async def test_a_lease_that_ran_out_but_was_not_reaped_can_still_record(world: World) -> None:
    """The token is the proof; as long as nobody took it, nobody else has tried the delivery."""
    await world.owe(1, await world.add_endpoint())
    assert (await world.record(attempt(await world.claim_lapsed()))).lost == NOTHING_LOST


async def test_recording_a_batch_twice_changes_nothing(world: World) -> None:
    lanes = await world.add_endpoints(3)
    await world.owe(2, *lanes)
    acked, retried, buried, received, *_ = (await world.claim()).deliveries
    batch = [
        attempt(acked),
        attempt(retried, DeliveryMove.RETRY, delay=60.0),
        attempt(buried, DeliveryMove.BURY, dead=DeadReason.EXHAUSTED),
        attempt(received, DeliveryMove.RECEIVE),
    ]
    first = await world.record(*batch)
    before = await world.sql("select * from deliveries order by id")
    receipts = await world.sql("select * from receipts order by id")
    assert await world.record(*batch) == first
    assert await world.sql("select * from deliveries order by id") == before
    assert await world.sql("select * from receipts order by id") == receipts
    assert await world.rows_in("delivery_attempts") == 4


async def test_an_attempt_that_is_twice_in_a_batch_counts_once(world: World) -> None:
    (receipt,) = await world.owe(1, *await world.add_endpoints(2))
    claimed, _ = (await world.claim()).deliveries
    recorded = await world.record(attempt(claimed), attempt(claimed))
    assert recorded == Recorded(NOTHING_LOST, {})
    assert await world.value("select acked from receipts where id = $1", receipt) == 1
    assert await world.rows_in("delivery_attempts") == 1


async def test_an_empty_batch_records_nothing(world: World) -> None:
    assert await world.record() == Recorded(NOTHING_LOST, {})


async def test_a_batch_with_one_bad_attempt_changes_nothing(world: World) -> None:
    await world.owe(3, await world.add_endpoint())
    first, second, third = (await world.claim()).deliveries
    bad = attempt(second)._replace(snippet="nul \x00")
    with pytest.raises(StoreRefused):
        await world.record(attempt(first), bad, attempt(third))
    assert await world.statuses() == {"in_flight": 3}
    assert await world.rows_in("delivery_attempts") == 0


async def test_an_attempt_lies_in_the_partition_of_its_day(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    await world.record(attempt(await world.claim_one()))
    day = await world.value("select 'delivery_attempts_' || to_char(now() at time zone 'UTC', 'YYYYMMDD')")
    assert await world.value("select tableoid::regclass::text from delivery_attempts") == day


async def test_an_attempt_of_a_day_without_a_partition_is_kept_in_the_default_one(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    long_ago = (await world.claim_one())._replace(claimed_at=datetime(2001, 9, 9, tzinfo=UTC))
    await world.record(attempt(long_ago))
    await world.record(attempt(long_ago))
    assert await world.rows_in("delivery_attempts_default") == 1


async def test_a_hold_closes_the_lane_for_its_time_and_tells_why(world: World) -> None:
    lane = await world.add_endpoint()
    (receipt, _) = await world.owe(2, lane)
    claimed = await world.claim_one()
    await world.record(attempt(claimed, DeliveryMove.RETRY, lane=held(30.0)))
    await world.make_due_again()
    assert (await world.claim()).deliveries == ()
    view = await world.receipts.delivery(TENANT, claimed.id)
    assert view is not None
    assert (view.receipt_id, view.held_reason) == (receipt, "retry_after")
    assert view.held_until is not None
    assert 25 < await world.value("select extract(epoch from $1 - now())::float", view.held_until) <= 30


async def test_a_shorter_hold_does_not_cut_a_longer_one(world: World) -> None:
    await world.owe(2, await world.add_endpoint())
    first, second = (await world.claim()).deliveries
    await world.record(attempt(first, DeliveryMove.RETRY, lane=held(300.0)))
    await world.record(attempt(second, DeliveryMove.RETRY, lane=held(1.0)))
    assert await world.value("select extract(epoch from held_until - now())::float from endpoint_state") > 290


async def test_a_disabling_hold_closes_the_lane_until_a_person_resumes_it(world: World) -> None:
    lane = await world.add_endpoint()
    await world.owe(2, lane)
    claimed = await world.claim_one()
    await world.record(attempt(claimed, DeliveryMove.BURY, dead=DeadReason.PERMANENT_FAILURE, lane=GONE))
    endpoint = await world.endpoints.get(TENANT, lane)
    assert endpoint is not None
    assert (endpoint.state, endpoint.state_reason) == (EndpointState.DISABLED, "the endpoint answered 410 Gone")
    assert (await world.claim()).deliveries == ()
    await world.endpoints.set_state(TENANT, lane, EndpointState.ACTIVE)
    assert len((await world.claim()).deliveries) == 1


async def test_an_endpoint_is_disabled_in_words_although_its_answers_could_not_be_written(world: World) -> None:
    """What the database refuses is written once more without status and reason."""
    lane = await world.add_endpoint()
    await world.owe(1, lane)
    record = attempt(await world.claim_one(), DeliveryMove.BURY, dead=DeadReason.PERMANENT_FAILURE, lane=GONE)
    await world.record(record._replace(status_code=None, reason=None))
    endpoint = await world.endpoints.get(TENANT, lane)
    assert endpoint is not None
    assert endpoint.state_reason == "the endpoint answered that it is gone"


async def test_a_pause_by_a_person_is_not_overwritten_by_a_410(world: World) -> None:
    lane = await world.add_endpoint()
    await world.owe(1, lane)
    claimed = await world.claim_one()
    await world.endpoints.set_state(TENANT, lane, EndpointState.PAUSED, "maintenance")
    await world.record(attempt(claimed, DeliveryMove.BURY, dead=DeadReason.PERMANENT_FAILURE, lane=GONE))
    endpoint = await world.endpoints.get(TENANT, lane)
    assert endpoint is not None
    assert (endpoint.state, endpoint.state_reason) == (EndpointState.PAUSED, "maintenance")


async def test_a_pause_leaves_what_a_410_has_disabled_as_it_is_until_it_is_resumed(world: World) -> None:
    lane = await world.add_endpoint()
    await world.owe(1, lane)
    gone = attempt(await world.claim_one(), DeliveryMove.BURY, dead=DeadReason.PERMANENT_FAILURE, lane=GONE)
    await world.record(gone)
    paused = await world.endpoints.set_state(TENANT, lane, EndpointState.PAUSED)
    assert paused is not None
    assert (paused.state, paused.state_reason) == (EndpointState.DISABLED, "the endpoint answered 410 Gone")
    resumed = await world.endpoints.set_state(TENANT, lane, EndpointState.ACTIVE)
    assert resumed is not None
    assert (resumed.state, resumed.state_reason) == (EndpointState.ACTIVE, None)


async def test_outcomes_and_holds_are_one_transaction(world: World) -> None:
    lane = await world.add_endpoint()
    await world.owe(1, lane)
    claimed = await world.claim_one()
    await world.sql("alter table endpoint_state add constraint no_hold check (held_until is null)")
    with pytest.raises(StoreRefused):
        await world.record(attempt(claimed, lane=held(5.0)))
    assert await world.statuses() == {"in_flight": 1}


async def two_workers(dsn: str) -> list[World]:
    return [World.over(await Database.connect(dsn, name=f"worker-{number}", size=1)) for number in range(2)]


async def test_two_workers_that_record_the_last_acks_at_once_close_the_receipt_exactly_once(
    world: World, database_dsn: str
) -> None:
    lanes = await world.add_endpoints(2)
    await world.owe(80, *lanes)
    claimed = (await world.claim(batch=200)).deliveries
    by_receipt: dict[UUID, list[AttemptRecord]] = {}
    for each in claimed:
        by_receipt.setdefault(each.receipt_id, []).append(attempt(each))
    workers = await two_workers(database_dsn)
    closed: Counter[UUID] = Counter()
    for first, second in by_receipt.values():
        async with asyncio.timeout(10):
            recorded = await asyncio.gather(workers[0].record(first), workers[1].record(second))
        for each_recorded in recorded:
            closed.update(each_recorded.closed.keys())
    for worker in workers:
        await worker.database.close()
    assert len(closed) == 80
    assert set(closed.values()) == {1}
    assert await world.value("select count(*) from receipts where acked = 2 and outcome = 'delivered'") == 80


async def record_shuffled(dsn: str, attempts: list[AttemptRecord]) -> Counter[UUID]:
    """Record in batches whose order has nothing to do with the ids."""
    random.shuffle(attempts)
    database = await Database.connect(dsn, name="recorder", size=1)
    world, closed = World.over(database), Counter[UUID]()
    try:
        for place in range(0, len(attempts), 40):
            recorded = await world.record(*attempts[place : place + 40])
            closed.update(recorded.closed.keys())
            assert recorded.lost == NOTHING_LOST
    finally:
        await database.close()
    return closed


async def test_recorders_with_the_same_receipts_in_other_orders_do_not_deadlock(
    world: World, database_dsn: str
) -> None:
    lanes = await world.add_endpoints(8)
    receipts = await world.owe(150, *lanes)
    attempts = [attempt(each) for each in (await world.claim(batch=1_200)).deliveries]
    random.shuffle(attempts)
    async with asyncio.timeout(60):
        closed = await asyncio.gather(*(record_shuffled(database_dsn, attempts[n::8]) for n in range(8)))
    assert sum(closed, Counter[UUID]()) == Counter(receipts)
    assert await world.value("select deadlocks from pg_stat_database where datname = current_database()") == 0
    assert await world.statuses() == {"delivered": 1_200}


async def record_again(dsn: str, attempts: list[AttemptRecord]) -> Counter[UUID]:
    """Record what others record too, in an order of its own."""
    attempts = random.sample(attempts, len(attempts))
    database = await Database.connect(dsn, name="recorder", size=1)
    world, closed = World.over(database), Counter[UUID]()
    try:
        for place in range(0, len(attempts), 100):
            closed.update((await world.record(*attempts[place : place + 100])).closed.keys())
    finally:
        await database.close()
    return closed


async def test_recorders_of_the_same_attempts_in_other_orders_do_not_deadlock(world: World, database_dsn: str) -> None:
    """A batch that is repeated after a lost connection meets itself, still under way."""
    receipts = await world.owe(400, *await world.add_endpoints(2))
    attempts = [attempt(each) for each in (await world.claim(batch=800)).deliveries]
    async with asyncio.timeout(60):
        closed = await asyncio.gather(*(record_again(database_dsn, attempts) for _ in range(6)))
    # each of them is told of its attempts' effect, whoever wrote them first
    assert set(sum(closed, Counter[UUID]())) == set(receipts)
    assert await world.sql("select acked, count(*) from receipts group by acked") == [(2, 400)]
    assert await world.value("select deadlocks from pg_stat_database where datname = current_database()") == 0
    assert await world.rows_in("delivery_attempts") == 800


async def test_recorders_of_the_same_lost_attempts_in_other_orders_do_not_deadlock(
    world: World, database_dsn: str
) -> None:
    """No delivery bears their tokens any more, so nothing but the attempts themselves keeps the recorders in order."""
    await world.owe(400, *await world.add_endpoints(2))
    attempts = [attempt(each) for each in (await world.claim(batch=800, lease=-1.0)).deliveries]
    assert await world.queue.reap(batch=1_000) == 800
    async with asyncio.timeout(60):
        closed = await asyncio.gather(*(record_again(database_dsn, attempts) for _ in range(6)))
    assert sum(closed, Counter[UUID]()) == Counter()
    assert await world.value("select deadlocks from pg_stat_database where datname = current_database()") == 0
    assert await world.rows_in("delivery_attempts") == 1_600, "theirs and the reaper's"


async def hold_often(dsn: str, claimed: list[ClaimedDelivery]) -> None:
    """Record failures, holds and the ends of endpoints in an order that has nothing to do with the ids."""
    database = await Database.connect(dsn, name="holder", size=1)
    world = World.over(database)
    notices = [GONE, held(0.001), LaneNotice(answered=False)]
    random.shuffle(claimed)
    try:
        for start in range(0, len(claimed), 12):
            batch = [
                attempt(each, DeliveryMove.RETRY, lane=notices[place % len(notices)])
                for place, each in enumerate(claimed[start : start + 12])
            ]
            await world.record(*batch)
    finally:
        await database.close()


async def test_lessons_for_the_same_lanes_in_other_orders_do_not_deadlock(world: World, database_dsn: str) -> None:
    lanes = await world.add_endpoints(6)
    await world.sql("update endpoints set credential = 'shared' where id = any ($1)", lanes[:4])
    for lane in lanes:
        await world.owe(180, lane)
    claimed = [each for _ in range(11) for each in (await world.claim(batch=100)).deliveries]
    async with asyncio.timeout(60):
        await asyncio.gather(*(hold_often(database_dsn, claimed[worker::6]) for worker in range(6)))
    assert await world.value("select deadlocks from pg_stat_database where datname = current_database()") == 0


async def test_a_recorder_waits_for_who_holds_a_delivery_and_then_sees_what_became_of_it(
    world: World, database_dsn: str
) -> None:
    """The token is compared again after the wait, not only before it."""
    await world.owe(1, await world.add_endpoint())
    claimed = await world.claim_one()
    (other, unused) = await two_workers(database_dsn)
    async with world.database.transaction() as connection:
        await connection.execute(
            "update deliveries set status = 'pending', lease_token = null, lease_until = null where id = $1", claimed.id
        )
        late = asyncio.create_task(other.record(attempt(claimed)))
        await world.until_blocked(late)
    async with asyncio.timeout(10):
        assert (await late).lost == {(claimed.id, claimed.lease_token)}
    for worker in (other, unused):
        await worker.database.close()
    assert await world.statuses() == {"pending": 1}


async def test_a_claimed_delivery_that_nobody_knows_is_lost(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    stranger = (await world.claim_one())._replace(id=new_id())
    assert (await world.record(attempt(stranger))).lost == {(stranger.id, stranger.lease_token)}


async def test_the_closing_updates_of_a_batch_leave_the_indexes_of_receipts_alone(world: World) -> None:
    """They are HOT: whole pages of receipts close at once, and there is room for one more version of each."""
    await world.owe(300, await world.add_endpoint())
    claimed = (await world.claim(batch=300)).deliveries
    recorded = await world.record(*(attempt(each) for each in claimed))
    assert len(recorded.closed) == 300
    async with world.database.connection() as connection:
        await connection.execute("select pg_stat_force_next_flush()")
    moved = await world.sql("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'receipts'")
    assert tuple(moved[0]) == (300, 300)
