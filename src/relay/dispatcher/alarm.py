"""The alarm clock of the claimer: rings for a wake-up, for a permit, or when something is known to come due.

Owns the waiting. Invariant: a ring between two waits is not lost, and a wait ends at the latest after its limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Rings once for any number of reasons; `expect` sets it for later, the earliest time counts."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._rung = asyncio.Event()
        self._expected: float | None = None

    def ring(self) -> None:
        """End the wait that is under way, or the next one at once."""
        self._rung.set()

    def expect(self, seconds: float) -> None:
        """Ring in so many seconds."""
        at = self._monotonic() + seconds
        if self._expected is None or at < self._expected:
            self._expected = at

    def reset(self) -> None:
        """Forget the rings so far: what they were about is being looked at now."""
        self._rung.clear()

    async def wait(self, limit: float) -> None:
        """Return when it rings, at an expected time, or after `limit` seconds."""
        wait = limit
        if self._expected is not None:
            wait = min(limit, self._expected - self._monotonic())
        if wait > 0:
            try:
                async with asyncio.timeout(wait):
                    await self._rung.wait()
            except TimeoutError:
                pass
        if self._expected is not None and self._expected <= self._monotonic():
            self._expected = None
