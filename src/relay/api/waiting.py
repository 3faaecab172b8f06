"""Waiting for receipts to close: many who wait, one question to the database.

Owns who waits for what, and the loop that looks for all of them together. Invariant: while nobody waits nothing is
asked and nothing runs; while anybody does, one statement is under way at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from uuid import UUID

from relay.domain.ambient import Ambient
from relay.store.receipts import Receipts
from relay.web.problems import ErrorCode, refuse

LOOK_SECONDS = 0.05
"""How long the loop rests between two looks."""

MOST_WAITING = 1_000
"""How many calls of one process may wait at once: a statement asks for as many receipts."""


class Waiting:
    """Those who wait in one process. `is_draining` says that nobody is to be kept any longer."""

    def __init__(
        self,
        *,
        receipts: Receipts,
        ambient: Ambient,
        is_draining: Callable[[], bool],
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._receipts = receipts
        self._ambient = ambient
        self._is_draining = is_draining
        self._most_waiting = most_waiting
        self._waiters: dict[UUID, set[asyncio.Future[None]]] = {}
        self._count = 0
        self._looking: asyncio.Task[None] | None = None

    async def until_closed(self, receipt: UUID, *, seconds: float, gone: asyncio.Future[None]) -> None:
        """Return once the receipt is closed, the time is over, the process drains or the client is `gone`.

        Raises `Refused` (`overloaded`), and whatever keeps the loop from looking, such as `StoreUnavailable`.
        """
        if self._count >= self._most_waiting:
            raise refuse(ErrorCode.OVERLOADED, "too many calls wait for receipts here; ask again in a moment")
        waiter = self._join(receipt)
        try:
            await asyncio.wait({waiter, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if waiter.done():
                await waiter
        finally:
            self._leave(receipt, waiter)

    def _join(self, receipt: UUID) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(receipt, set()).add(waiter)
        self._count += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="waiting for receipts")
        return waiter

    def _leave(self, receipt: UUID, waiter: asyncio.Future[None]) -> None:
        waiter.cancel()
        self._count -= 1
        among = self._waiters.get(receipt, set())
        among.discard(waiter)
        if not among:
            self._waiters.pop(receipt, None)

    async def _look(self) -> None:
        """Look until nobody waits; what goes wrong is told to all who wait now."""
        try:
            while self._waiters:
                if self._is_draining():
                    self._tell(self._waiters)
                    return
                self._tell(await self._receipts.closed_among(list(self._waiters)))
                if self._waiters:
                    await self._ambient.sleep(LOOK_SECONDS)
        except Exception as fault:  # noqa: BLE001 - it is raised again for each who waits
            self._tell(self._waiters, fault)
        finally:
            self._looking = None

    def _tell(self, receipts: Collection[UUID], fault: Exception | None = None) -> None:
        for receipt in list(receipts):
            for waiter in self._waiters.pop(receipt, ()):
                if waiter.done():
                    continue
                if fault is None:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(fault)
