"""The pruner: removes what is no longer kept.

Owns one loop. Names go within a minute of their end. Old events are looked at when it starts and each hour: dead
letters that waited too long are given up, events that are over go from the journal, and then what belongs to them goes;
secrets that nothing can need any more are forgotten.
Invariant: whatever it removes goes in steps short enough to be in nobody's way, and what it leaves where it is stopped
is what the next round goes on from.
"""

from __future__ import annotations

from relay.domain.ambient import Ambient
from relay.domain.housekeeping import DaysDropped, DayTable, EventsPruned
from relay.domain.receipt import ReceiptOutcome
from relay.domain.telemetry import Listener, Loop, LoopHeldUp, LoopSucceeded, ReceiptsClosed
from relay.store.faults import StoreBusy
from relay.store.retention import OldDay, Pruned, Retention, Windows

EVERY_SECONDS = 60.0
OLD_EVERY_SECONDS = 3600.0
BATCH = 1000
SWEEP_BATCH = 500
SECRET_BATCH = 200
SECRET_GRACE_SECONDS = 3600.0
"""How long a secret stays that nothing signs with: whoever is at it with an older view is done by then."""
RESTS = 2.0
"""How much longer it rests after a step of the sweep than that took: there is no hurry, and others have work to do."""


class Pruner:
    """Prunes for the whole installation; any number may run beside each other."""

    def __init__(self, *, store: Retention, windows: Windows, ambient: Ambient, emit: Listener) -> None:
        self._store = store
        self._windows = windows
        self._ambient = ambient
        self._emit = emit
        self._is_held_up = False

    async def run(self) -> None:
        """Prune until cancelled. Raises `StoreUnavailable`, but for `StoreBusy` while old events are pruned: they are
        tried again in a minute."""
        due = self._ambient.monotonic()
        while True:
            await self._names()
            if self._ambient.monotonic() >= due and await self._old():
                due = self._ambient.monotonic() + OLD_EVERY_SECONDS
            await self._ambient.sleep(EVERY_SECONDS)

    async def _names(self) -> None:
        while True:
            keys = await self._store.prune_idempotency_keys(batch=BATCH)
            names = await self._store.prune_request_keys(batch=BATCH)
            signed = await self._store.prune_signed_requests(batch=BATCH)
            self._succeeded(keys + names + signed)
            if max(keys, names, signed) < BATCH:
                return

    async def _old(self) -> bool:
        """Everything about old events and secrets; whether nothing was in the way of any of it."""
        free = True
        for step in (self._expire, self._prune, self._sweep, self._forget):
            try:
                await step()
            except StoreBusy as fault:
                free, self._is_held_up = False, True
                self._emit(LoopHeldUp(Loop.PRUNER, str(fault), EVERY_SECONDS))
        if free and self._is_held_up:
            self._is_held_up = False
            self._succeeded(0)
        return free

    async def _expire(self) -> None:
        while True:
            expired = await self._store.expire_dead_letters(self._windows.dead_days, batch=BATCH)
            if expired.closed:
                self._emit(ReceiptsClosed(ReceiptOutcome.EXPIRED, expired.closed))
            self._succeeded(expired.dead_letters)
            if not expired.dead_letters:
                return

    async def _prune(self) -> None:
        """Look at each old day; one that is in use keeps no other from being looked at. Raises `StoreBusy`."""
        busy: list[StoreBusy] = []
        shortest = min(self._windows.delivered_days, self._windows.dead_days)
        for day in await self._store.days_to_prune(shortest):
            try:
                pruned = await self._store.prune_day(day, self._windows.delivered_days)
            except StoreBusy as fault:
                busy.append(fault)
                continue
            if pruned.result is Pruned.DROPPED:
                self._emit(DaysDropped(DayTable.JOURNAL, 1))
            if pruned.gone:
                self._emit(EventsPruned(day.isoformat(), pruned.gone, pruned.kept))
            self._succeeded(pruned.gone)
        if busy:
            raise busy[0]

    async def _sweep(self) -> None:
        for old in await self._store.days_to_sweep():
            await self._sweep_day(old)

    async def _sweep_day(self, old: OldDay) -> None:
        after = None
        while True:
            began = self._ambient.monotonic()
            swept = await self._store.sweep(old, after=after, batch=SWEEP_BATCH)
            self._succeeded(swept.receipts + swept.deliveries)
            if swept.reached is None:
                break
            after = swept.reached
            await self._ambient.sleep(RESTS * (self._ambient.monotonic() - began))
        await self._store.mark_swept(old)

    async def _forget(self) -> None:
        while True:
            changed = await self._store.forget_secrets(grace_seconds=SECRET_GRACE_SECONDS, batch=SECRET_BATCH)
            self._succeeded(changed)
            if not changed:
                return

    def _succeeded(self, handled: int) -> None:
        self._emit(LoopSucceeded(Loop.PRUNER, handled, whole=not self._is_held_up))
