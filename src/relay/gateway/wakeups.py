"""Telling dispatchers that something is due.

Owns the moment of it: after the append, apart from it, one call at a time. What becomes due meanwhile, or within
`SPACING_SECONDS` of the last call, shares the next one: a dispatcher that was just woken looks again after as long
anyway, and each call costs two processes here and one of each dispatcher's. Invariant: a wake-up that fails delays a
delivery until the next poll, and harms nothing else.
"""

from __future__ import annotations

import asyncio
import logging

from relay.domain.ambient import Ambient
from relay.store.faults import StoreRefused, StoreUnavailable
from relay.store.wakeups import WakeupSender

SPACING_SECONDS = 0.01
"""From the beginning of one call to that of the next: the pace of a dispatcher's claims."""

logger = logging.getLogger(__name__)


class Wakeups:
    """The wake-ups of one process."""

    def __init__(self, sender: WakeupSender, ambient: Ambient) -> None:
        self._sender = sender
        self._ambient = ambient
        self._not_before = 0.0
        self._wanted = False
        self._sending: asyncio.Task[None] | None = None

    def announce(self) -> None:
        """Have a wake-up sent, soon."""
        self._wanted = True
        if self._sending is None:
            self._sending = asyncio.create_task(self._send(), name="wake-ups")

    async def _send(self) -> None:
        try:
            while self._wanted:
                await self._keep_apart()
                self._wanted = False
                await self._sender.send()
        except (StoreUnavailable, StoreRefused) as fault:  # refused: the server's queue of notifications is full
            self._wanted = False
            logger.warning("wakeup_not_sent", extra={"fields": {"detail": str(fault)}})
        finally:
            self._sending = None

    async def _keep_apart(self) -> None:
        now = self._ambient.monotonic()
        if now < self._not_before:
            await self._ambient.sleep(self._not_before - now)
        self._not_before = max(now, self._not_before) + SPACING_SECONDS

    async def finish(self, within: float) -> None:
        """Wait for the wake-up that is under way, for `within` seconds, and end it then."""
        if self._sending is not None:
            _, unfinished = await asyncio.wait([self._sending], timeout=within)
            for task in unfinished:
                task.cancel()
                await asyncio.wait([task])
