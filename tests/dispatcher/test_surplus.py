"""What of a full lane a consumer keeps, and what it passes on, how often."""

from __future__ import annotations

from uuid import UUID

import pytest

from relay.dispatcher.lanes import FIRST_WINDOW, Lanes
from relay.dispatcher.surplus import KEPT_WINDOWS, LONGEST_PASS_SECONDS, PASS_SECONDS, Surplus

LANE, OTHER = UUID(int=1), UUID(int=2)
KEPT = KEPT_WINDOWS * FIRST_WINDOW


def shared(lanes: Lanes) -> Surplus:
    """As in a fleet."""
    surplus = Surplus(lanes)
    surplus.is_wanted = True
    return surplus


def left(number: int, lane: UUID = LANE) -> list[tuple[UUID, UUID]]:
    return [(UUID(int=100 * lane.int + each), lane) for each in range(number)]


def test_what_two_windows_take_is_kept() -> None:
    assert shared(Lanes(100)).of(left(KEPT), 0.0) == []


def test_a_dispatcher_that_is_alone_keeps_everything() -> None:
    assert Surplus(Lanes(100)).of(left(500), 0.0) == []


def test_what_is_beyond_that_is_passed_on_and_what_comes_first_is_kept() -> None:
    assert shared(Lanes(100)).of(left(KEPT + 2), 0.0) == [delivery for delivery, _ in left(KEPT + 2)[KEPT:]]


@pytest.mark.parametrize(("window", "peak", "kept"), [(10, 10, 20), (10, 3, 6), (1, 10, 2)])
def test_how_much_is_kept_goes_by_the_window_and_by_what_the_endpoint_has_allowed(
    window: int, peak: int, kept: int
) -> None:
    lanes = Lanes(100)
    for lane in [lanes.enter(LANE, 0.0) for _ in range(peak)]:
        lane.window = window
        lanes.leave(lane)
    assert len(shared(lanes).of(left(50), 0.0)) == 50 - kept


def test_each_lane_has_its_own_pause() -> None:
    surplus = shared(Lanes(100))
    assert len(surplus.of(left(KEPT + 1), 0.0)) == 1
    assert surplus.of([*left(KEPT + 1), *left(KEPT + 1, OTHER)], 0.0) == [left(KEPT + 1, OTHER)[-1][0]]


def test_a_lane_that_always_has_too_much_is_passed_on_seldom() -> None:
    """As where the windows of the whole fleet are full, and what is passed on comes back at once."""
    surplus, passes = shared(Lanes(100)), 0
    for hundredths in range(6_000):
        passes += bool(surplus.of(left(KEPT + 50), hundredths / 100))
    assert passes <= 60 / LONGEST_PASS_SECONDS + 6


def test_a_lane_that_had_no_surplus_for_long_passes_on_at_once() -> None:
    surplus = shared(Lanes(100))
    for hundredths in range(6_000):
        surplus.of(left(KEPT + 1), hundredths / 100)
    began = 60.0 + 2 * LONGEST_PASS_SECONDS
    assert surplus.of(left(KEPT), began) == []
    assert len(surplus.of(left(KEPT + 1), began)) == 1
    assert surplus.of(left(KEPT + 1), began + PASS_SECONDS / 2) == []
    assert len(surplus.of(left(KEPT + 1), began + PASS_SECONDS)) == 1
