"""What a process loses of its own accounts of itself: log lines that nobody takes.

Owns the look at their number. Whoever drops them does so on a thread that must not touch the numbers; here it becomes a
happening, on the event loop. Invariant: what was dropped by the end of the block has been told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from relay.domain.telemetry import Listener, LogLinesDropped
from relay.metrics.logs import Lines

LOOK_SECONDS = 5.0
"""How often it is looked at."""


@asynccontextmanager
async def watched(lines: Lines, emit: Listener) -> AsyncIterator[None]:
    """Tell inside the block, and at its end, how many lines were dropped since this was last told."""
    watch = _Watch(lines, emit)
    looking = asyncio.create_task(watch.run(), name="watching the log")
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        watch.look()


class _Watch:
    def __init__(self, lines: Lines, emit: Listener) -> None:
        self._lines = lines
        self._emit = emit
        self._told = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        dropped = self._lines.dropped
        if dropped > self._told:
            self._emit(LogLinesDropped(dropped - self._told))
            self._told = dropped
