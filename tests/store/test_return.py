"""What goes back to its lane: handed back, reaped, or buried with its endpoint."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from relay.domain.delivery import DeadReason, DeliveryMove, DeliveryStatus
from relay.domain.outcome import OutcomeClass
from relay.domain.sending import ErrorClass, Phases
from relay.store.faults import StoreRefused
from tests.store.world import TENANT, World, attempt, new_id
from tests.support.refusing import refuse_records


async def test_a_hand_back_takes_the_attempt_back(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    first = await world.claim_one()
    before = await world.value("select due_at from deliveries")
    assert await world.queue.hand_back([(first.id, first.lease_token)]) == 1
    row = await world.delivery(first.id)
    assert (row["status"], row["attempts"], row["generation_attempts"]) == (DeliveryStatus.PENDING, 0, 0)
    assert (row["lease_token"], row["lease_until"], row["generation_started_at"]) == (None, None, None)
    assert row["due_at"] == before
    again = await world.claim_one()
    assert (again.attempt, again.generation_attempt, again.generation_age) == (1, 1, 0.0)


async def test_a_hand_back_of_a_later_attempt_keeps_the_generations_start(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    await world.record(attempt(await world.claim_one(), DeliveryMove.RETRY))
    began = await world.value("select generation_started_at from deliveries")
    second = await world.claim_one()
    await world.queue.hand_back([(second.id, second.lease_token)])
    row = await world.delivery(second.id)
    assert (row["attempts"], row["generation_started_at"]) == (1, began)


@pytest.mark.parametrize("delay", [0.25, 1.5, 30.0])
async def test_what_is_handed_back_is_due_again_after_its_delay(world: World, delay: float) -> None:
    await world.owe(1, await world.add_endpoint())
    claimed = await world.claim_one()
    async with world.database.transaction() as connection:
        now = await connection.fetchval("select now()")
    await world.queue.hand_back([(claimed.id, claimed.lease_token)], delay_seconds=delay)
    due = await world.value("select due_at from deliveries")
    assert timedelta(seconds=delay) <= due - now < timedelta(seconds=delay + 5)


async def test_a_hand_back_is_fenced(world: World) -> None:
    await world.owe(2, await world.add_endpoint())
    stalled = await world.claim_lapsed()
    await world.queue.reap(batch=10)
    await world.claim()
    ours = new_id()
    given_back = await world.queue.hand_back([(stalled.id, stalled.lease_token), (stalled.id, ours), (ours, ours)])
    assert given_back == 0
    assert await world.statuses() == {"in_flight": 2}


async def test_a_hand_back_answers_how_many_were_still_ours(world: World) -> None:
    await world.owe(4, await world.add_endpoint())
    leases = [(each.id, each.lease_token) for each in (await world.claim()).deliveries]
    assert await world.queue.hand_back(leases[:3]) == 3
    assert await world.queue.hand_back(leases) == 1
    assert await world.queue.hand_back([]) == 0


async def test_a_reaped_lease_keeps_its_attempt(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    await world.claim_lapsed()
    assert await world.queue.reap(batch=10) == 1
    again = await world.claim_one()
    assert (again.attempt, again.generation_attempt) == (2, 2)


async def test_the_reaper_tells_what_happened_and_puts_the_delivery_into_its_lane_at_once(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    claimed = await world.claim_lapsed()
    await world.queue.reap(batch=10)
    row = await world.delivery(claimed.id)
    assert (row["status"], row["lease_token"]) == (DeliveryStatus.PENDING, None)
    assert row["last_error"].startswith("lease_expired: no answer was recorded while its lease lasted")


async def test_a_reaped_attempt_is_on_record_with_what_became_of_it(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    await world.record(attempt(await world.claim_one(), DeliveryMove.RETRY))
    claimed = await world.claim_lapsed()
    await world.queue.reap(batch=10)
    view = await world.receipts.delivery(TENANT, claimed.id)
    assert view is not None
    _, reaped = await world.receipts.attempts(view)
    assert (reaped.attempt, reaped.generation) == (2, 0)
    assert (reaped.outcome_class, reaped.error_class) == (OutcomeClass.RETRYABLE, ErrorClass.LEASE_EXPIRED)
    assert (reaped.status_code, reaped.total_ms) == (None, None)
    assert reaped.reason == view.last_error
    assert timedelta(0) <= claimed.claimed_at - reaped.at <= timedelta(microseconds=1)


@pytest.mark.parametrize("wait_ms", [0.0, 0.001, 2_000.0])
async def test_what_a_stalled_worker_records_after_the_reaper_is_kept_beside_it_as_late(
    world: World, wait_ms: float
) -> None:
    await world.owe(1, await world.add_endpoint())
    stalled = await world.claim_lapsed()
    await world.queue.reap(batch=10)
    outcome = attempt(stalled)._replace(phases=Phases(wait_ms=wait_ms))
    for _ in range(2):
        recorded = await world.record(outcome)
        assert recorded.lost == {(stalled.id, stalled.lease_token)}
    rows = await world.sql("select attempt, error_class, status_code, late from delivery_attempts order by at")
    assert [tuple(row) for row in rows] == [(1, "lease_expired", None, False), (1, None, 200, True)]
    assert await world.statuses() == {"pending": 1}


async def test_an_attempt_that_was_recorded_in_time_is_not_recorded_by_the_reaper(world: World) -> None:
    await world.owe(2, await world.add_endpoint())
    first, second = (await world.claim(lease=-1.0)).deliveries
    await world.record(attempt(first), attempt(second, DeliveryMove.RETRY, delay=60.0))
    assert await world.queue.reap(batch=10) == 0
    assert await world.value("select count(*) from delivery_attempts where error_class is not null") == 0


async def test_leases_come_back_with_their_attempts_counted_where_the_records_are_refused(world: World) -> None:
    await world.owe(2, await world.add_endpoint())
    await world.claim(lease=-1.0)
    await refuse_records(world.database)
    with pytest.raises(StoreRefused):
        await world.queue.reap(batch=10)
    assert await world.statuses() == {"in_flight": 2}
    assert await world.queue.reap(batch=10, on_record=False) == 2
    assert await world.value("select array_agg(attempts) from deliveries") == [1, 1]
    assert await world.rows_in("delivery_attempts") == 0


async def test_a_living_lease_is_not_reaped(world: World) -> None:
    await world.owe(1, await world.add_endpoint())
    await world.claim_one()
    assert await world.queue.reap(batch=10) == 0


async def test_the_reaper_takes_at_most_its_batch(world: World) -> None:
    await world.owe(5, await world.add_endpoint())
    await world.claim(lease=-1.0)
    assert [await world.queue.reap(batch=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_reapers_pass_over_what_another_session_holds(world: World) -> None:
    await world.owe(2, await world.add_endpoint())
    held, _ = (await world.claim(lease=-1.0)).deliveries
    async with world.database.transaction() as connection:
        await connection.execute("select from deliveries where id = $1 for update", held.id)
        async with asyncio.timeout(10):
            assert await world.queue.reap(batch=10) == 1


async def test_what_a_removed_endpoint_is_owed_is_buried(world: World) -> None:
    removed, kept = await world.add_endpoints(2)
    await world.owe(3, removed, kept)
    await world.endpoints.remove(TENANT, removed)
    assert await world.queue.bury_removed(batch=100) == {"consumer-0": 3}
    buried = await world.sql("select endpoint_id, dead_reason, last_error from deliveries where status = 'dead'")
    assert {tuple(row) for row in buried} == {(removed, DeadReason.ENDPOINT_REMOVED, "the endpoint was removed")}
    assert await world.statuses() == {"dead": 3, "pending": 3}


async def test_burying_takes_at_most_its_batch_over_all_endpoints(world: World) -> None:
    lanes = await world.add_endpoints(3)
    await world.owe(3, *lanes)
    for lane in lanes:
        await world.endpoints.remove(TENANT, lane)
    rounds = [await world.queue.bury_removed(batch=4) for _ in range(4)]
    assert [sum(each.values()) for each in rounds] == [4, 4, 1, 0]


async def test_what_is_in_flight_to_a_removed_endpoint_may_still_arrive(world: World) -> None:
    lane = await world.add_endpoint()
    await world.owe(2, lane)
    acked, retried = (await world.claim()).deliveries
    await world.endpoints.remove(TENANT, lane)
    assert await world.queue.bury_removed(batch=10) == {}
    await world.record(attempt(acked), attempt(retried, DeliveryMove.RETRY, delay=60.0))
    assert sum((await world.queue.bury_removed(batch=10)).values()) == 1
    assert await world.statuses() == {"delivered": 1, "dead": 1}


async def test_what_was_appended_while_its_endpoint_was_removed_is_buried_too(world: World) -> None:
    lane = await world.add_endpoint()
    await world.endpoints.remove(TENANT, lane)
    assert await world.queue.bury_removed(batch=10) == {}
    await world.owe(1, lane)
    assert sum((await world.queue.bury_removed(batch=10)).values()) == 1
