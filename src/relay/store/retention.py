"""What is no longer kept.

Owns the removal of names whose time is over, of attempts and events that are kept no longer, and of what belongs to
them. Invariants: what is removed was over when its row was locked, so a name that was bound anew meanwhile stays; each
step is one transaction, so whoever is killed in the middle of it leaves a state that the next run goes on from; and
every position of the journal is either there or on record as pruned.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from uuid import UUID

from relay.domain import ids
from relay.domain.housekeeping import DayTable
from relay.store import statements
from relay.store.database import Database, bound_lock_waits

STEP_SECONDS = 30.0
"""How long a step may take; a look at a whole day, which may have many millions of events, has its pool's bound."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Days that things are kept: events from the closing of their receipts on, dead letters from their death on,
    attempts from when they were made."""

    delivered_days: int = 30
    dead_days: int = 90
    attempts_days: int = 30


DEFAULT_WINDOWS = Windows()


class Pruned(StrEnum):
    """What became of a day of the journal."""

    DROPPED = "dropped"
    THINNED = "thinned"
    """Little of it must stay, and is all that is left."""
    KEPT = "kept"
    """Too much of it must stay."""
    ELSEWHERE = "elsewhere"
    """Another process is at it."""
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class PrunedDay:
    """What a look at an old day of the journal came to: how many events went, how many stay."""

    day: date
    result: Pruned
    gone: int
    kept: int


@dataclass(frozen=True, slots=True)
class Expired:
    """How many dead letters were given up for their age, and how many receipts that closed."""

    dead_letters: int
    closed: int


@dataclass(frozen=True, slots=True)
class Overdue:
    """Days that retention is behind with: of attempts; of events that nobody has looked at; of events that went while
    their receipts and deliveries are still there."""

    attempts: int
    events: int
    unswept: int


@dataclass(frozen=True, slots=True)
class OldDay:
    """A day of which events went whose receipts and deliveries may still be there."""

    day: date
    pruned_at: datetime


@dataclass(frozen=True, slots=True)
class Swept:
    """Receipts and deliveries that were removed; `reached` is where to go on, None: there is no more."""

    receipts: int
    deliveries: int
    reached: UUID | None


class Retention:
    """The retention of one database. All raise `StoreUnavailable`; where others' locks are in the way, `StoreBusy`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def prune_idempotency_keys(self, *, batch: int) -> int:
        """Remove the senders' names that are over, at most `batch`; answers how many."""
        return await self._remove("prune_idempotency_keys", batch)

    async def prune_request_keys(self, *, batch: int) -> int:
        """Remove the names of re-drives and discards that are over, at most `batch`; answers how many."""
        return await self._remove("prune_request_keys", batch)

    async def prune_signed_requests(self, *, batch: int) -> int:
        """Remove signed requests that nobody could repeat any more, at most `batch`; answers how many."""
        return await self._remove("prune_signed_requests", batch)

    async def expire_dead_letters(self, days: float, *, batch: int) -> Expired:
        """Give up dead letters that have waited for so many days, about `batch`; where nothing else of a receipt is
        owed, it closes as `expired`."""
        async with self._database.transaction(STEP_SECONDS) as connection:
            await bound_lock_waits(connection)
            row = await connection.fetchrow(statements.text("expire_dead_letters"), days, batch)
        assert row is not None, "it answers one row"
        return Expired(row["deliveries"] + row["events"], row["closed"])

    async def drop_day_of_attempts(self, days: float) -> date | None:
        """Drop the oldest day of attempts that ended so many days ago; None if there is none, or another process is at
        it."""
        async with self._database.transaction(STEP_SECONDS) as connection:
            await bound_lock_waits(connection)
            day: date | None = await connection.fetchval(
                statements.text("drop_oldest_day"), DayTable.ATTEMPTS.value, days
            )
        return day

    async def forget_secrets(self, *, grace_seconds: float, batch: int) -> int:
        """Forget secrets that nothing can need: of what was removed or rotated away, or whose overlap is over, each for
        so long. At most about `batch`; answers how many rows were changed or removed."""
        changed = 0
        async with self._database.transaction(STEP_SECONDS) as connection:
            await bound_lock_waits(connection)
            for statement in ("let_go_of_endpoint_secrets", "let_go_of_source_secrets", "forget_secrets"):
                changed += len(await connection.fetch(statements.text(statement), batch, grace_seconds))
        return changed

    async def days_to_prune(self, days: float) -> list[date]:
        """Days of the journal that ended so many days ago and at which a look pays, the oldest first."""
        async with self._database.connection(STEP_SECONDS) as connection:
            return [row["day"] for row in await connection.fetch(statements.text("days_to_prune"), days)]

    async def prune_day(self, day: date, days: float) -> PrunedDay:
        """Let events of a day go whose receipts closed so many days ago. Nothing that is owed or dead, that became void
        since, or that a sender's name still leads to goes."""
        async with self._database.transaction() as connection:
            await bound_lock_waits(connection)
            row = await connection.fetchrow(
                statements.text("prune_journal_day"), day, ids.first_of(day), ids.last_of(day), days
            )
        assert row is not None, "it answers one row"
        return PrunedDay(day, Pruned(row["result"]), row["gone"], row["kept"])

    async def days_to_sweep(self) -> list[OldDay]:
        """Days of which events went and whose other rows were not all looked at since, the oldest first."""
        async with self._database.connection(STEP_SECONDS) as connection:
            return [OldDay(*row) for row in await connection.fetch(statements.text("days_to_sweep"))]

    async def sweep(self, old: OldDay, *, after: UUID | None, batch: int) -> Swept:
        """Remove receipts and deliveries of events that went, about `batch` rows; the next behind `after`."""
        first, last = ids.first_of(old.day), ids.last_of(old.day)
        async with self._database.transaction(STEP_SECONDS) as connection:
            await bound_lock_waits(connection)
            row = await connection.fetchrow(statements.text("sweep_pruned_day"), old.day, after or first, last, batch)
        if row is None:
            return Swept(0, 0, None)
        return Swept(row["receipts"], row["deliveries"], row["reached"])

    async def mark_swept(self, old: OldDay) -> None:
        """Nothing of the events that went is left."""
        async with self._database.connection(STEP_SECONDS) as connection:
            await connection.execute(statements.text("mark_day_swept"), old.day, old.pruned_at)

    async def overdue(self, windows: Windows) -> Overdue:
        """What should have gone a day ago by these windows, and has not."""
        async with self._database.connection(STEP_SECONDS) as connection:
            row = await connection.fetchrow(
                statements.text("overdue_days"),
                float(windows.attempts_days),
                float(min(windows.delivered_days, windows.dead_days)),
            )
        assert row is not None, "an aggregate answers one row"
        return Overdue(row["attempts"], row["events"], row["unswept"])

    async def _remove(self, statement: str, batch: int) -> int:
        async with self._database.connection(STEP_SECONDS) as connection:
            return len(await connection.fetch(statements.text(statement), batch))
