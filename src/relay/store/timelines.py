"""Which server did a piece of work, told by the number of its timeline.

Owns the note of it, for whoever answers for work that others do deeper down. What is proved of a timeline is the
barrier's. Invariant: inside `noted` no block that may write has a connection whose server is not in the note.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import asyncpg

from relay.store import statements


@dataclass(slots=True)
class Note:
    """The timelines of the servers that worked so far. It is closed with its block, whatever tasks outlive that."""

    timelines: set[int] = field(default_factory=set)
    is_open: bool = True


_NOTE: ContextVar[Note | None] = ContextVar("timelines", default=None)


@contextmanager
def noted() -> Iterator[set[int]]:
    """Note the timelines of the servers that work inside the block, in whichever task it begins."""
    note = Note()
    token = _NOTE.set(note)
    try:
        yield note.timelines
    finally:
        note.is_open = False
        _NOTE.reset(token)


async def take_note(connection: asyncpg.pool.PoolConnectionProxy | asyncpg.Connection) -> None:
    """Ask a session for its server's timeline, if somebody wants to know it. A standby refuses, as it does a write."""
    note = _NOTE.get()
    if note is not None and note.is_open:
        note.timelines.add(await connection.fetchval(statements.text("tell_timeline")))
