"""A tenant that moves to another database is there whole or not at all, and is left when nothing comes in any more."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from itertools import count

import pytest

from relay.domain.endpoint import EndpointConfig
from relay.store.database import Connection, Database
from relay.store.journal import Journal, StaleSnapshot
from tests.docs.tree import ROOT
from tests.store.world import KEY_SECONDS, World, event, only
from tests.support.database import TEMPLATE, Server
from tests.support.moving import COPIED, TENANT, copy_tenant, leave_tenant, run_script, script_that_copies

CONFIG = EndpointConfig(name="ledger", url="http://127.0.0.1/", headers={"X-Of": "a\tb\\\\.\n"})
_numbers = count(1)


@pytest.fixture
async def to_dsn(database_server: Server) -> AsyncIterator[str]:
    """The address of the database that the tenant goes to."""
    name = f"relay_moved_to_{os.getpid()}_{next(_numbers)}"
    yield await database_server.clone(TEMPLATE, name)
    await database_server.drop(name)


@pytest.fixture
async def to(to_dsn: str) -> AsyncIterator[World]:
    """The database that the tenant goes to."""
    pool = await Database.connect(to_dsn, name="relay-tests", size=2)
    yield World.over(pool)
    await pool.close()


@pytest.fixture
async def source(world: World, to: World) -> World:
    """The database in which the tenant is: with two endpoints, whose secrets are sealed under a key that both know."""
    await world.add_tenant(TENANT, 3)
    await world.add_endpoint(CONFIG, tenant=TENANT)
    await world.add_endpoint(tenant=TENANT)
    key_id = await world.value("select key_id from secrets limit 1")
    for each in (world, to):
        await each.sql("insert into key_marks (sealed, key_id) values ('x', $1)", key_id)
    return world


async def held(world: World) -> dict[str, int]:
    """How much there is of everything that moves, and how often it changed."""
    tables = ("tenants", "secrets", "endpoints", "endpoint_state", "sources", "keys", "schemas")
    return {**{table: await world.rows_in(table) for table in tables}, "rules": (await world.versions()).rules}


async def leave(connection: Connection) -> None:
    """Run the script that ends the tenant within a transaction of another's."""
    script = re.sub(r"^(--|\\set ).*", "", (ROOT / "ops/shards/leave-tenant.sql").read_text(), flags=re.MULTILINE)
    await connection.execute(script.replace("\\gset", ";").replace(":'tenant'", f"'{TENANT}'"))


async def test_a_tenant_comes_to_the_other_database_as_it_was(
    source: World, to: World, database_dsn: str, to_dsn: str
) -> None:
    assert await asyncio.to_thread(copy_tenant, database_dsn, to_dsn) == COPIED
    assert await to.endpoints.list(TENANT, limit=10) == await source.endpoints.list(TENANT, limit=10)


async def test_a_script_that_is_cut_off_anywhere_leaves_nothing(
    source: World, to: World, database_dsn: str, to_dsn: str
) -> None:
    """To the second half of a pipe, a first half that was killed is one that has ended."""
    script = await asyncio.to_thread(script_that_copies, database_dsn)
    lines = script.splitlines(keepends=True)
    before = await held(to)
    ends = [len("".join(lines[:number])) for number in range(len(lines))]
    for end in sorted({*ends, *(end + len(line) // 2 for end, line in zip(ends[:-1], lines, strict=False))}):
        await asyncio.to_thread(run_script, to_dsn, script[:end])
        assert await held(to) == before, script[:end][-80:]
    assert await asyncio.to_thread(run_script, to_dsn, script) == COPIED


async def test_a_transaction_that_ends_with_the_pipe_is_refused(
    source: World, to: World, database_dsn: str, to_dsn: str
) -> None:
    script = await asyncio.to_thread(script_that_copies, database_dsn)
    before = await held(to)
    assert "cannot run inside a transaction block" in await asyncio.to_thread(run_script, to_dsn, script, "-1")
    assert await held(to) == before


async def test_a_tenant_is_not_left_before_the_appends_that_are_under_way(source: World, database_dsn: str) -> None:
    (endpoint, *_) = await source.endpoints.list(TENANT, limit=10)
    versions = await source.versions()
    async with source.database.transaction() as connection:
        under_way = Journal(only(connection), key_retention_seconds=KEY_SECONDS)
        await under_way.append(versions, [event(to=[endpoint.id], tenant=TENANT, partition=3)])
        leaving = asyncio.create_task(asyncio.to_thread(leave_tenant, database_dsn))
        await source.until_blocked(leaving)
    assert "is still owed deliveries here" in await leaving


async def test_an_append_that_comes_while_its_tenant_is_left_is_stale(source: World) -> None:
    (endpoint, *_) = await source.endpoints.list(TENANT, limit=10)
    versions = await source.versions()
    async with source.database.transaction() as connection:
        await leave(connection)
        late = event(to=[endpoint.id], tenant=TENANT, partition=3)
        appending = asyncio.create_task(source.journal.append(versions, [late]))
        await source.until_blocked(appending)
    with pytest.raises(StaleSnapshot):
        await appending
    assert await source.rows_in("deliveries") == 0
