"""The way to a broker and back, by a clock of the test's own."""

from __future__ import annotations

import pytest

from relay.dispatcher.alarm import Alarm
from relay.dispatcher.mode import LONGEST_REST_SECONDS, REST_SECONDS, STEADY_SECONDS, Mode
from relay.domain.telemetry import BrokerModeChanged, Loop
from tests.support.world import Ear


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def mode(clock: Clock, ear: Ear) -> Mode:
    made = Mode(alarm=Alarm(clock), clock=clock, emit=ear)
    made.served(Loop.CLAIMER)
    return made


def rests(mode: Mode, clock: Clock, *, losses: int, serving: float) -> list[float]:
    """How long it rests after each of some losses, between which it served for so long."""
    found = []
    for _ in range(losses):
        clock.now += serving
        mode.lost(Loop.CLAIMER, "gone")
        found.append(mode.rest_seconds)
        clock.now += mode.rest_seconds
        mode.served(Loop.CLAIMER)
    return found


def test_a_broker_that_is_lost_at_once_each_time_rests_twice_as_long_up_to_the_longest(
    mode: Mode, clock: Clock
) -> None:
    assert rests(mode, clock, losses=8, serving=0.1) == [1, 2, 4, 8, 16, 32, 60, 60]


def test_one_that_has_served_steadily_rests_for_the_shortest(mode: Mode, clock: Clock) -> None:
    rests(mode, clock, losses=8, serving=0.1)
    assert rests(mode, clock, losses=3, serving=STEADY_SECONDS) == [REST_SECONDS] * 3


@pytest.mark.parametrize("loop", [Loop.CLAIMER, Loop.PUBLISHER])
def test_while_it_rests_nobody_is_ready_whatever_it_answers(mode: Mode, clock: Clock, loop: Loop) -> None:
    mode.lost(loop, "refuses this")
    for told in (Loop.CLAIMER, Loop.PUBLISHER):
        mode.served(told)
    assert (mode.is_active, mode.trouble) == (False, "refuses this")
    clock.now += REST_SECONDS
    mode.served(loop)
    assert (mode.is_active, mode.trouble) == (True, "")


def test_each_change_is_told_once(mode: Mode, clock: Clock, ear: Ear) -> None:
    for reason in ("a", "b"):
        mode.lost(Loop.CLAIMER, reason)
        mode.lost(Loop.PUBLISHER, reason)
    clock.now += LONGEST_REST_SECONDS
    for _ in range(2):
        mode.served(Loop.CLAIMER)
        mode.served(Loop.PUBLISHER)
    told = [(each.active, each.reason) for each in ear.of(BrokerModeChanged)]
    assert told == [(True, ""), (False, "a"), (True, "")]
