"""The maintainer: makes the day partitions ahead of time.

Owns one loop: at start and then each minute. Invariant: while one dispatcher runs, tomorrow's partitions exist today.
"""

from __future__ import annotations

from relay.domain.ambient import Ambient
from relay.domain.telemetry import Listener, Loop, LoopHeldUp, LoopSucceeded
from relay.store.faults import StoreBusy
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
        """Maintain until cancelled. Raises `StoreUnavailable`, but for `StoreBusy`: where a lock is not to be had, the
        next round will do, since each try holds up whoever reads all days. A loop that never succeeds is silent."""
        while True:
            try:
                made = await self._store.ensure_partitions(DAYS_AHEAD)
            except StoreBusy as fault:
                self._emit(LoopHeldUp(Loop.MAINTAINER, str(fault), EVERY_SECONDS))
            else:
                self._emit(LoopSucceeded(Loop.MAINTAINER, made))
            await self._ambient.sleep(EVERY_SECONDS)
