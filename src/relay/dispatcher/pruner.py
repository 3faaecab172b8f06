"""The pruner: removes what is no longer kept.

Owns one loop. Invariant: what is over is gone within `EVERY_SECONDS` and the time that its removal takes, in batches
short enough to be in nobody's way.
"""

from __future__ import annotations

from relay.domain.ambient import Ambient
from relay.domain.telemetry import Listener, Loop, LoopSucceeded
from relay.store.retention import Retention

EVERY_SECONDS = 60.0
BATCH = 1000


class Pruner:
    """Prunes for the whole installation; any number may run beside each other."""

    def __init__(self, *, store: Retention, ambient: Ambient, emit: Listener) -> None:
        self._store = store
        self._ambient = ambient
        self._emit = emit

    async def run(self) -> None:
        """Prune until cancelled. Raises `StoreUnavailable`."""
        while True:
            keys = await self._store.prune_idempotency_keys(batch=BATCH)
            names = await self._store.prune_request_keys(batch=BATCH)
            signed = await self._store.prune_signed_requests(batch=BATCH)
            self._emit(LoopSucceeded(Loop.PRUNER, keys + names + signed))
            if max(keys, names, signed) < BATCH:
                await self._ambient.sleep(EVERY_SECONDS)
