"""Claims about the database connections that all processes together may open."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import httpx
import pytest

from relay.app.connections import MOST, SPARE, check_connections, of_everything, of_server
from relay.app.faults import CannotRun
from relay.embedded import running_dsn
from relay.settings import Settings, read
from relay.store.database import Database
from tests.support.installation import START_SECONDS, Installation, Service, add_endpoint, eventually, post

RESERVED = 3
"""What PostgreSQL keeps for superusers."""


def settings(workers: int, pool: int) -> Settings:
    return read({"RELAY_WORKERS": str(workers), "RELAY_DATABASE_POOL": str(pool)})


@pytest.mark.parametrize(("workers", "pool"), [*itertools.product([1, 2, 5, 6, 8, 16, 64], [6, 9, 12, 100, 1000])])
def test_an_embedded_server_has_a_connection_for_every_place_in_every_pool_or_is_not_started(
    workers: int, pool: int
) -> None:
    asked = settings(workers, pool)
    if of_everything(asked) * 1.25 > MOST - SPARE:
        with pytest.raises(CannotRun, match="set DATABASE_URL"):
            of_server(asked)
    else:
        assert of_everything(asked) + RESERVED < of_server(asked) <= MOST


def test_the_defaults_of_any_number_of_workers_fit() -> None:
    assert all(of_server(settings(workers, 8)) for workers in range(1, 65))


async def test_as_many_as_the_server_allows_are_allowed_and_not_one_more(database: Database) -> None:
    async with database.connection() as connection:
        allowed = int(await connection.fetchval("show max_connections")) - RESERVED
    await check_connections(database, allowed, settings(1, 8))
    with pytest.raises(CannotRun, match=rf"allows {allowed} by its max_connections.*raise that"):
        await check_connections(database, allowed + 1, settings(1, 8))


@pytest.fixture
def outside(tmp_path: Path, database_dsn: str) -> Iterator[Installation]:
    """An installation whose database is not its own."""
    installation = Installation(tmp_path, database_dsn)
    try:
        yield installation
    finally:
        installation.close()


def refused(service: Service) -> str:
    """The one line that a service leaves that does not start."""
    assert service.wait(START_SECONDS) == 1
    (line,) = service.log.read_text().splitlines()
    return line


@pytest.mark.parametrize("kind", ["gateway", "dispatcher"])
def test_a_service_that_may_ask_for_more_than_the_server_allows_does_not_start(
    outside: Installation, kind: str
) -> None:
    line = refused(getattr(outside, kind)(workers="2", database_pool="150"))
    assert "RELAY_WORKERS at 2 and RELAY_DATABASE_POOL at 150, 300 database connections may be open at once" in line
    assert "max_connections" in line


def test_up_counts_the_workers_of_both_kinds(outside: Installation) -> None:
    assert "200 database connections" in refused(outside.up(database_pool="100"))
    assert outside.processes() == []


async def test_eight_workers_of_each_kind_have_their_connections_and_deliver(alone: Installation) -> None:
    service = alone.up("--dev", "--workers", "8")
    assert service.started
    assert len(service.workers()) == 8
    dsn = running_dsn(alone.folder / "data")
    assert dsn is not None
    add_endpoint(service, f"{service.started['receiver']}/ok")
    posts = [asyncio.to_thread(post, service, b'{"type": "a.type"}') for _ in range(64)]
    assert {reply.status_code for reply in await asyncio.gather(*posts)} == {202}
    connection = await asyncpg.connect(dsn)
    try:

        async def all_closed() -> bool:
            return bool(await connection.fetchval("select count(*) = 64 from receipts where outcome = 'delivered'"))

        await eventually(all_closed, START_SECONDS, "every receipt closes")
        await fill(connection, dsn, of_everything(settings(8, 8)))
    finally:
        await connection.close()
    async with httpx.AsyncClient(base_url=service.url, trust_env=False) as client:
        assert (await client.get("/readyz")).status_code == 200


async def fill(connection: asyncpg.Connection, dsn: str, number: int) -> None:
    """Open connections until there are as many as all pools may have."""
    there = int(await connection.fetchval("select count(*) from pg_stat_activity where usename = session_user"))
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(number - there):
            stack.push_async_callback((await asyncpg.connect(dsn)).close)
