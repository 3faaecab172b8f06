"""What is ready, for the one dispatcher of a fleet that announces it to the others.

Owns the publishing lock and the look at the lanes. What has been announced, and when again, is its holder's memory.
Invariant: at most one process at a time holds the lock, and one that stands still or cannot be reached loses it within
`SILENT_SECONDS`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from relay.store import statements
from relay.store.database import Connection, Database, throw_away
from relay.store.health import DISPATCHER, PRESENT_SECONDS
from relay.store.queue import DEFAULT_GATES, EVERYTHING, FIRST_LANE, Gates

PUBLISHING_LOCK = 0x52454C50
"""Whoever holds it in a session of its own announces."""

SILENT_SECONDS = 5.0
"""After how long without a word from its holder the lock is free. Whoever leads speaks more often."""

MOST_LANES, MOST_OPEN_LANES = 512, 64
"""What one look sees at the most, in all and of those that are open and not in doubt, as the statement says."""

MOST_OF_A_LANE = 2_000
"""What one look takes of a lane at the most, however many dispatchers there are."""

Row = tuple[UUID, datetime | None]
"""A delivery and when it was last claimed: one that was claimed since is another one to whoever announces."""


@dataclass(frozen=True, slots=True)
class ReadyLane:
    """One lane: what of it may be claimed now, first due first, nothing where it is closed; `closings` is another text
    once the lane has been closed. One that `is_doubtful` did not answer last time, or not for long."""

    endpoint_id: UUID
    closings: str | None
    rows: tuple[Row, ...]
    is_doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What one look saw of the lanes behind `after`. `resume_after` is where the next one goes on, `FIRST_LANE` once
    the last lane was seen; `is_unmarked` tells whether a lane is closed that nobody was told of yet."""

    after: UUID
    lanes: tuple[ReadyLane, ...]
    resume_after: UUID
    is_unmarked: bool


class Leadership:
    """What the holder of the lock asks, over the session that holds it."""

    def __init__(self, connection: Connection, gates: Gates) -> None:
        self._connection = connection
        self._gates = gates

    async def look(self, *, after: UUID, most_of_a_lane: int) -> Look:
        """What may be claimed now of the next lanes, at most so much of each for each dispatcher there is. Raises what
        the driver raises, translated where leading began."""
        rows = await self._connection.fetch(
            statements.text("find_ready"),
            after,
            most_of_a_lane,
            self._gates.breaker is not None,
            MOST_OF_A_LANE,
            DISPATCHER,
            PRESENT_SECONDS,
        )
        opens = sum(row["room"] > 0 and not row["doubtful"] for row in rows)
        is_cut = len(rows) >= MOST_LANES or opens >= MOST_OPEN_LANES
        return Look(
            after=after,
            lanes=tuple(
                ReadyLane(
                    row["endpoint_id"],
                    row["closings"],
                    tuple(zip(row["deliveries"] or (), row["claims"] or (), strict=True)),
                    row["doubtful"],
                )
                for row in rows
            ),
            resume_after=rows[-1]["endpoint_id"] if is_cut else FIRST_LANE,
            is_unmarked=any(row["is_unmarked"] for row in rows),
        )

    async def seconds_to_next_due(self) -> float | None:
        """Seconds until something can be claimed, as `Queue.seconds_to_next_due` of a process with nothing under
        way."""
        everything = EVERYTHING
        seconds: float | None = await self._connection.fetchval(
            statements.text("next_due"),
            everything.lanes,
            everything.busy,
            everything.windows,
            everything.others,
            self._gates.breaker is not None,
            everything.doubtful,
        )
        return seconds


class Announcing:
    """The right to announce what is due in one database."""

    def __init__(self, database: Database, gates: Gates = DEFAULT_GATES) -> None:
        self._database = database
        self._gates = gates

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[Leadership | None]:
        """Hold the publishing lock inside the block, or get None where another process holds it.

        Raises `StoreUnavailable` when the block ends for a database that is away, or for a session that it has ended.
        """
        async with self._database.kept_connection() as connection:
            held = await connection.fetchval(
                statements.text("try_publishing_lock"), PUBLISHING_LOCK, f"{SILENT_SECONDS:g}s"
            )
            if not held:
                yield None
                return
            try:
                yield Leadership(connection, self._gates)
                await connection.fetchval(statements.text("release_session_lock"))
            finally:
                # the lock goes with the session, whatever state that is in, and so does the bound of its silence
                throw_away(connection)
