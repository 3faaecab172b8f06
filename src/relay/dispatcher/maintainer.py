"""The maintainer: makes the day partitions ahead of time, and drops the days of attempts that are over.

Owns one loop: at start and then each minute. Invariant: while one dispatcher runs, tomorrow's partitions exist today,
and no day of attempts outlives its window by more than what others' locks cost.
"""

from __future__ import annotations

from collections.abc import Awaitable

from relay.domain.ambient import Ambient
from relay.domain.housekeeping import DaysDropped, DayTable
from relay.domain.telemetry import Listener, Loop, LoopHeldUp, LoopSucceeded
from relay.store.faults import StoreBusy
from relay.store.health import Health
from relay.store.retention import Retention

EVERY_SECONDS = 60.0
"""There is rarely anything to do, and finding that out costs little; a loop that is silent for long looks dead."""
DAYS_AHEAD = 14
REST_SECONDS = 0.2
"""Between two days that are dropped, for each of which whoever reads all days waits a moment."""


class Maintainer:
    """Maintains for the whole installation; any number may run beside each other."""

    def __init__(
        self, *, store: Health, retention: Retention, attempts_days: float, ambient: Ambient, emit: Listener
    ) -> None:
        self._store = store
        self._retention = retention
        self._attempts_days = attempts_days
        self._ambient = ambient
        self._emit = emit

    async def run(self) -> None:
        """Maintain until cancelled. Raises `StoreUnavailable`, but for `StoreBusy`: where a lock is not to be had, the
        next round will do, since each try holds up whoever reads all days. A loop that never succeeds is silent."""
        while True:
            made = await self._tried(self._store.ensure_partitions(DAYS_AHEAD))
            dropped = await self._tried(self._dropped())
            if made is not None and dropped is not None:
                self._emit(LoopSucceeded(Loop.MAINTAINER, made + dropped))
            await self._ambient.sleep(EVERY_SECONDS)

    async def _dropped(self) -> int:
        count = 0
        while await self._retention.drop_day_of_attempts(self._attempts_days) is not None:
            self._emit(DaysDropped(DayTable.ATTEMPTS, 1))
            count += 1
            await self._ambient.sleep(REST_SECONDS)
        return count

    async def _tried(self, step: Awaitable[int]) -> int | None:
        """What a step answers, None where others' locks were in its way."""
        try:
            return await step
        except StoreBusy as fault:
            self._emit(LoopHeldUp(Loop.MAINTAINER, str(fault), EVERY_SECONDS))
            return None
