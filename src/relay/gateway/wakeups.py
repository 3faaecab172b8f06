"""Telling dispatchers that something is due.

Owns the moment of it: after the append, apart from it, one call at a time. What becomes due meanwhile
shares the next one. Invariant: a wake-up that fails delays a delivery until the next poll, and harms nothing else.
"""

from __future__ import annotations

import asyncio
import logging

from relay.store.faults import StoreRefused, StoreUnavailable
from relay.store.wakeups import WakeupSender

logger = logging.getLogger(__name__)


class Wakeups:
    """The wake-ups of one process."""

    def __init__(self, sender: WakeupSender) -> None:
        self._sender = sender
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
                self._wanted = False
                await self._sender.send()
        except (StoreUnavailable, StoreRefused) as fault:  # refused: the server's queue of notifications is full
            self._wanted = False
            logger.warning("wakeup_not_sent", extra={"fields": {"detail": str(fault)}})
        finally:
            self._sending = None

    async def finish(self, within: float) -> None:
        """Wait for the wake-up that is under way, for `within` seconds, and end it then."""
        if self._sending is not None:
            _, unfinished = await asyncio.wait([self._sending], timeout=within)
            for task in unfinished:
                task.cancel()
                await asyncio.wait([task])
