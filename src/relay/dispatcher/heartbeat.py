"""The heartbeat: tells the database that this dispatcher is there, for the gateways' readiness, and compares clocks.

Owns one loop. Invariant: it goes on as long as the database takes its reports.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from relay.domain.ambient import Ambient
from relay.domain.clocks import seconds_ahead
from relay.domain.telemetry import ClockCompared, Listener, Loop, LoopSucceeded
from relay.store import health
from relay.store.health import Health


class Heartbeat:
    """Beats for one process. `meet` is told how many dispatchers there are, if anybody asks."""

    def __init__(
        self,
        *,
        store: Health,
        process: UUID,
        every_seconds: float,
        ambient: Ambient,
        emit: Listener,
        meet: Callable[[int], None] | None = None,
    ) -> None:
        self._store = store
        self._process = process
        self._every_seconds = every_seconds
        self._ambient = ambient
        self._emit = emit
        self._meet = meet

    async def run(self) -> None:
        """Beat until cancelled. Raises `StoreUnavailable`."""
        while True:
            asked = self._ambient.now()
            theirs = await self._store.beat(self._process, health.DISPATCHER)
            self._emit(ClockCompared(seconds_ahead(asked, theirs, self._ambient.now())))
            if self._meet is not None:
                self._meet(await self._store.present(health.DISPATCHER))
            self._emit(LoopSucceeded(Loop.HEARTBEAT))
            await self._ambient.sleep(self._every_seconds)
