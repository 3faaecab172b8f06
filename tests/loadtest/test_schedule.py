"""Claims about when posts are due."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from relay.loadtest.schedule import Arrivals, Schedule


def times(schedule: Schedule) -> list[float]:
    return [schedule.due(place) for place in range(len(schedule))]


def test_constant_arrivals_are_at_even_distances_from_the_beginning_on() -> None:
    assert times(Schedule(4, 5)) == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_arrivals_by_chance_come_at_the_wanted_rate_in_order() -> None:
    drawn = times(Schedule(100, 20_000, Arrivals.POISSON, seed=7))
    assert drawn == sorted(drawn)
    assert drawn[-1] == pytest.approx(200, rel=0.03)


def test_arrivals_by_chance_are_unevenly_spread_as_those_of_independent_senders_are() -> None:
    """Of a Poisson process the distances vary as much as they are long; the share of short ones is known."""
    drawn = times(Schedule(100, 20_000, Arrivals.POISSON, seed=7))
    short = sum(later - earlier < 0.001 for earlier, later in pairwise(drawn)) / len(drawn)
    assert short == pytest.approx(1 - math.exp(-0.1), rel=0.1)


def test_a_seed_gives_the_same_times_again_and_another_one_others() -> None:
    first, again, other = (times(Schedule(100, 50, Arrivals.POISSON, seed)) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    ("elapsed", "sent", "due"), [(0.0, 0, 1), (0.24, 1, 1), (0.25, 1, 2), (0.6, 0, 3), (9.0, 2, 5)]
)
def test_what_is_due_by_now_is_counted_from_what_was_sent_on(elapsed: float, sent: int, due: int) -> None:
    assert Schedule(4, 5).until(elapsed, sent) == due
