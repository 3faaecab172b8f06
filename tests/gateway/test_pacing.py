"""Claims about the pace of appends."""

from __future__ import annotations

import pytest

from relay.gateway.pacing import CROWD, LONGEST_SECONDS, Pace


def test_the_first_append_waits_for_nobody() -> None:
    assert Pace().rest(100.0) == 0.0


@pytest.mark.parametrize("requests", [0, 1, CROWD - 1])
def test_behind_an_append_for_few_none_waits(requests: int) -> None:
    pace = Pace()
    pace.ended(100.0, 100.004, requests)
    assert pace.rest(100.004) == 0.0


@pytest.mark.parametrize(("later", "rest"), [(0.0, 0.004), (0.001, 0.003), (0.004, 0.0), (60.0, 0.0)])
def test_behind_an_append_for_many_the_next_begins_as_long_again_as_that_took(later: float, rest: float) -> None:
    pace = Pace()
    pace.ended(100.0, 100.004, CROWD)
    assert pace.rest(100.004 + later) == pytest.approx(rest, abs=1e-9)


def test_an_append_that_took_long_keeps_the_next_one_no_longer_than_the_bound() -> None:
    pace = Pace()
    pace.ended(100.0, 104.0, 1_000)
    assert pace.rest(104.0) == pytest.approx(LONGEST_SECONDS)


def test_an_append_for_few_ends_the_wait_for_more() -> None:
    pace = Pace()
    pace.ended(100.0, 100.01, CROWD)
    pace.ended(100.011, 100.012, 1)
    assert pace.rest(100.012) == 0.0
