"""The connection to PostgreSQL.

Owns pools and what every session is told. Invariant: each wait on the database is bounded by `COMMAND_TIMEOUT`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from relay.store import faults

COMMAND_TIMEOUT = 30.0
"""Seconds after which a statement is given up."""

CONNECT_TIMEOUT = 10.0
"""Seconds to wait for a new connection."""

Connection = asyncpg.pool.PoolConnectionProxy | asyncpg.Connection

_SESSION = {
    # a just-in-time compile costs more than any statement here
    "jit": "off",
    "timezone": "UTC",
    # every statement counts on its indexes; a plan that was made while a day's partition was still empty would
    # otherwise read all of it when it is full
    "enable_seqscan": "off",
    # a client that died must not keep its locks
    "idle_in_transaction_session_timeout": "60s",
}


async def _keep(_: Connection) -> None:
    """What the pool does with a connection that comes back: nothing.

    Its own reset costs a round trip each time. There is nothing to reset: settings are changed inside transactions
    only, and the one session lock is given back by whoever took it.
    """


class Database:
    """A pool of connections to one database.

    `lazy_commits` lets a commit return before it is flushed (claims and wake-ups: losing one costs a duplicate, never
    an event); everything else waits for the disk.
    """

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    @classmethod
    async def connect(cls, dsn: str, *, name: str, size: int, lazy_commits: bool = False) -> Database:
        """Open a pool of at most `size` connections that call themselves `name`. Raises `StoreUnavailable`."""
        settings = {**_SESSION, "application_name": name}
        if lazy_commits:
            settings["synchronous_commit"] = "off"
        with faults.translated():
            pool = await asyncpg.create_pool(
                dsn,
                min_size=min(size, 1),
                max_size=size,
                timeout=CONNECT_TIMEOUT,
                command_timeout=COMMAND_TIMEOUT,
                server_settings=settings,
                reset=_keep,
            )
        return cls(pool)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Borrow a connection. Raises `StoreUnavailable` for a database that is away, here and inside the block."""
        with faults.translated():
            async with self._pool.acquire(timeout=CONNECT_TIMEOUT) as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Borrow a connection inside a transaction that commits at the end of the block."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Connection]:
        """Borrow a connection on which every statement of the block sees the database as of one moment."""
        async with (
            self.connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield connection

    async def close(self, within: float = 5.0) -> None:
        """Close the pool; connections still in use after `within` seconds are cut."""
        try:
            await asyncio.wait_for(self._pool.close(), within)
        except TimeoutError:
            self._pool.terminate()
