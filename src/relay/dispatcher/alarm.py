"""The alarm clock of the claimer: rings for a wake-up, for a permit, or when something is known to come due.

Owns the waiting. Invariant: a ring between two waits is not lost, and a wait ends at the latest after its limit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable


class Alarm:
    """Rings once for any number of reasons; `expect` sets it for later, the earliest time counts. Whatever it is told
    is told to the one that it is given `also`."""

    def __init__(self, monotonic: Callable[[], float], *, also: Alarm | None = None) -> None:
        self._monotonic = monotonic
        self._also = also
        self._rung = False
        self._expected: float | None = None
        self._news = asyncio.Event()

    def ring(self) -> None:
        """End the wait that is under way, or the next one at once."""
        self._rung = True
        self._news.set()
        if self._also is not None:
            self._also.ring()

    def expect(self, seconds: float) -> None:
        """Ring in so many seconds; a wait that is under way ends then, too."""
        at = self._monotonic() + seconds
        if self._expected is None or at < self._expected:
            self._expected = at
            self._news.set()
        if self._also is not None:
            self._also.expect(seconds)

    def reset(self) -> None:
        """Forget the rings so far: what they were about is being looked at now."""
        self._rung = False

    async def wait(self, limit: float) -> None:
        """Return when it rings, at an expected time, or after `limit` seconds."""
        deadline = self._monotonic() + limit
        while not self._rung and (left := self._until(deadline)) > 0:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._news.wait()
        if self._expected is not None and self._expected <= self._monotonic():
            self._expected = None

    def _until(self, deadline: float) -> float:
        """Seconds until the deadline or the expected time, whichever is first."""
        first = deadline if self._expected is None else min(deadline, self._expected)
        return first - self._monotonic()
