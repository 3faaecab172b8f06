"""How often loops look that step over what an old snapshot keeps, whatever that costs."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import replace

import pytest

from relay.dispatcher.alarm import Alarm
from relay.dispatcher.reaper import Reaper
from relay.dispatcher.reporter import LONGEST_SECONDS, Reporter
from relay.domain.housekeeping import QueueMeasured
from relay.store.database import Database
from relay.store.health import DEFAULT_PROMISES, SILENT_REPORTER_SECONDS, Health
from relay.store.queue import Queue
from tests.support.world import Ear, real_ambient


@pytest.mark.parametrize(
    ("took", "rests"), [(0.010, 5.0), (0.2, 5.0), (1.35, 25.65), (3.0, 30.0), (100.0, 30.0)], ids=str
)
async def test_a_measurement_takes_a_twentieth_of_the_time_and_there_is_one_every_half_minute(
    database: Database, took: float, rests: float
) -> None:
    """As long as nothing can be cleaned away one may take a second or more, of the two cores that there are."""
    rested: list[float] = []
    enough = asyncio.Event()
    clock = itertools.count(0.0, took)

    async def sleep(seconds: float) -> None:
        rested.append(seconds)
        if len(rested) == 2:
            enough.set()
            await asyncio.Event().wait()

    ear = Ear()
    ambient = replace(real_ambient(), monotonic=lambda: next(clock), sleep=sleep)
    reporter = Reporter(store=Health(database), promises=DEFAULT_PROMISES, ambient=ambient, emit=ear)
    running = asyncio.create_task(reporter.run())
    async with asyncio.timeout(10):
        await enough.wait()
    running.cancel()
    await asyncio.wait([running])
    assert rested == pytest.approx([rests, rests])
    assert len(ear.of(QueueMeasured)) == 2


def test_a_holder_that_rests_is_not_taken_for_one_that_is_gone() -> None:
    assert LONGEST_SECONDS + 5 < SILENT_REPORTER_SECONDS


async def test_the_reaper_rests_by_the_same_rule(database: Database) -> None:
    """Of two dispatchers each looks, and each look steps over every lease since the oldest snapshot."""
    rested: list[float] = []
    enough = asyncio.Event()
    clock = itertools.count(0.0, 1.35)

    async def sleep(seconds: float) -> None:
        rested.append(seconds)
        enough.set()
        await asyncio.Event().wait()

    ambient = replace(real_ambient(), monotonic=lambda: next(clock), sleep=sleep)
    reaper = Reaper(queue=Queue(database, database), alarm=Alarm(time.monotonic), ambient=ambient, emit=Ear())
    running = asyncio.create_task(reaper.run())
    async with asyncio.timeout(10):
        await enough.wait()
    running.cancel()
    await asyncio.wait([running])
    assert rested == pytest.approx([25.65])
