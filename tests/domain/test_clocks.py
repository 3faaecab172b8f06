"""Claims about the comparison of two clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from relay.domain.clocks import seconds_ahead

ASKED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("theirs", "took", "ahead"),
    [(0.0, 0.0, 0.0), (0.5, 1.0, 0.0), (0.0, 1.0, 0.0), (1.0, 1.0, 0.0), (-3.0, 1.0, 3.0), (4.0, 1.0, -3.0)],
)
def test_only_what_the_question_cannot_have_taken_is_a_difference(theirs: float, took: float, ahead: float) -> None:
    told = seconds_ahead(ASKED, ASKED + timedelta(seconds=theirs), ASKED + timedelta(seconds=took))
    assert told == ahead
