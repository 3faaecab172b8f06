"""Narrow claims: what they take, and what they pass over where nothing can be cleaned away."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from relay.store import statements
from relay.store.database import _SESSION
from relay.store.queue import FIRST_LANE, UNBOUNDED, Claim
from tests.store import bulk
from tests.store.world import World, attempt, new_id

TAKEN = 20_000


async def narrow(world: World, *, after: UUID = FIRST_LANE, batch: int = 100) -> Claim:
    return await world.queue.claim_due(after=after, batch=batch, token=new_id(), lease_seconds=60.0, narrow=True)


async def test_a_narrow_claim_takes_what_is_due_in_lanes_that_nobody_has_looked_at(world: World) -> None:
    lanes = await world.add_endpoints(3)
    await world.owe(4, *lanes)
    assert len((await narrow(world)).deliveries) == 12
    assert (await narrow(world)).deliveries == ()


async def test_a_narrow_claim_takes_what_has_come_since_the_last_look(world: World) -> None:
    lane = await world.add_endpoint()
    await world.owe(3, lane)
    await world.record(*(attempt(each) for each in (await world.claim()).deliveries))
    await world.owe(2, lane)
    assert len((await narrow(world)).deliveries) == 2


async def test_narrow_claims_go_from_lane_to_lane_and_around(world: World) -> None:
    """Endpoints with nothing to get are among the lanes."""
    lanes = await world.add_endpoints(5)
    await world.owe(1, lanes[1], lanes[3])
    first = await narrow(world, batch=1)
    assert [each.endpoint_id for each in first.deliveries] == [lanes[1]]
    second = await narrow(world, after=first.resume_after, batch=1)
    assert [each.endpoint_id for each in second.deliveries] == [lanes[3]]
    last = await narrow(world, after=lanes[2])
    assert last.deliveries == ()
    assert last.came_around


async def test_what_was_handed_back_is_seen_by_the_next_narrow_claim(world: World) -> None:
    """It is due since long before that lane was last looked at."""
    await world.owe(2, await world.add_endpoint())
    await world.sql(
        "update deliveries set due_at = now() - interval '1 hour'"
        " where id = (select id from deliveries order by id limit 1)"
    )
    early, late = sorted((await world.claim()).deliveries, key=lambda each: each.id)
    await world.record(attempt(late))
    await world.sql("update endpoint_state set looked_from = now()")
    await world.queue.hand_back([(early.id, early.lease_token)])
    assert [each.id for each in (await narrow(world)).deliveries] == [early.id]


async def test_a_wide_claim_finds_what_a_narrow_one_misses_and_the_next_narrow_one_looks_from_there(
    world: World,
) -> None:
    lane = await world.add_endpoint()
    await world.owe(2, lane)
    await world.sql("update deliveries set due_at = now() - interval '1 hour'")
    await world.sql("update endpoint_state set looked_from = now()")
    assert (await narrow(world)).deliveries == ()
    assert len((await world.claim(batch=1)).deliveries) == 1
    assert len((await narrow(world)).deliveries) == 1


@pytest.fixture
async def pinned(world: World, database_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A session as claims have them, beside a transaction that keeps a snapshot from before everything was taken."""
    async with world.database.connection() as connection:
        lanes = await bulk.add_lanes(connection, 10)
        await bulk.owe(connection, TAKEN + 1000, lanes)
        await connection.execute("update endpoint_state set looked_from = now() - interval '2 hours'")
        await bulk.analyze(connection)
    holder, session = await asyncpg.connect(database_dsn), await asyncpg.connect(database_dsn, server_settings=_SESSION)
    await holder.execute("begin isolation level repeatable read; select 1")
    await holder.execute("select count(*) from tenants")
    await session.execute(
        "update deliveries set status = 'delivered', acked_at = now()"
        " where id in (select id from deliveries order by due_at limit $1)",
        TAKEN,
    )
    yield session
    for each in (session, holder):
        await each.close()


async def blocks_of_a_claim(session: asyncpg.Connection, *, narrow: bool) -> int:
    """How many blocks one touches that takes three hundred rows; it is undone."""
    async with session.transaction():
        answer = await session.fetchval(
            f"explain (analyze, buffers, format json) {statements.text('claim_due')}",
            FIRST_LANE, 300, new_id(), 60.0, [], [], [], UNBOUNDED, UNBOUNDED, [], True, 10.0, 5.0, narrow, None,
        )  # fmt: skip # the arguments of one call
        top = json.loads(answer)[0]["Plan"]
        assert top["Actual Rows"] == 300
        await session.execute("update endpoint_state set looked_from = now()")
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


async def test_a_narrow_claim_costs_no_more_for_what_was_taken_before_and_cannot_be_cleaned_away(
    pinned: asyncpg.Connection,
) -> None:
    """A wide one passes over all of it, twice."""
    wide = await blocks_of_a_claim(pinned, narrow=False)
    first_left = await pinned.fetchval("select min(due_at) from deliveries where status = 'pending'")
    await pinned.execute("update endpoint_state set looked_from = $1", first_left)
    narrow = await blocks_of_a_claim(pinned, narrow=True)
    assert narrow < 300 * 25
    assert wide - narrow > TAKEN / 4


async def test_a_claim_costs_no_more_for_the_versions_of_its_lanes_that_an_old_snapshot_keeps(
    pinned: asyncpg.Connection,
) -> None:
    """Each claim leaves one, and nobody may remove them meanwhile: as many here as some hundred claims a second leave
    in two minutes."""
    first_left = await pinned.fetchval("select min(due_at) from deliveries where status = 'pending'")
    await pinned.execute("update endpoint_state set looked_from = $1", first_left)
    few = await blocks_of_a_claim(pinned, narrow=True)
    await pinned.execute(
        "do $$ begin for version in 1..3000 loop"
        " update endpoint_state set tokens = version, looked_from = looked_from,"
        " claimed_second = claimed_second(claimed_second, now() + version / 25 * interval '1 second'); commit;"
        " end loop; end $$"
    )
    await pinned.execute("update endpoint_state set looked_from = $1", first_left)
    assert await pinned.fetchval("select pg_relation_size('endpoint_state') / 8192") > 300
    assert await blocks_of_a_claim(pinned, narrow=True) - few < 500


async def test_a_claim_looks_from_what_it_took_last_where_nothing_can_come_late(world: World) -> None:
    """What has been due for long is committed. What is new may have an elder that is not, yet."""
    old, new = await world.add_endpoints(2)
    await world.owe(3, old, new)
    await world.sql("update deliveries set due_at = now() - interval '1 hour' where endpoint_id = $1", old)
    assert len((await world.claim()).deliveries) == 6
    seen = "select looked_from from endpoint_state where endpoint_id = $1"
    assert await world.value(seen, old) == await world.value(
        "select max(due_at) from deliveries where endpoint_id = $1", old
    )
    first = await world.value("select min(due_at) from deliveries where endpoint_id = $1", new)
    assert await world.value(seen, new) == first - timedelta(seconds=1)


BEGUN = (
    "update deliveries set status = 'in_flight', lease_token = gen_random_uuid(), lease_until = now(),"
    " claimed_at = now(), acked_at = null"
)
ENDED = "update deliveries set status = 'delivered', lease_token = null, lease_until = null, acked_at = now()"


async def test_whether_a_lane_is_full_is_known_without_passing_over_what_was_under_way(
    pinned: asyncpg.Connection,
) -> None:
    lane = await pinned.fetchval("select endpoint_id from deliveries order by due_at limit 1")
    await pinned.execute(f"{BEGUN} where endpoint_id = $1 and status = 'delivered'", lane)
    await pinned.execute(f"{ENDED} where endpoint_id = $1 and status = 'in_flight'", lane)
    newest = await pinned.fetchval("select id from deliveries where endpoint_id = $1 order by id desc limit 1", lane)
    await pinned.execute(f"{BEGUN} where id = $1", newest)
    await pinned.execute("update endpoint_state set full_at = now()")
    asked = "select is_full(s) from endpoint_state s where s.endpoint_id = $1"
    assert await pinned.fetchval(asked, lane)
    top = json.loads(await pinned.fetchval(f"explain (analyze, buffers, format json) {asked}", lane))[0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 50
