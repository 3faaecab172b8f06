"""Claims about when wake-ups are sent, by a clock that moves by the pauses that are made."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from relay.gateway.wakeups import SPACING_SECONDS, Wakeups
from relay.store.wakeups import WakeupSender
from tests.support.world import real_ambient


@dataclass
class Clock:
    """What time it is, and when something was sent."""

    now: float = 100.0
    sent_at: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        """Let so much time pass at once, and whoever wants to have a turn."""
        await asyncio.sleep(0)
        self.now += seconds

    async def send(self) -> None:
        """Take nobody's time."""
        self.sent_at.append(self.now)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def wakeups(clock: Clock) -> Wakeups:
    """Wake-ups that are sent by that clock."""
    return Wakeups(cast("WakeupSender", clock), replace(real_ambient(), monotonic=lambda: clock.now, sleep=clock.sleep))


async def test_a_wakeup_in_a_quiet_system_is_sent_at_once(wakeups: Wakeups, clock: Clock) -> None:
    wakeups.announce()
    await wakeups.finish(10.0)
    clock.now += SPACING_SECONDS
    wakeups.announce()
    await wakeups.finish(10.0)
    assert clock.sent_at == [100.0, 100.0 + SPACING_SECONDS]


async def test_what_becomes_due_right_behind_a_wakeup_shares_the_next_one(wakeups: Wakeups, clock: Clock) -> None:
    wakeups.announce()
    await wakeups.finish(10.0)
    for _ in range(5):
        clock.now += SPACING_SECONDS / 10
        wakeups.announce()
    await wakeups.finish(10.0)
    assert clock.sent_at == [100.0, pytest.approx(100.0 + SPACING_SECONDS)]


async def test_what_becomes_due_while_a_wakeup_waits_for_its_moment_needs_none_of_its_own(
    wakeups: Wakeups, clock: Clock
) -> None:
    wakeups.announce()
    await wakeups.finish(10.0)
    wakeups.announce()
    await asyncio.sleep(0)
    wakeups.announce()
    await wakeups.finish(10.0)
    assert len(clock.sent_at) == 2
