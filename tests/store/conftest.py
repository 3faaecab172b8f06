"""Fixtures of the store's tests."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from itertools import count

import pytest

from relay.store.database import Database
from relay.store.health import Health
from tests.store.world import World
from tests.support.database import Server

_numbers = count(1)


@pytest.fixture
def world(database: Database) -> World:
    """A migrated database and everything that the store does with it."""
    return World.over(database)


@pytest.fixture
def health(world: World) -> Health:
    """What processes tell each other by that database."""
    return Health(world.database)


@pytest.fixture
async def other(database_dsn: str) -> AsyncIterator[Health]:
    """The same as another process sees it."""
    database = await Database.connect(database_dsn, name="other", size=2)
    yield Health(database)
    await database.close()


@pytest.fixture
async def shared_world(shared_dsn: str) -> AsyncIterator[World]:
    """The same over the module's database, for tests that change nothing."""
    pool = await Database.connect(shared_dsn, name="relay-tests", size=1)
    yield World.over(pool)
    await pool.close()


@pytest.fixture
async def empty_dsn(database_server: Server) -> AsyncIterator[str]:
    """The address of a database without any table."""
    name = f"relay_empty_{os.getpid()}_{next(_numbers)}"
    await database_server.run(f"create database {name}")
    yield database_server.dsn(name)
    await database_server.run(f"drop database if exists {name} with (force)")


@pytest.fixture
async def empty(empty_dsn: str) -> AsyncIterator[Database]:
    """A pool of connections to a database without any table."""
    pool = await Database.connect(empty_dsn, name="relay-tests", size=4)
    yield pool
    await pool.close()
