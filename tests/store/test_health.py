"""What processes tell each other, and what they ask of the server: heartbeats, room, connections, what is owed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from relay.domain.delivery import DeliveryMove
from relay.store.database import Database
from relay.store.faults import StoreUnavailable
from relay.store.health import DISPATCHER, FORGOTTEN_AFTER_SECONDS, GATEWAY, ConnectionsAllowed, Health
from tests.store.world import World, attempt, new_id
from tests.support.database import Server


async def test_a_heartbeat_is_seen_by_its_kind(health: Health, other: Health) -> None:
    assert await other.seconds_since(DISPATCHER) is None
    await health.beat(new_id(), DISPATCHER)
    seconds = await other.seconds_since(DISPATCHER)
    assert seconds is not None
    assert 0 <= seconds < 30
    assert await other.seconds_since(GATEWAY) is None


async def test_the_last_heartbeat_of_any_process_of_the_kind_counts(world: World, health: Health) -> None:
    early, late = new_id(), new_id()
    await health.beat(early, DISPATCHER)
    await world.sql("update heartbeats set reported_at = now() - interval '100 seconds'")
    await health.beat(late, DISPATCHER)
    seconds = await health.seconds_since(DISPATCHER)
    assert seconds is not None
    assert seconds < 30


async def test_a_process_beats_in_one_row(world: World, health: Health) -> None:
    process = new_id()
    for _ in range(3):
        await health.beat(process, DISPATCHER)
    assert await world.rows_in("heartbeats") == 1


async def test_a_process_that_was_silent_for_long_is_forgotten(world: World, health: Health) -> None:
    await health.beat(new_id(), DISPATCHER)
    await world.sql("update heartbeats set reported_at = now() - $1 * interval '1 second'", FORGOTTEN_AFTER_SECONDS + 1)
    await health.beat(new_id(), GATEWAY)
    assert await health.seconds_since(DISPATCHER) is None


async def test_a_database_that_answers_is_told_apart_from_one_that_is_away(health: Health, world: World) -> None:
    await health.writes()
    await world.database.close()
    with pytest.raises(StoreUnavailable):
        await Health(world.database).writes()


async def test_whether_there_is_room_is_found_out_by_writing_to_disk(world: World, health: Health) -> None:
    """A full disk cannot be had here; that it would be met is."""

    async def spilled() -> int:
        await world.sql("select pg_stat_force_next_flush()")
        return int(await world.value("select temp_bytes from pg_stat_database where datname = current_database()"))

    before = await spilled()
    await health.writes()
    async with asyncio.timeout(10):
        while await spilled() < before + 1_000_000:
            pass


async def test_a_bound_on_temporary_files_says_nothing_about_the_disk(database_dsn: str, world: World) -> None:
    await world.sql(f"alter database {urlsplit(database_dsn).path[1:]} set temp_file_limit = 0")
    database = await Database.connect(database_dsn, name="t", size=1)
    async with database.connection() as connection:
        with pytest.raises(asyncpg.ConfigurationLimitExceededError):
            await connection.fetch("select n from generate_series(1, 1000000) n order by hashint4(n)")
    await Health(database).writes()
    await database.close()


@pytest.fixture
async def bounded(database_server: Server, database_dsn: str) -> AsyncIterator[Health]:
    """The same as a role sees it that may open seven connections."""
    await database_server.run("create role bounded login password 'pw' connection limit 7")
    there = urlsplit(database_dsn)
    dsn = there._replace(netloc="bounded:pw@" + there.netloc.rpartition("@")[2]).geturl()
    database = await Database.connect(dsn, name="bounded", size=1)
    yield Health(database)
    await database.close()
    await database_server.run("drop role bounded")


async def test_a_superuser_may_open_what_the_server_has(world: World, health: Health) -> None:
    (row,) = await world.sql("show max_connections")
    reserved = int(await world.value("select current_setting('superuser_reserved_connections')"))
    assert await health.connections_allowed() == ConnectionsAllowed(
        int(row[0]) - reserved, "max_connections (less what it reserves)"
    )


async def test_the_narrowest_limit_of_connections_counts(
    world: World, bounded: Health, database_server: Server
) -> None:
    assert await bounded.connections_allowed() == ConnectionsAllowed(7, "connection limit of our role")
    name = await world.value("select current_database()")
    await database_server.run(f"alter database {name} connection limit 5")
    assert await bounded.connections_allowed() == ConnectionsAllowed(5, "connection limit of that database")


async def test_what_is_owed_is_what_is_pending_or_in_flight(world: World, health: Health) -> None:
    await world.owe(4, await world.add_endpoint())
    acked, received, _ = (await world.claim(batch=3)).deliveries
    await world.record(attempt(acked), attempt(received, DeliveryMove.RECEIVE))
    assert await health.owed() == 3


async def test_what_was_written_is_in_the_log_at_once(world: World, health: Health) -> None:
    """The server is others' as well: what they write is more, never less."""
    before = await health.log()
    for _ in range(3):
        await health.beat(new_id(), DISPATCHER)
    after = await health.log()
    assert after.transactions - before.transactions >= 3
    assert after.bytes - before.bytes > 3 * 50
