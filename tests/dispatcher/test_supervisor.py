"""A crashed loop is told of and started again; a cancelled one ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from relay.dispatcher.supervisor import (
    FIRST_RESTART_SECONDS,
    LONGEST_RESTART_SECONDS,
    STEADY_SECONDS,
    LoopEnded,
    supervise,
)
from relay.domain.telemetry import Loop, LoopCrashed, LoopHeldUp, LoopStopped
from relay.store.faults import StoreBusy, StoreRefused, StoreUnavailable
from tests.support.world import Ear, real_ambient


class Broken(Exception):
    """What the loops of these tests crash with."""


async def crash_waits(*, runs: int, lasting: float) -> list[float]:
    """The waits between so many crashes of a loop that runs for `lasting` seconds each time."""
    ear, now, done = Ear(), [0.0], asyncio.Event()
    count = 0

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    async def body() -> None:
        nonlocal count
        now[0] += lasting
        count += 1
        if count > runs:
            done.set()
            await asyncio.Event().wait()
        raise Broken

    ambient = replace(real_ambient(), monotonic=lambda: now[0], sleep=sleep)
    task = asyncio.create_task(supervise({Loop.REAPER: body}, ambient=ambient, emit=ear))
    async with asyncio.timeout(20):
        await done.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ear.of(LoopStopped) == [LoopStopped(Loop.REAPER)]
    return [crash.restart_seconds for crash in ear.of(LoopCrashed)]


async def test_restarts_wait_longer_each_time_up_to_a_bound() -> None:
    waits = await crash_waits(runs=9, lasting=0.0)
    assert waits[:3] == [FIRST_RESTART_SECONDS, 2 * FIRST_RESTART_SECONDS, 4 * FIRST_RESTART_SECONDS]
    assert waits[-1] == LONGEST_RESTART_SECONDS


async def test_a_loop_that_ran_well_starts_over_at_the_shortest_wait() -> None:
    assert await crash_waits(runs=4, lasting=STEADY_SECONDS) == [FIRST_RESTART_SECONDS] * 4


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (StoreUnavailable("away"), LoopHeldUp(Loop.REAPER, "away", FIRST_RESTART_SECONDS)),
        (StoreBusy("locked"), LoopHeldUp(Loop.REAPER, "locked", FIRST_RESTART_SECONDS)),
        (refused := StoreRefused("no such value"), LoopCrashed(Loop.REAPER, refused, FIRST_RESTART_SECONDS)),
        (bug := Broken(), LoopCrashed(Loop.REAPER, bug, FIRST_RESTART_SECONDS)),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_a_fault_of_the_world_holds_a_loop_up_and_a_bug_crashes_it(
    fault: Exception, told: LoopHeldUp | LoopCrashed
) -> None:
    ear = Ear()

    async def body() -> None:
        raise fault

    task = asyncio.create_task(supervise({Loop.REAPER: body}, ambient=real_ambient(), emit=ear))
    await ear.until(lambda: bool(ear.of(type(told))))
    task.cancel()
    await asyncio.wait([task])
    assert next(each for each in ear.heard if isinstance(each, LoopHeldUp | LoopCrashed)) == told


async def test_one_crashing_loop_leaves_the_others_running() -> None:
    """Case C117: a loop that dies is told of and started again; no process goes on half alive."""
    ear, steady = Ear(), asyncio.Event()

    async def broken() -> None:
        raise Broken

    async def calm() -> None:
        await ear.until(lambda: len(ear.of(LoopCrashed)) >= 2)
        steady.set()
        await asyncio.Event().wait()

    loops = {Loop.REAPER: broken, Loop.HEARTBEAT: calm}
    task = asyncio.create_task(supervise(loops, ambient=real_ambient(), emit=ear))
    async with asyncio.timeout(20):
        await steady.wait()
    assert {crash.loop for crash in ear.of(LoopCrashed)} == {Loop.REAPER}
    task.cancel()
    await asyncio.wait([task])


async def test_a_loop_that_swallows_a_cancellation_is_cancelled_again() -> None:
    swallowed, began = 0, asyncio.Event()

    async def stubborn() -> None:
        nonlocal swallowed
        began.set()
        while swallowed < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
        await asyncio.Event().wait()

    task = asyncio.create_task(supervise({Loop.REAPER: stubborn}, ambient=real_ambient(), emit=Ear()))
    await began.wait()
    task.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait([task])
    assert swallowed == 2


async def test_a_loop_that_returns_is_told_of_and_started_again() -> None:
    ear, again = Ear(), asyncio.Event()
    runs = 0

    async def body() -> None:
        nonlocal runs
        runs += 1
        if runs == 2:
            again.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(supervise({Loop.REAPER: body}, ambient=real_ambient(), emit=ear))
    async with asyncio.timeout(20):
        await again.wait()
    assert [type(crash.error) for crash in ear.of(LoopCrashed)] == [LoopEnded]
    task.cancel()
    await asyncio.wait([task])
