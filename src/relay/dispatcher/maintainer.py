"""The maintainer: makes the day partitions ahead of time.

Owns one loop: at start and then each minute. Invariant: while one dispatcher runs, tomorrow's partitions exist today.
"""

from __future__ import annotations

from relay.domain.ambient import Ambient
from relay.domain.telemetry import Listener, Loop, LoopSucceeded
from relay.store.health import Health

EVERY_SECONDS = 60.0
"""There is rarely anything to do, and finding that out costs little; a loop that is silent for long looks dead."""
DAYS_AHEAD = 14


class Maintainer:
    """Maintains for the whole installation; any number may run beside each other."""

    def __init__(self, *, store: Health, ambient: Ambient, emit: Listener) -> None:
        self._store = store
        self._ambient = ambient
        self._emit = emit

    async def run(self) -> None:
        """Maintain until cancelled. Raises `StoreUnavailable`, `StoreBusy` where a lock was not to be had in time."""
        while True:
            made = await self._store.ensure_partitions(DAYS_AHEAD)
            self._emit(LoopSucceeded(Loop.MAINTAINER, made))
            await self._ambient.sleep(EVERY_SECONDS)
