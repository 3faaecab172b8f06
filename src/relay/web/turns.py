"""Taking turns at one thing, tenant by tenant.

Owns the order: whoever waits is served in the order of coming within its tenant, and the tenants one after the other.
Invariant: however many wait of one tenant, another one's next waits for one of them at most, besides the one under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """The turns at one thing."""

    def __init__(self) -> None:
        # in the order of their next turns
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_taken = False

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """One turn, for as long as the block lasts."""
        await self.take(tenant)
        try:
            yield
        finally:
            self.give()

    async def take(self, tenant: str) -> None:
        """Wait for a turn; `give` must follow."""
        if not self._is_taken:
            self._is_taken = True
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.cancelled():
                self._leave(tenant, mine)
            else:
                # the turn came in the moment of leaving
                self.give()
            raise

    def give(self) -> None:
        """End a turn: the next one's begins."""
        while self._waiting:
            tenant = next(iter(self._waiting))
            line = self._waiting.pop(tenant)
            following = line.popleft()
            if line:
                self._waiting[tenant] = line
            if not following.done():
                following.set_result(None)
                return
        self._is_taken = False

    def _leave(self, tenant: str, mine: asyncio.Future[None]) -> None:
        line = self._waiting.get(tenant)
        if line is not None and mine in line:
            line.remove(mine)
            if not line:
                del self._waiting[tenant]
