"""Claims rotate: every lane gets its turn, whatever the others hold, and whether or not deliveries are named by id."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from relay.domain.outcome import DeferralReason
from relay.store.queue import FIRST_LANE, Claim
from tests.store import bulk
from tests.store.world import World, lanes_of

OPEN_LANES = 64
"""How many open lanes one claim visits."""

LANES = 512
"""How many lanes of any kind one claim visits."""


async def add_lanes(world: World, number: int, *, max_in_flight: int = 5_000) -> list[UUID]:
    """So many lanes, in order."""
    async with world.database.connection() as connection:
        return await bulk.add_lanes(connection, number, max_in_flight=max_in_flight)


async def owe(world: World, rows: int, lanes: list[UUID], *, last_lanes_share: float = 0.0) -> None:
    """So many deliveries, due now, to these lanes in turn."""
    async with world.database.connection() as connection:
        await bulk.owe(connection, rows, lanes, last_lanes_share=last_lanes_share)


either_way = pytest.mark.parametrize("by_ids", [False, True], ids=["of everything", "of what was announced"])
"""A claim of everything, and one of everything that is pending, by its ids."""


async def one_claim(world: World, by_ids: bool, **how: Any) -> Claim:
    """One claim, by the ids of all that is pending if so."""
    if not by_ids:
        return await world.claim(**how)
    rows = await world.sql("select id from deliveries where status = 'pending'")
    return await world.claim(announced=[row[0] for row in rows], **how)


async def claims(world: World, *, batch: int, by_ids: bool = False) -> AsyncIterator[Claim]:
    """Claims, each going on where the last one ended, until a claim that saw every lane took nothing."""
    claim = await one_claim(world, by_ids, batch=batch)
    while claim.deliveries or claim.resume_after != FIRST_LANE:
        yield claim
        claim = await one_claim(world, by_ids, after=claim.resume_after, batch=batch)


async def test_a_lane_with_ten_thousand_due_does_not_delay_ninety_nine_with_ten(world: World) -> None:
    lanes = await add_lanes(world, 100)
    crowded = lanes.pop(50)
    await owe(world, 990, lanes)
    await owe(world, 10_000, [crowded])
    claimed: Counter[UUID] = Counter()
    async for claim in claims(world, batch=100):
        claimed.update(lanes_of(claim.deliveries))
        if sum(claimed[lane] for lane in lanes) == 990:
            break
    assert {claimed[lane] for lane in lanes} == {10}
    assert claimed[crowded] <= 2 * 10


@pytest.mark.parametrize(
    ("batch", "number", "by_ids"),
    [
        *itertools.product([1, 7, 50, 64, 65, 100, 300, 1_000], [3, 65, 100], [False]),
        *[(7, 3, True), (50, 65, True), (100, 100, True)],
    ],
)
async def test_every_lane_gets_its_turn_whatever_the_size_of_the_batch(
    world: World, batch: int, number: int, by_ids: bool
) -> None:
    lanes = await add_lanes(world, number)
    await owe(world, 3_000, lanes)
    claimed: Counter[UUID] = Counter()
    async for claim in claims(world, batch=batch, by_ids=by_ids):
        claimed.update(lanes_of(claim.deliveries))
        assert len(claim.deliveries) == batch
        if sum(claimed.values()) >= 10 * number or sum(claimed.values()) > 1_500:
            break
    a_turn = -(-batch // min(number, OPEN_LANES))
    assert max(claimed[lane] for lane in lanes) - min(claimed[lane] for lane in lanes) <= 2 * a_turn


@either_way
async def test_a_batch_is_shared_equally_among_the_open_lanes(world: World, by_ids: bool) -> None:
    lanes = await add_lanes(world, 4)
    await owe(world, 400, lanes)
    assert lanes_of((await one_claim(world, by_ids, batch=100)).deliveries) == dict.fromkeys(lanes, 25)


@either_way
async def test_a_full_batch_goes_on_behind_the_lane_that_filled_it(world: World, by_ids: bool) -> None:
    lanes = await add_lanes(world, 10)
    await owe(world, 100, lanes)
    claim = await one_claim(world, by_ids, batch=3)
    assert lanes_of(claim.deliveries) == dict.fromkeys(lanes[:3], 1)
    assert claim.resume_after == lanes[2]


@either_way
async def test_a_claim_goes_on_around_the_end_of_the_lanes(world: World, by_ids: bool) -> None:
    lanes = await add_lanes(world, 4)
    await owe(world, 400, lanes)
    claim = await one_claim(world, by_ids, after=lanes[2], batch=3)
    assert lanes_of(claim.deliveries) == dict.fromkeys([lanes[3], lanes[0], lanes[1]], 1)
    assert (claim.resume_after, claim.came_around) == (lanes[1], True)


@either_way
async def test_a_claim_visits_the_lane_it_starts_behind_at_last(world: World, by_ids: bool) -> None:
    lanes = await add_lanes(world, 4)
    await owe(world, 400, lanes)
    claim = await one_claim(world, by_ids, after=lanes[2], batch=8)
    assert lanes_of(claim.deliveries) == dict.fromkeys(lanes, 2)


@either_way
async def test_a_claim_that_has_seen_every_lane_says_so(world: World, by_ids: bool) -> None:
    lanes = await add_lanes(world, 3)
    await owe(world, 3, lanes)
    for after in (FIRST_LANE, *lanes):
        await world.sql("update deliveries set status = 'pending', lease_token = null")
        claim = await one_claim(world, by_ids, after=after, batch=50)
        assert (len(claim.deliveries), claim.resume_after, claim.came_around) == (3, FIRST_LANE, True)


@either_way
async def test_a_claim_visits_sixty_four_open_lanes_and_the_next_one_goes_on_behind_them(
    world: World, by_ids: bool
) -> None:
    lanes = await add_lanes(world, OPEN_LANES + 10)
    await owe(world, 30 * len(lanes), lanes)
    first = await one_claim(world, by_ids, batch=10 * OPEN_LANES)
    second = await one_claim(world, by_ids, after=first.resume_after, batch=10 * OPEN_LANES)
    assert set(lanes_of(first.deliveries)) == set(lanes[:OPEN_LANES])
    assert (first.resume_after, first.came_around) == (lanes[OPEN_LANES - 1], False)
    assert set(lanes_of(second.deliveries)) == set(lanes[OPEN_LANES:] + lanes[: OPEN_LANES - 10])
    assert (second.resume_after, second.came_around) == (lanes[OPEN_LANES - 11], True)


async def test_lanes_without_anything_due_do_not_count_as_open(world: World) -> None:
    lanes = await add_lanes(world, OPEN_LANES + 10)
    await owe(world, len(lanes), lanes)
    await world.sql(
        "update deliveries set due_at = now() + interval '1 hour' where endpoint_id = any ($1)", lanes[:OPEN_LANES]
    )
    claim = await world.claim(batch=1_000)
    assert set(lanes_of(claim.deliveries)) == set(lanes[OPEN_LANES:])


async def test_closed_lanes_are_passed_over_five_hundred_and_twelve_at_a_time(world: World) -> None:
    lanes = await add_lanes(world, LANES + 20)
    await owe(world, len(lanes), lanes)
    await world.sql("update endpoints set status = 'paused' where id = any ($1)", lanes[:-5])
    first = await world.claim(batch=100)
    assert first == Claim((), lanes[LANES - 1], came_around=False, found_closed=first.found_closed)
    assert [gate for _, gate in first.found_closed] == [DeferralReason.PAUSED] * LANES
    second = await world.claim(after=first.resume_after, batch=100)
    assert set(lanes_of(second.deliveries)) == set(lanes[-5:])
    assert second.came_around


async def test_where_more_lanes_are_closed_than_a_claim_visits_it_still_tells_that_it_came_around(world: World) -> None:
    lanes = await add_lanes(world, 2 * LANES + 20)
    await owe(world, len(lanes), lanes)
    await world.sql("update endpoints set status = 'paused'")
    claim, seen = await world.claim(), []
    for _ in range(6):
        seen.append((lanes.index(claim.resume_after), claim.came_around))
        claim = await world.claim(after=claim.resume_after)
    assert seen == [(511, False), (1023, False), (491, True), (1003, False), (471, True), (983, False)]


async def test_a_round_of_claims_takes_everything_that_is_due_in_open_lanes(world: World) -> None:
    lanes = await add_lanes(world, 2 * LANES)
    await owe(world, 3 * len(lanes), lanes)
    closed = lanes[100:900]
    await world.sql("update endpoints set status = 'paused' where id = any ($1)", closed)
    claimed: Counter[UUID] = Counter()
    empty_rounds, after = 0, FIRST_LANE
    while empty_rounds < 2:
        claim = await world.claim(after=after, batch=300)
        claimed.update(lanes_of(claim.deliveries))
        empty_rounds = 0 if claim.deliveries else empty_rounds + claim.came_around
        after = claim.resume_after
    assert claimed == dict.fromkeys(set(lanes) - set(closed), 3)
