"""What is ready to be announced, and who may announce it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from relay.domain.endpoint import EndpointConfig
from relay.store import announcing
from relay.store.announcing import Announcing, Leadership, Look
from relay.store.database import Database
from relay.store.faults import StoreUnavailable
from relay.store.queue import FIRST_LANE
from tests.store.world import WIDE, World


@pytest.fixture
async def announcers(database_dsn: str) -> AsyncIterator[list[Announcing]]:
    """Two processes that want to announce."""
    pools = [await Database.connect(database_dsn, name=f"announces {number}", size=1) for number in range(2)]
    yield [Announcing(pool) for pool in pools]
    for pool in pools:
        await pool.close()


@pytest.fixture
async def lead(announcers: list[Announcing]) -> AsyncIterator[Leadership]:
    async with announcers[0].leading() as leadership:
        assert leadership is not None
        yield leadership


async def look(lead: Leadership, after: UUID = FIRST_LANE) -> Look:
    return await lead.look(after=after, most_of_a_lane=50)


async def seen(lead: Leadership) -> dict[UUID, int]:
    """How much of each lane is ready."""
    return {lane.endpoint_id: len(lane.rows) for lane in (await look(lead)).lanes}


async def test_one_process_leads_and_another_one_after_it(announcers: list[Announcing]) -> None:
    first, second = announcers
    async with first.leading() as leads, second.leading() as waits:
        assert (leads is not None, waits) == (True, None)
    async with second.leading() as leads:
        assert leads is not None


async def test_a_leader_that_says_nothing_loses_the_lock(
    announcers: list[Announcing], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does whose process stands still."""
    monkeypatch.setattr(announcing, "SILENT_SECONDS", 0.2)
    first, second = announcers

    async def lead_in_silence() -> None:
        async with first.leading() as leads:
            assert leads is not None
            await succeeded(second)
            await look(leads)

    with pytest.raises(StoreUnavailable):
        await lead_in_silence()


async def succeeded(second: Announcing) -> None:
    """Return once the second one leads."""
    async with asyncio.timeout(10):
        while True:
            async with second.leading() as successor:
                if successor is not None:
                    return


async def test_of_an_open_lane_what_it_may_take_now_is_ready(world: World, lead: Leadership) -> None:
    (lane,) = await world.add_endpoints(1, max_in_flight=2)
    await world.owe(9, lane)
    await world.sql("update deliveries set due_at = now() - random() * interval '1 hour'")
    rows = await world.sql("select id from deliveries order by due_at limit 4")
    assert [row for row, _ in (await look(lead)).lanes[0].rows] == [row[0] for row in rows]


@pytest.mark.parametrize(("dispatchers", "ready"), [(0, 4), (1, 4), (3, 12)])
async def test_of_an_open_lane_what_each_dispatcher_that_is_there_may_take_is_ready(
    world: World, lead: Leadership, dispatchers: int, ready: int
) -> None:
    (lane,) = await world.add_endpoints(1, max_in_flight=2)
    await world.owe(20, lane)
    await world.sql(
        "insert into heartbeats (process, kind, reported_at)"
        " select gen_random_uuid(), 'dispatcher', now() from generate_series(1, $1) union all"
        " select gen_random_uuid(), 'dispatcher', now() - interval '1 minute' union all"
        " select gen_random_uuid(), 'gateway', now()",
        dispatchers,
    )
    assert await seen(lead) == {lane: ready}


async def test_a_lane_in_doubt_has_one_ready(world: World, lead: Leadership) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(3, lane)
    await world.sql("update endpoint_state set answered_at = null")
    assert [(each.is_doubtful, len(each.rows)) for each in (await look(lead)).lanes] == [(True, 1)]


async def test_a_lane_with_a_rate_has_no_more_ready_than_tokens(world: World, lead: Leadership) -> None:
    lane = await world.add_endpoint(EndpointConfig(name="slow", url=WIDE.url, rate_per_second=0.001, burst=3))
    await world.owe(9, lane)
    assert await seen(lead) == {lane: 3}


async def test_of_a_closed_lane_nothing_is_ready(world: World, lead: Leadership) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(3, lane)
    await world.sql("update endpoints set status = 'paused'")
    seen_now = await look(lead)
    assert ([len(each.rows) for each in seen_now.lanes], seen_now.is_unmarked) == ([0], True)


async def test_what_is_delayed_is_not_ready(world: World, lead: Leadership) -> None:
    """C126."""
    (lane,) = await world.add_endpoints(1)
    await world.owe(3, lane)
    await world.sql("update deliveries set due_at = now() + interval '2 hours'")
    assert await seen(lead) == {lane: 0}
    assert await lead.seconds_to_next_due() == pytest.approx(7200, abs=60)


async def test_a_lane_that_was_closed_meanwhile_says_so(world: World, lead: Leadership) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(1, lane)
    before = (await look(lead)).lanes[0].closings
    await world.sql("update endpoint_state set held_until = now() - interval '1 second'")
    assert (await look(lead)).lanes[0].closings != before


async def test_a_delivery_that_was_claimed_meanwhile_says_so(world: World, lead: Leadership) -> None:
    (lane,) = await world.add_endpoints(1)
    await world.owe(1, lane)
    (before,) = (await look(lead)).lanes[0].rows
    claimed = await world.claim_one()
    await world.queue.hand_back([(claimed.id, claimed.lease_token)])
    assert (await look(lead)).lanes[0].rows == ((before[0], claimed.claimed_at),)


async def test_lanes_by_the_hundred_are_seen_part_by_part(world: World, lead: Leadership) -> None:
    lanes = await world.add_endpoints(announcing.MOST_OPEN_LANES + 6)
    await world.owe(1, *lanes)
    first = await look(lead)
    second = await look(lead, first.resume_after)
    assert (len(first.lanes), len(second.lanes)) == (announcing.MOST_OPEN_LANES, 6)
    assert (first.resume_after, second.resume_after) == (first.lanes[-1].endpoint_id, FIRST_LANE)


async def test_lanes_in_doubt_do_not_count_among_the_open_ones_of_a_look(world: World, lead: Leadership) -> None:
    """However many hang, a round of looks is as few as for closed ones."""
    lanes = await world.add_endpoints(announcing.MOST_OPEN_LANES + 6)
    await world.owe(1, *lanes)
    await world.sql("update endpoint_state set answered_at = null where endpoint_id <> $1", lanes[-1])
    seen_now = await look(lead)
    assert ([len(each.rows) for each in seen_now.lanes], seen_now.resume_after) == ([1] * len(lanes), FIRST_LANE)
