"""A world for tests: a clock that only moves when told, and a listener that can be waited on."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from relay.domain.ambient import Ambient
from relay.domain.telemetry import Happening

Kind = TypeVar("Kind")


def real_ambient() -> Ambient:
    """The real clocks and chance, for tests of rooms against real servers."""
    return Ambient(
        now=lambda: datetime.now(UTC),
        monotonic=time.monotonic,
        entropy=os.urandom,
        draw=random.random,
        sleep=asyncio.sleep,
    )


class Ear:
    """Hears every happening; tests wait for one with a deadline instead of sleeping."""

    def __init__(self) -> None:
        self.heard: list[Happening] = []
        self._changed = asyncio.Event()

    def __call__(self, happening: Happening) -> None:
        self.heard.append(happening)
        self._changed.set()

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Everything of one kind that was heard so far."""
        return [each for each in self.heard if isinstance(each, kind)]

    async def until(self, holds: Callable[[], bool], within: float = 10.0) -> None:
        """Return once `holds()`, looked at after each happening. Raises `TimeoutError`."""
        async with asyncio.timeout(within):
            while not holds():
                self._changed.clear()
                await self._changed.wait()
