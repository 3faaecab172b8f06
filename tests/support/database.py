"""A migrated database for each test, cloned from a template on one real server.

Owns the fixtures that touch PostgreSQL. The server's files are thrown away at the end, so it may skip the disk; the
product never does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from relay.store.database import Database
from relay.store.migrate import migrate
from tests.support.postgres import RELAXED, throwaway_server
from tests.support.run import is_in_memory

_SETTINGS = {**RELAXED, "max_connections": "200", "min_wal_size": "32MB", "max_wal_size": "192MB"}
TEMPLATE = "relay_template"
"""The migrated database that is cloned."""

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server and its superuser's address; `RELAY_TEST_DATABASE_URL` names one to use instead of our own.

    `cloning` is how it clones a database most quickly.
    """

    superuser_dsn: str
    cloning: str = ""

    def dsn(self, database: str) -> str:
        """The same address with another database."""
        parts = urlsplit(self.superuser_dsn)
        return urlunsplit(parts._replace(path=f"/{database}"))

    async def run(self, sql: str) -> None:
        """Run one statement as the superuser, outside of a transaction."""
        connection = await asyncpg.connect(self.superuser_dsn)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    async def clone(self, template: str, name: str, owner: str = "default") -> str:
        """Make a database like another one; answers its address."""
        await self.run(f"create database {name} template {template} owner {owner} {self.cloning}")
        return self.dsn(name)

    async def drop(self, name: str) -> None:
        """Drop a database, whoever uses it."""
        await self.run(f"drop database {name} with (force)")


@pytest.fixture(scope="session")
def database_server() -> Iterator[Server]:
    """One server for the whole session, with a migrated template."""
    given = os.environ.get("RELAY_TEST_DATABASE_URL")
    if given:
        yield from _with_template(Server(given))
        return
    with throwaway_server(_SETTINGS) as server:
        yield from _with_template(Server(server.superuser_dsn, "strategy file_copy" if is_in_memory() else ""))


def _with_template(server: Server) -> Iterator[Server]:
    asyncio.run(server.run(f"drop database if exists {TEMPLATE}"))
    asyncio.run(server.run(f"create database {TEMPLATE}"))
    asyncio.run(_migrate(server.dsn(TEMPLATE)))
    yield server


async def _migrate(dsn: str) -> None:
    database = await Database.connect(dsn, name="relay-tests", size=1)
    try:
        await migrate(database)
    finally:
        await database.close()


@pytest.fixture
async def database_dsn(database_server: Server) -> AsyncIterator[str]:
    """The address of a fresh, migrated database for one test."""
    name = f"relay_test_{os.getpid()}_{next(_numbers)}"
    yield await database_server.clone(TEMPLATE, name)
    await database_server.run(f"drop database if exists {name} with (force)")


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    """A pool of connections to a fresh, migrated database."""
    pool = await Database.connect(database_dsn, name="relay-tests", size=8)
    yield pool
    await pool.close()


@pytest.fixture(scope="module")
def shared_dsn(database_server: Server) -> Iterator[str]:
    """A database for all tests of a module: making one takes longer than most of them."""
    name = "relay_test_shared"
    yield asyncio.run(database_server.clone(TEMPLATE, name))
    asyncio.run(database_server.drop(name))
