"""Claims about a verification as a whole: what it leaves behind, how it ends, and how it keeps its pace."""

from __future__ import annotations

import asyncio
import resource

import pytest

from relay.app.faults import CannotRun
from relay.app.installation import Installation
from relay.app.verification import Pace, verify
from relay.domain.secret import Secret
from relay.store.database import Database
from tests.store import bulk
from tests.store.world import World, event

MEBIBYTE = 1024  # of what the system counts memory in


@pytest.fixture
def installation(database_dsn: str) -> Installation:
    return Installation(Secret(database_dsn), ())


@pytest.fixture
def world(database: Database) -> World:
    return World.over(database)


def nobody(*_: object) -> None:
    """Watches no progress, and hears no note."""


async def test_one_that_came_to_its_end_is_kept(world: World, installation: Installation) -> None:
    await world.append(event())
    assert (await verify(installation, nobody, nobody)).ok
    assert await world.value("select ok and events = 1 and unaccounted = 0 from last_verification")


async def test_one_that_is_interrupted_leaves_nothing(world: World, installation: Installation) -> None:
    await world.append(event())

    def interrupt(_: int, __: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await verify(installation, interrupt, nobody)
    assert await world.rows_in("last_verification") == 0
    await gone(world)


async def test_one_that_is_cancelled_leaves_nothing(world: World, installation: Installation) -> None:
    await world.append(event())
    begun = asyncio.Event()
    walk = asyncio.create_task(verify(installation, lambda *_: begun.set(), nobody))
    await begun.wait()
    walk.cancel()
    with pytest.raises(asyncio.CancelledError):
        await walk
    assert await world.rows_in("last_verification") == 0
    await gone(world)


async def gone(world: World) -> None:
    """Wait until the server has no connection of a verification. Raises `TimeoutError`."""
    async with asyncio.timeout(10):
        while await world.value("select count(*) from pg_stat_activity where application_name = 'relay verify'"):
            pass


async def test_a_database_that_takes_no_writes_is_verified_all_the_same(
    world: World, installation: Installation
) -> None:
    await world.append(event())
    name = await world.value("select current_database()")
    await world.sql(f"alter database {name} set default_transaction_read_only = on")
    noted: list[str] = []
    assert (await verify(installation, nobody, noted.append)).ok
    (note,) = noted
    assert note.startswith("the gauge of unaccounted deliveries keeps its value: the database cannot write")
    assert await world.rows_in("last_verification") == 0


async def test_a_database_that_is_not_migrated_is_refused(world: World, installation: Installation) -> None:
    await world.sql("delete from schema_migrations where number = 1")
    with pytest.raises(CannotRun, match="relay migrate"):
        await verify(installation, nobody, nobody)


async def test_a_long_journal_takes_no_more_memory_than_a_short_one(world: World, installation: Installation) -> None:
    async with world.database.connection() as connection:
        lanes = await bulk.add_lanes(connection, 10)
        await bulk.owe(connection, 20_000, lanes)
    await verify(installation, nobody, nobody)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with world.database.connection() as connection:
        await bulk.owe(connection, 200_000, lanes)
    found = await verify(installation, nobody, nobody)
    assert found.tally.events == 220_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * MEBIBYTE


def test_a_window_grows_while_its_answers_are_quick_and_shrinks_when_they_are_slow() -> None:
    pace = Pace(window=100, least=50, most=300)
    windows = []
    for seconds in (0.01, 0.01, 0.2, 1.0, 1.0, 1.0):
        pace.took(seconds)
        windows.append(pace.window)
    assert windows == [200, 300, 300, 150, 75, 50]
