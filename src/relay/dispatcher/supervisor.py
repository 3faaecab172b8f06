"""The supervisor: keeps every loop running until the process stops.

Owns restarts. A loop that ends by an error is told of and started again, later each time up to a bound; a loop that
ran well for a while starts over at the shortest wait. Invariant: no loop of a running process is dead for longer than
`LONGEST_RESTART_SECONDS`, and each crash was emitted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from relay.domain.ambient import Ambient
from relay.domain.telemetry import Listener, Loop, LoopCrashed, LoopStarted, LoopStopped

FIRST_RESTART_SECONDS = 0.1
LONGEST_RESTART_SECONDS = 5.0
STEADY_SECONDS = 30.0
"""A loop that ran for so long has recovered: its next crash is its first again."""

Body = Callable[[], Awaitable[None]]


async def supervise(loops: Mapping[Loop, Body], *, ambient: Ambient, emit: Listener) -> None:
    """Run every loop until this is cancelled, then wait until each has ended."""
    async with asyncio.TaskGroup() as group:
        for loop, body in loops.items():
            group.create_task(_keep(loop, body, ambient, emit), name=loop)


async def _keep(loop: Loop, body: Body, ambient: Ambient, emit: Listener) -> None:
    wait = FIRST_RESTART_SECONDS
    emit(LoopStarted(loop))
    try:
        while True:
            began = ambient.monotonic()
            try:
                await body()
                return
            except Exception as fault:  # noqa: BLE001 - a crash of any kind is what a supervisor is for
                if ambient.monotonic() - began >= STEADY_SECONDS:
                    wait = FIRST_RESTART_SECONDS
                emit(LoopCrashed(loop, fault, wait))
            await ambient.sleep(wait)
            wait = min(wait * 2, LONGEST_RESTART_SECONDS)
    finally:
        emit(LoopStopped(loop))
