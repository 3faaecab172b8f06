"""The reporter: measures the queue for the gauges, in one process at a time.

Owns the reporting lock's loop. Invariant: of all dispatchers, only the lock's holder reports, so a sum over instances
counts each row once.
"""

from __future__ import annotations

import asyncio

from relay.domain.ambient import Ambient
from relay.domain.housekeeping import ReportingEnded, rest_seconds
from relay.domain.telemetry import Listener, Loop, LoopSucceeded
from relay.store.health import REPORTING_EVERY_SECONDS, Health, Promises, Reporting

EVERY_SECONDS, LONGEST_SECONDS = REPORTING_EVERY_SECONDS, 30.0
"""The longest rest is shorter than the server bears with a silent holder of the lock."""


class Reporter:
    """Reports for one process, while it holds the lock."""

    def __init__(self, *, store: Health, promises: Promises, ambient: Ambient, emit: Listener) -> None:
        self._store = store
        self._promises = promises
        self._ambient = ambient
        self._emit = emit

    async def run(self) -> None:
        """Try for the lock, then report while holding it, until cancelled. Raises `StoreUnavailable`."""
        while True:
            async with self._store.reporting() as reporting:
                if reporting is not None:
                    await self._report(reporting)
            self._emit(LoopSucceeded(Loop.REPORTER))
            await self._ambient.sleep(EVERY_SECONDS)

    async def _report(self, reporting: Reporting) -> None:
        try:
            while True:
                began = self._ambient.monotonic()
                self._emit(await reporting.measure(self._promises))
                self._emit(LoopSucceeded(Loop.REPORTER))
                took = self._ambient.monotonic() - began
                await self._rest(reporting, rest_seconds(took, every=EVERY_SECONDS, longest=LONGEST_SECONDS))
        finally:
            self._emit(ReportingEnded())

    async def _rest(self, reporting: Reporting, seconds: float) -> None:
        """Until the next measurement, or until the lock is gone: from then on another one reports."""
        waits = [asyncio.ensure_future(each) for each in (self._ambient.sleep(seconds), reporting.lost())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
