"""The alarm rings when it should, and a ring is not lost."""

from __future__ import annotations

import asyncio
import time

import pytest

from relay.dispatcher.alarm import Alarm


async def test_a_ring_before_the_wait_ends_it_at_once() -> None:
    alarm = Alarm(time.monotonic)
    alarm.ring()
    async with asyncio.timeout(20):
        await alarm.wait(60)


async def test_a_reset_forgets_the_rings_so_far() -> None:
    alarm = Alarm(time.monotonic)
    alarm.ring()
    alarm.reset()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await alarm.wait(60)


async def test_the_earliest_expected_time_counts() -> None:
    alarm = Alarm(time.monotonic)
    alarm.expect(60)
    alarm.expect(0.01)
    alarm.expect(30)
    async with asyncio.timeout(20):
        await alarm.wait(60)


async def test_an_expected_time_that_has_passed_ends_one_wait_only() -> None:
    now = [0.0]
    alarm = Alarm(lambda: now[0])
    alarm.expect(1.0)
    now[0] = 2.0
    async with asyncio.timeout(20):
        await alarm.wait(60)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await alarm.wait(60)


async def test_a_wait_ends_at_its_limit() -> None:
    async with asyncio.timeout(20):
        await Alarm(time.monotonic).wait(0.01)


async def test_an_expected_time_ends_a_wait_that_is_under_way() -> None:
    alarm = Alarm(time.monotonic)
    waiting = asyncio.create_task(alarm.wait(60))
    await asyncio.wait([waiting], timeout=0.02)
    alarm.expect(0.01)
    async with asyncio.timeout(20):
        await waiting
