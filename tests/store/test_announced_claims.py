"""The claim by ids: of what was announced it takes what a claim of everything would, and no other delivery."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from relay.domain.endpoint import EndpointConfig
from relay.domain.outcome import DeferralReason, OutcomeClass
from relay.store import statements
from relay.store.database import Database
from relay.store.queue import FIRST_LANE, UNBOUNDED, Allowance
from tests.store.world import WIDE, World, lanes_of, new_id


async def pending(world: World, *lanes: UUID) -> list[UUID]:
    """What is pending for these lanes, first due first."""
    rows = await world.sql(
        "select id from deliveries where status = 'pending' and endpoint_id = any ($1) order by due_at, id", lanes
    )
    return [row[0] for row in rows]


async def taken(world: World, announced: list[UUID], **how: Any) -> set[UUID]:
    """The deliveries that one claim of these took."""
    return {each.id for each in (await world.claim(announced=announced, **how)).deliveries}


async def test_a_claim_of_what_was_announced_takes_that_and_nothing_else(world: World) -> None:
    lanes = await world.add_endpoints(3)
    await world.owe(5, *lanes)
    announced = [each for lane in lanes for each in (await pending(world, lane))[1:4]]
    assert await taken(world, announced) == set(announced)


async def test_an_announcement_of_nothing_claims_nothing(world: World) -> None:
    await world.owe(2, *await world.add_endpoints(1))
    assert await taken(world, []) == set()


async def test_what_is_announced_twice_is_claimed_once(world: World) -> None:
    """C130: double-fed ids do not send twice, since the claim is PostgreSQL's."""
    (lane,) = await world.add_endpoints(1)
    await world.owe(3, lane)
    announced = await pending(world, lane)
    assert await taken(world, announced + announced) == set(announced)
    assert await taken(world, announced) == set()


async def test_a_lost_claim_is_not_left_over(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(1, lane)
    announced = await pending(world, lane)
    await world.claim()
    again = await world.claim(announced=[*announced, new_id()])
    assert (again.deliveries, again.left_over) == ((), {})


async def test_a_delayed_delivery_is_not_claimed_because_it_was_announced(world: World) -> None:
    """C126: whatever a broker still holds of it, what is delayed waits in PostgreSQL."""
    (lane,) = await world.add_endpoints(1)
    await world.owe(1, lane)
    announced = await pending(world, lane)
    await world.sql("update deliveries set due_at = now() + interval '2 hours'")
    claim = await world.claim(announced=announced)
    assert (claim.deliveries, claim.left_over) == ((), {})


async def test_a_lane_that_is_full_here_gives_what_it_has_room_for_and_the_rest_is_left_over(world: World) -> None:
    (lane,) = await world.add_endpoints(1, max_in_flight=5)
    await world.owe(6, lane)
    announced = await pending(world, lane)
    claim = await world.claim(announced=announced, busy={lane: 3})
    assert len(claim.deliveries) == 2
    assert claim.left_over == dict.fromkeys(announced[2:], lane)


async def test_tokens_are_paid_for_what_was_announced_and_the_rest_is_left_over(world: World) -> None:
    lane = await world.add_endpoint(EndpointConfig(name="slow", url=WIDE.url, rate_per_second=0.001, burst=2))
    await world.owe(3, lane)
    announced = await pending(world, lane)
    first = await world.claim(announced=announced)
    again = await world.claim(announced=list(first.left_over))
    assert (len(first.deliveries), again.deliveries, list(again.left_over)) == (2, (), announced[2:])


async def test_what_was_announced_of_lanes_that_were_not_reached_is_left_over(world: World) -> None:
    """A claim visits sixty-four open lanes, and a batch may be full before the last one of them."""
    lanes = await world.add_endpoints(70)
    await world.owe(1, *lanes)
    announced = await pending(world, *lanes)
    claim = await world.claim(announced=announced, batch=10)
    assert lanes_of(claim.deliveries) == dict.fromkeys(sorted(lanes)[:10], 1)
    assert set(claim.left_over) == set(announced) - {each.id for each in claim.deliveries}


@pytest.mark.parametrize(
    "closing",
    [
        "update endpoints set status = 'paused'",
        "update endpoint_state set held_until = now() + interval '1 minute', held_reason = 'retry_after'",
        "update endpoint_state set breaker = 'open', cooldown_until = now() + interval '1 minute'",
        "update endpoints set removed_at = now()",
    ],
    ids=["paused", "held", "breaker", "removed"],
)
async def test_a_closed_lane_gives_nothing_and_leaves_nothing_over(world: World, closing: str) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(2, lane)
    await world.sql(closing)
    claim = await world.claim(announced=await pending(world, lane))
    assert (claim.deliveries, claim.left_over) == ((), {})


async def test_a_lane_that_has_cooled_down_gives_one_announced_row_as_its_probe(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(3, lane)
    await world.sql("update endpoint_state set breaker = 'open', cooldown_until = now() - interval '1 second'")
    claim = await world.claim(announced=(await pending(world, lane))[1:])
    state = (await world.sql("select breaker::text, probe_token from endpoint_state"))[0]
    assert len(claim.deliveries) == 1
    assert tuple(state) == ("half_open", claim.deliveries[0].lease_token)


async def test_a_wait_behind_a_gate_is_on_record_when_what_was_announced_is_claimed(world: World) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(1, lane)
    announced = await pending(world, lane)
    hold = "update endpoint_state set held_until = now() + $1 * interval '1 second', held_reason = 'retry_after'"
    await world.sql(hold, 60.0)
    assert [reason for _, reason in (await world.claim()).found_closed] == [DeferralReason.RETRY_AFTER]
    await world.sql("update endpoint_state set found_closed_at = found_closed_at - interval '5 seconds'")
    await world.sql("update deliveries set due_at = due_at - interval '9 seconds'")
    await world.sql(hold, -1.0)
    claim = await world.claim(announced=announced)
    classes = await world.sql("select outcome_class::text from delivery_attempts")
    assert (len(claim.deliveries), [row[0] for row in classes]) == (1, [OutcomeClass.DEFERRED])


async def test_what_somebody_else_has_locked_is_left_over(world: World, database: Database) -> None:
    lane, other = await world.add_endpoints(2)
    await world.owe(1, lane, other)
    announced = await pending(world, lane, other)
    async with database.transaction() as connection:
        await connection.execute("select from endpoint_state where endpoint_id = $1 for update", lane)
        claim = await world.claim(announced=announced)
    assert [each.endpoint_id for each in claim.deliveries] == [other]
    assert list(claim.left_over.values()) == [lane]


async def test_claims_by_ids_do_not_make_narrow_ones_miss_what_lies_before(world: World) -> None:
    """The rows that were announced lie behind one that was not; where narrow claims begin must stay before that."""
    (lane,) = await world.add_endpoints(1)
    await world.owe(2, lane)
    first, second = await pending(world, lane)
    await world.sql("update deliveries set due_at = due_at - interval '1 hour' where id = $1", first)
    assert await taken(world, [second]) == {second}
    claim = await world.queue.claim_due(after=FIRST_LANE, batch=9, token=new_id(), lease_seconds=60, narrow=True)
    assert [each.id for each in claim.deliveries] == [first]


async def test_a_claim_of_what_was_announced_looks_at_nothing_else(world: World) -> None:
    """However deep the lanes are."""
    (lane,) = await world.add_endpoints(1)
    for _ in range(5):
        await world.owe(400, lane)
    announced = (await pending(world, lane))[-20:]
    everything = Allowance()
    async with world.database.connection() as connection:
        answer = await connection.fetchval(
            f"explain (analyze, buffers, format json) {statements.text('claim_due')}",
            FIRST_LANE, 100, new_id(), 60.0, everything.lanes, everything.busy, everything.windows, UNBOUNDED,
            UNBOUNDED, [], True, 10.0, 5.0, False, announced,
        )  # fmt: skip # the arguments of one call
    top = json.loads(answer)[0]["Plan"]
    assert top["Actual Rows"] == 20
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 20 * 80
