"""A gateway's clock, held against the database's: an event is received by the one, and all else happens by the other.

Owns one loop; a dispatcher's heartbeat does the same for its own. Invariant: whatever becomes of the database, the
gateway goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from relay.domain.ambient import Ambient
from relay.domain.clocks import seconds_ahead
from relay.domain.telemetry import ClockCompared, Listener
from relay.store.faults import StoreUnavailable
from relay.store.health import Health


@asynccontextmanager
async def comparing(health: Health, world: Ambient, *, every_seconds: float, emit: Listener) -> AsyncIterator[None]:
    """Tell inside the block, every so many seconds, by how much this machine's clock is ahead of the database's."""
    task = asyncio.create_task(_compare(health, world, every_seconds, emit), name="comparing clocks")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _compare(health: Health, world: Ambient, every_seconds: float, emit: Listener) -> None:
    while True:
        asked = world.now()
        try:
            theirs = await health.instant()
        except StoreUnavailable:
            pass  # readiness and every append say so; what was told of the clock last stays
        else:
            emit(ClockCompared(seconds_ahead(asked, theirs, world.now())))
        await world.sleep(every_seconds)
