"""What processes tell each other through the database: heartbeats, the reporting lock, the queue's depth.

Owns the housekeeping statements. Invariant: at most one process at a time holds the reporting lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from relay.store import statements
from relay.store.database import Connection, Database

DISPATCHER = "dispatcher"
GATEWAY = "gateway"

FORGOTTEN_AFTER_SECONDS = 3600.0
"""A process that has not reported for so long is forgotten."""


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """How many deliveries are pending and in flight."""

    pending: int
    in_flight: int


class Health:
    """Heartbeats and gauges of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def answers(self) -> None:
        """Return if the database answers. Raises `StoreUnavailable`."""
        async with self._database.connection() as connection:
            await connection.fetchval("select 1")

    async def beat(self, process: UUID, kind: str) -> None:
        """Report that this process is there."""
        async with self._database.connection() as connection:
            await connection.execute(statements.text("report_heartbeat"), process, kind)
            await connection.execute(statements.text("forget_heartbeats"), FORGOTTEN_AFTER_SECONDS)

    async def seconds_since(self, kind: str) -> float | None:
        """Seconds since a process of that kind last reported; None if none ever did."""
        async with self._database.connection() as connection:
            seconds: float | None = await connection.fetchval(statements.text("last_heartbeat"), kind)
        return seconds

    async def queue_depth(self) -> QueueDepth:
        """How much is owed now."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statements.text("queue_depth"))
        assert row is not None, "an aggregate answers one row"
        return QueueDepth(row["pending"], row["in_flight"])

    async def ensure_partitions(self, days_ahead: int) -> int:
        """Make the day partitions from yesterday to so many days ahead; answers how many were made."""
        made = 0
        for parent in ("journal", "delivery_attempts"):
            async with self._database.transaction() as connection:
                await _bound_lock_waits(connection)
                made += await connection.fetchval(statements.text("ensure_partitions"), parent, days_ahead)
        return made


async def _bound_lock_waits(connection: Connection) -> None:
    # attaching waits for a lock on the parent, and everyone else would queue up behind that wait
    await connection.execute("set local lock_timeout = '2s'")
