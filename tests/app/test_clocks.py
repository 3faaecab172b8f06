"""Claims about the comparison of a gateway's clock with its database's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from relay.app.clocks import comparing
from relay.domain.telemetry import ClockCompared, Happening
from relay.store.database import Database
from relay.store.faults import StoreUnavailable
from relay.store.health import Health
from tests.support.world import real_ambient

DEADLINE = 30.0
SLACK_SECONDS = 10.0


class Away(Health):
    """A database that is away when it is asked first."""

    asked = 0

    async def instant(self) -> datetime:
        """The same, but for the first time."""
        self.asked += 1
        if self.asked == 1:
            raise StoreUnavailable("away")
        return await super().instant()


async def told(health: Health, minutes: int) -> float:
    """What a gateway tells first whose clock is so far ahead."""
    heard: asyncio.Queue[Happening] = asyncio.Queue()
    ambient = replace(real_ambient(), now=lambda: datetime.now(UTC) + timedelta(minutes=minutes))
    async with asyncio.timeout(DEADLINE), comparing(health, ambient, every_seconds=0.01, emit=heard.put_nowait):
        happening = await heard.get()
    assert isinstance(happening, ClockCompared)
    return happening.ahead_seconds


@pytest.mark.parametrize("minutes", [5, 0, -5])
@pytest.mark.parametrize("kind", [Health, Away])
async def test_by_how_much_a_gateways_clock_is_wrong_is_told(
    database_dsn: str, kind: type[Health], minutes: int
) -> None:
    database = await Database.connect(database_dsn, name="t", size=1)
    try:
        ahead = await told(kind(database), minutes)
    finally:
        await database.close()
    assert abs(ahead - minutes * 60) < SLACK_SECONDS
    assert ahead == 0 if minutes == 0 else ahead * minutes > 0
