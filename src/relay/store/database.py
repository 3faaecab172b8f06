"""The connection to PostgreSQL.

Owns pools, what every session is told, and how long one piece of work with the database may take. Invariants: nobody
waits for a server that hangs: what was cut off, by its bound or by its caller, has its connection thrown away at once,
without a word to the server. What had been sent may then have happened, or happen still, within the same bound. A way
to the server that has died without a word costs a pool one bound, however many connections it has: those that lay idle
go with the first that was not answered. And what a client holds that has vanished or stands still, the server gives
back by itself.

Where a pooler stands in between that gives each transaction another session (`pooled`), nothing may be counted on
beyond a transaction: so every block is one, is told everything anew in the message that begins it, and leaves no
prepared statement behind.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum
from functools import partial
from typing import Any, Literal

import asyncpg

from relay.store import faults
from relay.store.address import IS_STANDBY, TAKES_WRITES, connect, connect_through_pooler
from relay.store.timelines import take_note

WORK_SECONDS = 30.0
"""How long a block with a connection may last, from asking for the connection to the end of its transaction."""

CLOSE_SECONDS = 0.5
"""How long the server may take to hear that a pool is closed."""

CONNECT_TIMEOUT = 10.0
"""Seconds to wait for a new connection."""

STATEMENTS_KEPT = 100
"""How many prepared statements a connection keeps, which is the driver's default."""

_ONE_MOMENT = "set transaction isolation level repeatable read"

Connection = asyncpg.pool.PoolConnectionProxy | asyncpg.Connection

_SESSION = {
    # planning a claim anew each time would cost a third of what PostgreSQL does for a delivery; tests hold the plans
    "plan_cache_mode": "force_generic_plan",
    # a just-in-time compile costs more than any statement here
    "jit": "off",
    "timezone": "UTC",
    # every statement counts on its indexes; a plan that was made while a day's partition was still empty would
    # otherwise read all of it when it is full
    "enable_seqscan": "off",
    # a client that stands still, or whose link does, must not keep its locks: there is no work between two statements
    # (`statement_timeout` is set to the pool's bound: nothing goes on for long after its client has given it up)
    "idle_in_transaction_session_timeout": "10s",
    # nor one that is gone without a word, with its machine, which by the defaults would be noticed hours later
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25s",
}


async def _keep(_: Connection) -> None:
    """What the pool does with a connection that comes back: nothing.

    Its own reset costs a round trip each time. There is nothing to reset: settings are changed inside transactions
    only, and the one session lock is given back by whoever took it.
    """


_TRANSACTION = {name: value for name, value in _SESSION.items() if not name.startswith("tcp_")}
"""What a transaction through a pooler is told: the server's link is the pooler's."""


class Commits(Enum):
    """What a commit waits for. No commit that holds a lock waits for other machines: see `barrier`."""

    LAZY = "off"
    """Nothing (claims and wake-ups: losing one costs a duplicate, never an event)."""

    HERE = "local"
    """The server's own disk."""

    AS_SERVER_SAYS = None
    """Whatever the server is set to wait for, which may be other machines."""


class Database:
    """A pool of connections to one database, whose commits wait for one thing."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        made: Iterable[asyncpg.Connection] = (),
        within: float = WORK_SECONDS,
        told: str | None = None,
    ) -> None:
        """`told` is what each transaction has to be told, of a pool through a pooler."""
        self._pool = pool
        self._made = made
        self._within = within
        self._told = told
        self._borrowed: set[int] = set()

    @classmethod
    async def connect(
        cls,
        dsn: str,
        *,
        name: str,
        size: int,
        commits: Commits = Commits.HERE,
        within: float | None = None,
        pooled: bool = False,
    ) -> Database:
        """Open a pool of at most `size` connections that call themselves `name`. Raises `StoreUnavailable`.

        `within` bounds each block, and on the server each statement, in seconds: `WORK_SECONDS` if not given. `pooled`:
        the address is that of a pooler, which gives each transaction another session.
        """
        within = WORK_SECONDS if within is None else within
        settings = {**(_TRANSACTION if pooled else _SESSION), "statement_timeout": str(math.ceil(within * 1000))}
        if commits.value is not None:
            settings["synchronous_commit"] = commits.value
        made: weakref.WeakSet[asyncpg.Connection] = weakref.WeakSet()

        async def dial(*where: Any, **how: Any) -> asyncpg.Connection:  # noqa: ANN401 - the driver's own
            connection = await (connect_through_pooler if pooled else connect)(*where, **how)
            made.add(connection)
            return connection

        with faults.translated(), _readable_address():
            pool = await asyncpg.create_pool(
                dsn,
                min_size=0,  # the driver would keep up a floor by itself, with a traceback for each failure
                max_size=size,
                connect=dial,
                timeout=CONNECT_TIMEOUT,
                command_timeout=within,
                server_settings={"application_name": name} | ({} if pooled else settings),
                statement_cache_size=0 if pooled else STATEMENTS_KEPT,
                reset=_keep,
            )
        told = "; ".join(f"set local {setting} = '{value}'" for setting, value in settings.items())
        database = cls(pool, made, within, told if pooled else None)
        try:
            with _readable_address():
                async with database.connection() as connection:
                    await _check_told(connection)
        except BaseException:
            pool.terminate()
            raise
        return database

    @asynccontextmanager
    async def connection(self, within: float | None = None) -> AsyncIterator[Connection]:
        """Borrow a connection for a block that ends within the pool's bound, or sooner where that is given, in seconds.

        Raises `StoreUnavailable` for a database that is away or too slow, here and inside the block.
        """
        async with self._lend(within) as connection:
            if self._told is None:
                await take_note(connection)
                yield connection
            else:
                async with _told_transaction(connection, self._told):
                    await take_note(connection)
                    yield connection

    @asynccontextmanager
    async def kept_connection(self) -> AsyncIterator[Connection]:
        """Borrow a connection for as long as the block likes; each statement in it has the pool's bound."""
        assert self._told is None, "a pooler keeps a connection for nobody"
        with faults.translated(), self._distrusting():
            async with self._pool.acquire(timeout=self._within) as connection:
                with self._lent(connection), _thrown_away_if_cut_off(connection):
                    yield connection

    @asynccontextmanager
    async def transaction(self, within: float | None = None) -> AsyncIterator[Connection]:
        """Borrow a connection inside a transaction that commits at the end of the block; `within` as above."""
        if self._told is not None:
            async with self.connection(within) as connection:
                yield connection
        else:
            async with self._lend(within) as connection, transaction(connection):
                await take_note(connection)
                yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Connection]:
        """Borrow a connection on which every statement of the block sees the database as of one moment."""
        async with self._lend() as connection:
            if self._told is not None:
                async with _told_transaction(connection, f"{_ONE_MOMENT}; {self._told}"):
                    yield connection
            else:
                async with transaction(connection, one_moment=True):
                    yield connection

    @asynccontextmanager
    async def _lend(self, within: float | None = None) -> AsyncIterator[Connection]:
        bound = self._within if within is None else min(within, self._within)
        with faults.translated(), self._distrusting():
            async with asyncio.timeout(bound), self._pool.acquire() as connection:
                with self._lent(connection), _thrown_away_if_cut_off(connection):
                    yield connection

    @contextmanager
    def _lent(self, connection: Connection) -> Iterator[None]:
        """Keep in mind that a connection is not idle."""
        session = connection.get_server_pid()
        self._borrowed.add(session)
        try:
            yield
        finally:
            self._borrowed.discard(session)

    @contextmanager
    def _distrusting(self) -> Iterator[None]:
        """Where a server did not answer in time, throw away the connections that lie idle: each of them may have died
        like that one, and would cost whoever takes it a bound more."""
        try:
            yield
        except TimeoutError:
            for each in list(self._made):
                if not _is_gone(each) and each.get_server_pid() not in self._borrowed:
                    throw_away(each)
            raise

    async def close(self, within: float = CLOSE_SECONDS) -> None:
        """Close the pool; connections still in use after `within` seconds are cut."""
        try:
            await asyncio.wait_for(self._pool.close(), within)
        except TimeoutError:
            self._pool.terminate()


@asynccontextmanager
async def transaction(connection: Connection, *, one_moment: bool = False) -> AsyncIterator[None]:
    """A transaction around the block: committed at its end, rolled back if the block raises.

    The driver's own would ask a server that hangs to roll back, and wait for it. `one_moment`: it reads only, and all
    of it as of one moment.
    """
    isolation: Literal["repeatable_read"] | None = "repeatable_read" if one_moment else None
    work = connection.transaction(isolation=isolation, readonly=one_moment)
    await work.start()
    async with _rolled_back_if_raised(connection, work.rollback):
        yield
    await work.commit()


@asynccontextmanager
async def _told_transaction(connection: Connection, told: str) -> AsyncIterator[None]:
    """The same through a pooler: told what a session would be, in the message that begins it. Raises `CannotWrite`.

    Its server may have become a standby since the connection was made, which a pooler tells nobody.
    """
    try:
        await connection.execute(f"{TAKES_WRITES}; {told}")
    except IS_STANDBY as fault:
        raise faults.CannotWrite("the database cannot write: it is a standby") from fault
    async with _rolled_back_if_raised(connection, partial(connection.execute, "rollback")):
        yield
    if await connection.execute("commit") != "COMMIT":
        raise RuntimeError("a statement failed, and the block went on as if its transaction could still be committed")


@asynccontextmanager
async def _rolled_back_if_raised(
    connection: Connection, roll_back: Callable[[], Awaitable[object]]
) -> AsyncIterator[None]:
    """What a transaction's block may do to it: whoever was cut off waits for no answer of a server that may hang."""
    try:
        with _thrown_away_if_cut_off(connection):
            yield
    except (asyncio.CancelledError, TimeoutError):
        raise
    except BaseException:
        if not _is_gone(connection):
            await roll_back()
        raise


async def bound_lock_waits(connection: Connection) -> None:
    """Give up, with `StoreBusy`, what waits for a lock for half a second in this transaction: whoever waits for a lock
    against everyone has everyone wait behind him."""
    await connection.execute("set local lock_timeout = '500ms'")


async def _check_told(connection: Connection) -> None:
    """Raises `PoolerInBetween` where a session is not what it was told to be: a server would have refused it."""
    if await connection.fetchval("show enable_seqscan") != _SESSION["enable_seqscan"]:
        raise faults.PoolerInBetween("a pooler stands before the database, and ignores our settings")


@contextmanager
def _readable_address() -> Iterator[None]:
    """What the driver says of an address that it cannot read may quote a piece of the password."""
    try:
        yield
    except (ValueError, IndexError):
        raise faults.StoreUnavailable("the address of the database cannot be read") from None


@contextmanager
def _thrown_away_if_cut_off(connection: Connection) -> Iterator[None]:
    """Throw the connection away if the block is cut off, and tell a connection that has gone from one used wrongly."""
    try:
        yield
    except (asyncio.CancelledError, TimeoutError):
        throw_away(connection)
        raise
    except (asyncpg.ReadOnlySQLTransactionError, faults.CannotWrite):
        throw_away(connection)  # its server became a standby; the next connection finds the one that writes
        raise
    except asyncpg.InterfaceError as fault:
        if not _is_gone(connection):
            raise
        raise asyncpg.ConnectionDoesNotExistError("the connection was closed") from fault


def throw_away(connection: Connection) -> None:
    """Close a connection without a word to the server."""
    if not _is_gone(connection):
        connection.terminate()


def _is_gone(connection: Connection) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # the pool has let go of it, as it does when it is terminated
        return True
