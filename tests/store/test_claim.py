"""The claim: what it takes, under which token, and what it hands out."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from relay.domain.delivery import ClaimedDelivery, DeliveryMove, DeliveryStatus
from relay.domain.endpoint import EndpointConfig, EndpointState
from relay.domain.secret import Secret
from relay.store.database import Commits, Database
from relay.store.queue import FIRST_LANE, Claim
from tests.store.world import TENANT, World, allowed, attempt, event, lanes_of, new_id


async def test_a_claim_hands_out_the_whole_envelope(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    added = event(to=(lane,), payload=b"\x00\xff exact")
    envelope = added.envelope._replace(forwarded=(("traceparent", "00-ab-cd-01"), ("ce-source", "é")), hops=2)
    (appended,) = await world.append(replace(added, envelope=envelope))
    token = new_id()
    (claimed,) = (await world.queue.claim_due(after=FIRST_LANE, batch=1, token=token, lease_seconds=60)).deliveries
    assert appended.position is not None
    assert claimed == ClaimedDelivery(
        id=added.fan_out[0][0],
        lease_token=token,
        receipt_id=envelope.receipt_id,
        endpoint_id=lane,
        endpoint_revision=1,
        sign_with_previous=False,
        attempt=1,
        generation=0,
        generation_attempt=1,
        generation_age=0.0,
        claimed_at=claimed.claimed_at,
        event_id=envelope.event_id,
        type=envelope.type,
        received_at=envelope.received_at,
        position=appended.position,
        content_type=envelope.content_type,
        payload=envelope.payload,
        payload_sha256=envelope.payload_sha256,
        forwarded=envelope.forwarded,
        hops=2,
    )


async def test_a_claim_of_nothing_is_empty_and_at_the_end_of_the_lanes(world: World) -> None:
    assert await world.claim() == Claim((), FIRST_LANE, came_around=True)


async def test_a_claimed_row_bears_its_token_and_the_end_of_its_lease(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(1, lane)
    claimed = await world.claim_one(lease=45.0)
    row = await world.delivery(claimed.id)
    assert (row["status"], row["lease_token"], row["attempts"]) == (DeliveryStatus.IN_FLIGHT, claimed.lease_token, 1)
    assert row["lease_until"] - row["claimed_at"] == timedelta(seconds=45)
    assert row["claimed_at"] == claimed.claimed_at


async def test_what_is_claimed_is_not_claimed_again(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(1, lane)
    await world.claim_one()
    assert (await world.claim()).deliveries == ()


async def test_an_attempt_counts_over_the_whole_life_and_the_generations_over_the_generation(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(1, lane)
    await world.sql("update deliveries set attempts = 7, generation = 2, generation_attempts = 3")
    claimed = await world.claim_one()
    assert (claimed.attempt, claimed.generation, claimed.generation_attempt) == (8, 2, 4)


async def test_a_generation_ages_from_its_first_attempt_by_the_databases_clock(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(1, lane)
    first = await world.claim_one()
    await world.record(attempt(first, DeliveryMove.RETRY))
    await world.sql("update deliveries set generation_started_at = generation_started_at - interval '90 seconds'")
    second = await world.claim_one()
    assert first.generation_age == 0.0
    assert 90.0 < second.generation_age < 120.0


async def test_a_claim_takes_at_most_its_batch(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(30, lane)
    assert [len((await world.claim(batch=12)).deliveries) for _ in range(4)] == [12, 12, 6, 0]


async def test_within_a_lane_what_was_due_first_is_claimed_first(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(20, lane)
    await world.sql("update deliveries set due_at = now() - random() * interval '1 hour'")
    by_due = await world.sql("select id from deliveries order by due_at")
    claimed = [frozenset(each.id for each in (await world.claim(batch=5)).deliveries) for _ in range(4)]
    assert claimed == [frozenset(row["id"] for row in by_due[place : place + 5]) for place in (0, 5, 10, 15)]


async def test_what_is_due_later_is_not_claimed(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    later, now = await world.owe(2, lane)
    await world.sql("update deliveries set due_at = now() + interval '1 minute' where receipt_id = $1", later)
    assert [each.receipt_id for each in (await world.claim()).deliveries] == [now]


@pytest.mark.parametrize("state", [EndpointState.PAUSED, EndpointState.DISABLED])
async def test_the_lane_of_an_endpoint_that_is_not_active_is_closed(world: World, state: EndpointState) -> None:
    closed, open_lane = await world.add_endpoints(2)
    await world.owe(3, closed, open_lane)
    await world.endpoints.set_state(TENANT, closed, state)
    assert lanes_of((await world.claim()).deliveries) == {open_lane: 3}
    await world.endpoints.set_state(TENANT, closed, EndpointState.ACTIVE)
    assert lanes_of((await world.claim()).deliveries) == {closed: 3}


async def test_the_lane_of_a_removed_endpoint_is_closed(world: World) -> None:
    removed, open_lane = await world.add_endpoints(2)
    await world.owe(3, removed, open_lane)
    await world.endpoints.remove(TENANT, removed)
    assert lanes_of((await world.claim()).deliveries) == {open_lane: 3}


async def test_a_held_lane_is_closed_until_its_hold_is_over(world: World) -> None:
    held, open_lane = await world.add_endpoints(2)
    await world.owe(3, held, open_lane)
    hold = "update endpoint_state set held_until = now() + $2 * interval '1 second' where endpoint_id = $1"
    await world.sql(hold, held, 60.0)
    assert lanes_of((await world.claim()).deliveries) == {open_lane: 3}
    await world.sql(hold, held, -0.001)
    assert lanes_of((await world.claim()).deliveries) == {held: 3}


async def test_a_lane_gives_no_more_than_its_limit_leaves_free(world: World) -> None:
    config = EndpointConfig(name="", url="http://127.0.0.1/")
    limits = {
        await world.add_endpoint(replace(config, name=f"limit-{limit}", max_in_flight=limit)): limit
        for limit in (1, 5, 8)
    }
    await world.owe(20, *limits)
    busy = {lane: 4 for lane, limit in limits.items() if limit > 1}
    claimed = lanes_of((await world.claim(busy=busy)).deliveries)
    assert {limits[lane]: number for lane, number in claimed.items()} == {1: 1, 5: 1, 8: 4}


async def test_a_full_lane_is_closed(world: World) -> None:
    full, other = await world.add_endpoints(2, max_in_flight=5)
    await world.owe(5, full, other)
    assert lanes_of((await world.claim(busy={full: 5})).deliveries) == {other: 5}
    assert lanes_of((await world.claim(busy={full: 9, other: 5})).deliveries) == {}


async def test_busy_lanes_that_the_database_does_not_know_do_not_matter(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(1, lane)
    assert len((await world.claim(busy={new_id(): 3})).deliveries) == 1


async def test_rows_that_another_session_holds_are_passed_over_without_waiting(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    held, free = await world.owe(2, lane)
    async with world.database.transaction() as connection:
        await connection.execute("select from deliveries where receipt_id = $1 for update", held)
        async with asyncio.timeout(10):
            assert [each.receipt_id for each in (await world.claim()).deliveries] == [free]


async def claim_all(dsn: str, start: asyncio.Event, everyone_is_done: list[int], lanes: int) -> Counter[UUID]:
    """Claim, on a pool of its own, until nothing is left for anybody."""
    database = await Database.connect(dsn, name="claimer", size=1, commits=Commits.LAZY)
    world = World.over(database)
    claimed: Counter[UUID] = Counter()
    after = FIRST_LANE
    try:
        await start.wait()
        while everyone_is_done[0] < lanes:
            claim = await world.claim(after=after, batch=7)
            claimed.update(each.id for each in claim.deliveries)
            everyone_is_done[0] += len(claim.deliveries)
            after = claim.resume_after
    finally:
        await database.close()
    return claimed


async def test_nothing_is_claimed_twice_however_many_claim_at_once(world: World, database_dsn: str) -> None:
    lanes = await world.add_endpoints(10)
    await world.owe(60, *lanes)
    start, claimed_so_far = asyncio.Event(), [0]
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        claimers = [tasks.create_task(claim_all(database_dsn, start, claimed_so_far, 600)) for _ in range(6)]
        start.set()
    claimed = sum((claimer.result() for claimer in claimers), Counter[UUID]())
    assert len(claimed) == 600
    assert set(claimed.values()) == {1}
    assert await world.value("select count(distinct lease_token) from deliveries") > 6


async def test_a_claim_signs_with_the_previous_secret_as_long_as_the_databases_clock_says(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(3, lane)
    before = await world.claim_one()
    await world.endpoints.rotate_secret(
        TENANT, lane, secret_id=new_id(), secret=Secret("whsec_two"), overlap_seconds=3600
    )
    during = await world.claim_one()
    await world.sql("update endpoints set previous_secret_expires_at = now() - interval '1 millisecond'")
    after = await world.claim_one()
    assert [each.sign_with_previous for each in (before, during, after)] == [False, True, False]


async def test_a_claim_names_the_endpoints_newest_revision(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(2, lane)
    before = await world.claim_one()
    await world.endpoints.update(TENANT, lane, lambda config: replace(config, url="http://127.0.0.1/other"))
    after = await world.claim_one()
    assert after.endpoint_revision == before.endpoint_revision + 1


async def test_an_event_of_a_day_without_a_partition_is_claimed_with_its_payload(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.append(event(to=(lane,), receipt=new_id(unix_ms=1_000_000_000_000), payload=b"old"))
    assert (await world.claim_one()).payload == b"old"


async def test_the_next_due_time_is_none_where_nothing_is_pending(world: World) -> None:
    assert await world.queue.seconds_to_next_due() is None


async def test_the_next_due_time_is_the_earliest_of_the_open_lanes(world: World) -> None:
    lanes = await world.add_endpoints(4)
    for lane, due_in in zip(lanes, (30.0, 20.0, 10.0, 40.0), strict=True):
        await world.owe(2, lane)
        due = "update deliveries set due_at = now() + $2 * interval '1 second' where endpoint_id = $1"
        await world.sql(due, lane, due_in)
    await world.endpoints.set_state(TENANT, lanes[2], EndpointState.PAUSED)
    seconds = await world.queue.seconds_to_next_due()
    assert seconds is not None
    assert 15 < seconds <= 20


async def test_a_held_lane_is_due_when_its_hold_is_over(world: World) -> None:
    """Else a claimer would ask again and again for what it may not have."""
    (lane,) = await world.add_endpoints(1)
    await world.owe(1, lane)
    await world.sql("update endpoint_state set held_until = now() + interval '30 seconds'")
    seconds = await world.queue.seconds_to_next_due()
    assert seconds is not None
    assert 25 < seconds <= 30


async def test_a_lane_that_is_full_here_is_not_due(world: World) -> None:
    full, other = await world.add_endpoints(2, max_in_flight=3)
    await world.owe(4, full)
    assert await world.queue.seconds_to_next_due(allowed({full: 3})) is None
    overdue = await world.queue.seconds_to_next_due(allowed({full: 2, other: 3}))
    assert overdue is not None
    assert overdue <= 0


async def test_whenever_something_is_overdue_a_round_of_claims_finds_it(world: World) -> None:
    """What ends a claimer's rest is what a claim takes: one rule, asked twice."""
    lanes = await world.add_endpoints(6, max_in_flight=2)
    await world.owe(3, *lanes)
    await world.endpoints.set_state(TENANT, lanes[0], EndpointState.PAUSED)
    await world.endpoints.remove(TENANT, lanes[1])
    await world.sql("update endpoint_state set held_until = now() + interval '1 hour' where endpoint_id = $1", lanes[2])
    await world.sql("update deliveries set due_at = now() + interval '1 hour' where endpoint_id = $1", lanes[3])
    busy = {lanes[4]: 2}
    assert lanes_of((await world.claim(busy=busy)).deliveries) == {lanes[5]: 2}
    busy[lanes[5]] = 2
    assert (await world.claim(busy=busy)).deliveries == ()
    seconds = await world.queue.seconds_to_next_due(allowed(busy))
    assert seconds is not None
    assert seconds > 3_500
