"""What processes tell each other through the database: heartbeats, the reporting lock, the queue's depth.

Owns the housekeeping statements. Invariant: at most one process at a time holds the reporting lock.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg

from relay.domain.backoff import DEFAULT, PATIENT
from relay.domain.housekeeping import DayTable, QueueMeasured
from relay.store import statements
from relay.store.database import Connection, Database, bound_lock_waits, throw_away
from relay.store.faults import CannotWrite, StoreBusy, StoreUnavailable
from relay.store.queue import FIRST_LANE

DISPATCHER = "dispatcher"
GATEWAY = "gateway"

_REPORTING_LOCK = 0x52454C42

REPORTING_EVERY_SECONDS = 5.0
"""How often the lock's holder measures."""

MEASURING_SECONDS = 30.0
"""How long each of its statements may take, whatever the pool's bound is: they count, so they grow with the queue."""

SILENT_REPORTER_SECONDS = REPORTING_EVERY_SECONDS + MEASURING_SECONDS + 5.0
"""After how long without a word the server ends the holder's session, which gives the lock to another one. A holder
whose link has died has given up by then, so that never two of them report; one that stands still answers no scrape."""

PRESENT_SECONDS = 30.0
"""A process that has reported within so many seconds, twice the longest time between two reports, is there."""

FORGOTTEN_AFTER_SECONDS = 3600.0
"""A process that has not reported for so long is forgotten."""


@dataclass(frozen=True, slots=True)
class ConnectionsAllowed:
    """How many connections may be open at once, by everybody together, and the name of the narrowest limit."""

    connections: int
    limit: str


@dataclass(frozen=True, slots=True)
class Log:
    """How many bytes of log a server has written so far, and how many transactions that wrote something."""

    bytes: int
    transactions: int


@dataclass(frozen=True, slots=True)
class Promises:
    """How long what is owed may be under way before only its gate or a person can help it: the installation's retry
    window, where an endpoint has no other, and the time for an explicit ack, both in seconds."""

    retry_window_seconds: float = DEFAULT.window_seconds
    ack_seconds: float = 300.0


DEFAULT_PROMISES = Promises()

_PROBE_KILOBYTES = 1000
"""What is written to see whether there is room: the work of some milliseconds, and more than tables grow by at once."""


LANES_AT_ONCE = 20_000
"""How many lanes one look for late deliveries steps through: a fifth of a second of the server."""


@dataclass(frozen=True, slots=True)
class LateLook:
    """Seconds by which the earliest delivery of some lanes is late, None if none of those is open; and behind which
    lane to go on, None if these were the last."""

    late: float | None
    go_on_behind: UUID | None


class Reporting:
    """The right to measure the queue for all, on the connection that holds the lock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lost = asyncio.Event()
        connection.add_termination_listener(lambda _: self._lost.set())

    async def lost(self) -> None:
        """Return when the session has ended, and the lock with it."""
        await self._lost.wait()

    async def measure(self, promises: Promises = DEFAULT_PROMISES) -> QueueMeasured:
        """The queue as it is now."""
        connection, bound = self._connection, MEASURING_SECONDS
        row = await connection.fetchrow(
            statements.text("measure_queue"),
            promises.retry_window_seconds,
            PATIENT.window_seconds,
            promises.ack_seconds,
            timeout=bound,
        )
        late = await _lateness(connection, bound)
        dead = await connection.fetch(statements.text("dead_by_consumer"), timeout=bound)
        breakers = await connection.fetch(statements.text("open_breakers"), timeout=bound)
        assert row is not None, "an aggregate answers one row"
        return QueueMeasured(
            pending=row["pending"],
            in_flight=row["in_flight"],
            leases_expired=row["leases_expired"],
            dead=row["dead"],
            # nothing open is late where every lane with something pending is paused, disabled or removed
            oldest_pending_age=max(late or 0.0, 0.0) if row["pending"] else math.nan,
            oldest_open_receipt_age=max(row["oldest_owed_age"] or 0.0, 0.0),
            dead_by_consumer=tuple((each[0], each[1]) for each in dead),
            open_breakers=tuple(each[0] for each in breakers),
            default_partition_rows=row["default_partition_rows"],
            journal_default_partition_rows=row["journal_default_partition_rows"],
            days_ahead=(
                (DayTable.JOURNAL, row["journal_days_ahead"]),
                (DayTable.ATTEMPTS, row["attempt_days_ahead"]),
            ),
            unaccounted=row["unaccounted"],
        )


class Health:
    """Heartbeats and gauges of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def writes(self) -> None:
        """Return if the database answers and can write to its disk. Raises `CannotWrite`, `StoreUnavailable`.

        Nothing is left of what it writes.
        """
        try:
            async with self._database.transaction() as connection:
                await connection.execute("set local work_mem = '64kB'")
                row = await connection.fetchrow(statements.text("probe_writes"), _PROBE_KILOBYTES)
        except StoreUnavailable as fault:
            if not isinstance(fault.__cause__, asyncpg.ConfigurationLimitExceededError):
                raise
            return  # the operator has bounded temporary files, which says nothing about the disk
        assert row is not None, "an aggregate answers one row"
        if row["read_only"]:
            raise CannotWrite("the database cannot write: it is read-only, as a standby is")

    async def connections_allowed(self) -> ConnectionsAllowed:
        """How many connections the server, the database and our role allow."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statements.text("connections_allowed"))
        assert row is not None, "who is connected has a role and a database"
        limits = [
            ConnectionsAllowed(row["server"], "max_connections (less what it reserves)"),
            ConnectionsAllowed(_unless_none(row["database"]), "connection limit of that database"),
            ConnectionsAllowed(_unless_none(row["role"]), "connection limit of our role"),
        ]
        return min(limits, key=lambda limit: limit.connections)

    async def identity(self) -> tuple[int, int]:
        """What no two databases have in common: their cluster's number, which its standbys share, and their own."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statements.text("tell_identity"))
        assert row is not None, "who is connected has a database"
        return row["cluster"], row["database"]

    async def log(self) -> Log:
        """What the server has written. Raises `StoreUnavailable`."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statements.text("tell_log"))
            assert row is not None, "each server has a log"
            return Log(row["bytes"], row["transactions"])

    async def beat(self, process: UUID, kind: str) -> datetime:
        """Report that this process is there; answers the database's instant while it did."""
        async with self._database.connection() as connection:
            instant: datetime = await connection.fetchval(statements.text("report_heartbeat"), process, kind)
            await connection.execute(statements.text("forget_heartbeats"), FORGOTTEN_AFTER_SECONDS)
        return instant

    async def present(self, kind: str) -> int:
        """How many processes of that kind have lately reported."""
        async with self._database.connection() as connection:
            count: int = await connection.fetchval(statements.text("count_present"), kind, PRESENT_SECONDS)
        return count

    async def instant(self) -> datetime:
        """The database's instant while it answers."""
        async with self._database.connection() as connection:
            instant: datetime = await connection.fetchval(statements.text("tell_instant"))
        return instant

    async def seconds_since(self, kind: str) -> float | None:
        """Seconds since a process of that kind last reported; None if none ever did."""
        async with self._database.connection() as connection:
            seconds: float | None = await connection.fetchval(statements.text("last_heartbeat"), kind)
        return seconds

    async def look_for_late(self, after: UUID = FIRST_LANE) -> LateLook:
        """How late the earliest delivery is of some thousand lanes with something pending behind that one."""
        async with self._database.connection() as connection:
            return await _look_for_late(connection, after)

    async def owed(self) -> int:
        """How many deliveries are pending or in flight."""
        async with self._database.connection() as connection:
            owed: int = await connection.fetchval(statements.text("count_owed"))
        return owed

    @asynccontextmanager
    async def reporting(self) -> AsyncIterator[Reporting | None]:
        """Hold the reporting lock inside the block, or get None where another process holds it.

        Raises `StoreUnavailable` when the block ends for a database that is away.
        """
        async with self._database.kept_connection() as connection:
            held = await connection.fetchval(statements.text("try_reporting_lock"), _REPORTING_LOCK)
            try:
                if held:
                    await connection.execute(
                        statements.text("bound_reporter"),
                        f"{SILENT_REPORTER_SECONDS:.0f}s",
                        f"{MEASURING_SECONDS:.0f}s",
                    )
                yield Reporting(connection) if held else None
            except BaseException:
                # the lock goes with the session, whatever state that is in
                throw_away(connection)
                raise
            if held:
                await connection.execute(statements.text("unbind_reporter"))
                await connection.fetchval(statements.text("release_session_lock"))

    async def ensure_partitions(self, days_ahead: int) -> int:
        """Make the day partitions from yesterday to so many days ahead; answers how many were made.

        One table per transaction, and one that somebody reads keeps no other from its days. Raises `StoreBusy` where
        a lock was not to be had.
        """
        made = 0
        busy: list[StoreBusy] = []
        for parent in DayTable:
            try:
                async with self._database.transaction() as connection:
                    await bound_lock_waits(connection)
                    made += await connection.fetchval(statements.text("ensure_partitions"), parent, days_ahead)
            except StoreBusy as fault:
                busy.append(fault)
        if busy:
            raise busy[0]
        return made


async def _lateness(connection: Connection, within: float) -> float | None:
    """Of all lanes, each look `within` seconds."""
    found: list[float] = []
    after: UUID | None = FIRST_LANE
    while after is not None:
        look = await _look_for_late(connection, after, within)
        found += [] if look.late is None else [look.late]
        after = look.go_on_behind
    return max(found, default=None)


async def _look_for_late(connection: Connection, after: UUID, within: float | None = None) -> LateLook:
    """One look, `within` seconds or the pool's own bound."""
    row = await connection.fetchrow(statements.text("measure_lateness"), after, LANES_AT_ONCE, timeout=within)
    assert row is not None, "an aggregate answers one row"
    return LateLook(row["late"], row["last"])


def _unless_none(limit: int | None) -> int:
    return sys.maxsize if limit is None else limit
