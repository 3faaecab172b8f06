"""How long loops rest whose looks may become dear."""

from __future__ import annotations

import pytest

from relay.domain.housekeeping import rest_seconds


@pytest.mark.parametrize(
    ("took", "rests"), [(0.0, 5.0), (0.26, 5.0), (0.27, 5.13), (1.35, 25.65), (1.6, 30.0), (100.0, 30.0)], ids=str
)
def test_a_look_gets_a_twentieth_of_the_time_within_the_bounds_of_a_rest(took: float, rests: float) -> None:
    assert rest_seconds(took, every=5.0, longest=30.0) == pytest.approx(rests)
