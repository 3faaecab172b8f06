"""The supervisor: keeps every loop running until the process stops.

Owns restarts. A loop that ends by an error is told of and started again, later each time up to a bound; a loop that
ran well for a while starts over at the shortest wait. A database that is away or busy holds a loop up; whatever else
ends one is a bug. Invariant: no loop of a running process is dead for longer than `LONGEST_RESTART_SECONDS`, and each
end was emitted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from relay.domain.ambient import Ambient
from relay.domain.telemetry import Listener, Loop, LoopCrashed, LoopHeldUp, LoopStarted, LoopStopped
from relay.store.faults import StoreUnavailable

FIRST_RESTART_SECONDS = 0.1
LONGEST_RESTART_SECONDS = 5.0
STEADY_SECONDS = 30.0
"""A loop that ran for so long has recovered: its next crash is its first again."""

CANCEL_AGAIN_SECONDS = 0.5


class LoopEnded(Exception):
    """A loop returned instead of running on."""


Body = Callable[[], Awaitable[None]]


async def supervise(loops: Mapping[Loop, Body], *, ambient: Ambient, emit: Listener) -> None:
    """Run every loop until this is cancelled, then return when each has ended."""
    tasks = {asyncio.create_task(_keep(loop, body, ambient, emit), name=loop) for loop, body in loops.items()}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await _end(tasks)
    for task in done:
        task.result()


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel until each has ended: before Python 3.12 `wait_for`, which the driver uses, may swallow a cancellation."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)


async def _keep(loop: Loop, body: Body, ambient: Ambient, emit: Listener) -> None:
    wait = FIRST_RESTART_SECONDS
    emit(LoopStarted(loop))
    try:
        while True:
            began = ambient.monotonic()
            fault = await _fault_of(loop, body)
            if ambient.monotonic() - began >= STEADY_SECONDS:
                wait = FIRST_RESTART_SECONDS
            emit(_told(loop, fault, wait))
            await ambient.sleep(wait)
            wait = min(wait * 2, LONGEST_RESTART_SECONDS)
    finally:
        emit(LoopStopped(loop))


def _told(loop: Loop, fault: Exception, wait: float) -> LoopHeldUp | LoopCrashed:
    return LoopHeldUp(loop, str(fault), wait) if isinstance(fault, StoreUnavailable) else LoopCrashed(loop, fault, wait)


async def _fault_of(loop: Loop, body: Body) -> Exception:
    """Run the loop until it fails, and answer how."""
    try:
        await body()
    except Exception as fault:  # noqa: BLE001 - a crash of any kind is what a supervisor is for
        return fault
    return LoopEnded(f"the {loop} returned, which no loop does by itself")
