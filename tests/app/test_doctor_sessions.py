"""Claims about what `relay doctor` says of who is connected: how many may be, and who holds what Relay waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest

from relay.app.doctor import sessions
from relay.app.doctor.findings import Level
from relay.app.doctor.sessions import examine_connections, examine_locks
from relay.settings import read
from relay.store.database import Database
from tests.app.test_doctor import examined
from tests.store.world import World


@asynccontextmanager
async def connected(dsn: str, *names: str) -> AsyncIterator[None]:
    """Sessions of these names, as processes of Relay have them."""
    async with AsyncExitStack() as stack:
        for name in names:
            session = await asyncpg.connect(dsn, server_settings={"application_name": name})
            stack.push_async_callback(session.close)
        yield


async def told(database: Database, pool: str = "9") -> tuple[Level, str]:
    (found,) = await examine_connections(database, read({"RELAY_DATABASE_POOL": pool}))
    assert found.check == "connections"
    return found.level, found.text


GATEWAY = ("relay gateway wake-ups", "relay gateway appends", "relay gateway appends", "relay gateway checks")
DISPATCHER = ("relay dispatcher wake-ups", "relay dispatcher claims", "relay dispatcher records")


async def test_what_is_there_is_counted_by_process_and_with_what_it_may_open(
    database: Database, database_dsn: str
) -> None:
    async with connected(database_dsn, *GATEWAY, *GATEWAY, *DISPATCHER):
        level, text = await told(database)
    assert level is Level.OK
    assert "2 gateway and 1 dispatcher workers are connected now, and may open 27" in text
    assert "enough for the 18 of a gateway and a dispatcher" in text


async def test_where_those_that_are_there_may_open_more_than_there_is_that_is_a_warning(
    database: Database, database_dsn: str
) -> None:
    """None of them has all that it may have, so nothing has failed yet."""
    async with database.connection() as connection:
        most = await connection.fetchval("select current_setting('max_connections')::integer")
    pool = str(most // 2 - 10)
    assert (await told(database, pool))[0] is Level.OK
    async with connected(database_dsn, *GATEWAY, *DISPATCHER, *DISPATCHER):
        level, text = await told(database, pool)
    assert (level, "1 gateway and 2 dispatcher workers" in text) == (Level.WARNING, True)
    assert "max_connections" in text


async def test_nobody_connected_is_told_as_that(database: Database) -> None:
    level, text = await told(database)
    assert (level, text.endswith("none is connected now")) == (Level.OK, True)


async def test_who_holds_a_lock_that_relay_waits_for_is_named_with_the_table(
    database: Database, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "HELD_SECONDS", 0.0)
    holder = await asyncpg.connect(database_dsn, server_settings={"application_name": "psql"})
    waiter = await asyncpg.connect(database_dsn, server_settings={"application_name": "relay dispatcher claims"})
    try:
        async with asyncio.timeout(20):
            await holder.execute("begin; lock table endpoint_state in access exclusive mode")
            waiting = asyncio.create_task(waiter.execute("select count(*) from endpoint_state"))
            await World.over(database).until_blocked(waiting)
            (found,) = await examine_locks(database)
            await holder.execute("commit")
            await waiting
        assert (found.check, found.level) == ("locks", Level.WARNING)
        assert f"pid {holder.get_server_pid()}, user " in found.text
        assert "(psql) holds endpoint_state, in a transaction that began " in found.text
        assert "1 of Relay's statements wait for it" in found.text
        assert f"pg_terminate_backend({holder.get_server_pid()})" in found.text
    finally:
        await waiter.close()
        await holder.close()


async def test_where_nobody_waits_nothing_is_said_of_locks(database: Database) -> None:
    assert await examine_locks(database) == ()


async def test_a_lock_that_keeps_the_doctor_itself_waiting_is_named(database_dsn: str) -> None:
    """No process of Relay runs, and what is asked of the table ends by its own bound."""
    holder = await asyncpg.connect(database_dsn)
    pid = holder.get_server_pid()
    try:
        await holder.execute("begin; lock table endpoint_state in access exclusive mode")
        found = await examined(database_dsn)
    finally:
        await holder.close()
    assert f"pid {pid}, " in found["locks"].text
    assert "holds endpoint_state" in found["locks"].text
