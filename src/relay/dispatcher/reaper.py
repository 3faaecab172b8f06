"""The reaper: returns to their lanes the deliveries whose holder has died, and buries what removed endpoints are owed.

Owns one loop. Invariant: a lease that has run out is taken back within `EVERY_SECONDS`, without any traffic needed;
beside an old snapshot, where each look steps over the leases of all that was delivered since, within `LONGEST_SECONDS`.
"""

from __future__ import annotations

from relay.dispatcher.alarm import Alarm
from relay.domain.ambient import Ambient
from relay.domain.delivery import DeadReason
from relay.domain.housekeeping import rest_seconds
from relay.domain.telemetry import DeadLettered, LeasesReaped, Listener, Loop, LoopCrashed, LoopSucceeded
from relay.store.faults import StoreRefused
from relay.store.queue import Queue

EVERY_SECONDS, LONGEST_SECONDS = 5.0, 30.0
BATCH = 500


class Reaper:
    """Reaps for the whole installation; any number may run beside each other."""

    def __init__(self, *, queue: Queue, alarm: Alarm, ambient: Ambient, emit: Listener) -> None:
        self._queue = queue
        self._alarm = alarm
        self._ambient = ambient
        self._emit = emit

    async def run(self) -> None:
        """Reap until cancelled. Raises `StoreUnavailable`."""
        while True:
            began = self._ambient.monotonic()
            reaped = await self._reap()
            if reaped:
                self._emit(LeasesReaped(reaped))
                self._alarm.ring()
            buried_by_consumer = await self._queue.bury_removed(batch=BATCH)
            for consumer, count in buried_by_consumer.items():
                self._emit(DeadLettered(consumer, DeadReason.ENDPOINT_REMOVED, count))
            buried = sum(buried_by_consumer.values())
            self._emit(LoopSucceeded(Loop.REAPER, reaped + buried))
            if max(reaped, buried) < BATCH:
                took = self._ambient.monotonic() - began
                await self._ambient.sleep(rest_seconds(took, every=EVERY_SECONDS, longest=LONGEST_SECONDS))

    async def _reap(self) -> int:
        """Reap a batch; one by one if the database refuses the record of an attempt among them."""
        try:
            return await self._queue.reap(batch=BATCH)
        except StoreRefused as fault:
            self._emit(LoopCrashed(Loop.REAPER, fault, 0.0))
        reaped = 0
        while reaped < BATCH and await self._reap_one():
            reaped += 1
        return reaped

    async def _reap_one(self) -> int:
        """Reap one delivery, without its record if that is refused: else it would keep all others from coming back."""
        try:
            return await self._queue.reap(batch=1)
        except StoreRefused:
            return await self._queue.reap(batch=1, on_record=False)
