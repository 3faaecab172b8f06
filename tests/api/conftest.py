"""Fixtures of the API's tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.api.world import World
from tests.support.database import TEMPLATE, Server


@pytest.fixture
async def world(database_dsn: str) -> AsyncIterator[World]:
    """The API and a gateway over a fresh database."""
    async with World.over(database_dsn) as made:
        yield made


@pytest.fixture(scope="module")
def shared_dsn(database_server: Server) -> Iterator[str]:
    """A database for all tests of a module: making one takes longer than most of them."""
    name = "relay_test_shared"
    yield asyncio.run(database_server.clone(TEMPLATE, name))
    asyncio.run(database_server.drop(name))


@pytest.fixture
async def shared_world(shared_dsn: str) -> AsyncIterator[World]:
    """The API over the module's database, for tests that do not mind what others leave there."""
    async with World.over(shared_dsn) as made:
        yield made
