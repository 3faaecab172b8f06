"""Claims about the look at a load: which samples make its costs."""

from __future__ import annotations

import pytest

from relay.loadtest.accounting import Spent
from relay.loadtest.watching import Sample, Watch
from relay.store.health import Log


def sample(at: float, *, posting: bool = False, owed: int = 0) -> Sample:
    """A sample of that second, at which everybody has spent as much as the clock shows."""
    return Sample(Spent(at, {"gateway": at}, Log(int(at) * 1_000, int(at) * 10)), owed, posting)


def test_a_load_costs_what_is_spent_from_before_its_first_post_until_nothing_is_owed_after_its_last() -> None:
    samples = [sample(1), sample(2), sample(3, posting=True), sample(4, posting=True), sample(5, owed=7), sample(6)]
    spent = Watch([*samples, sample(9)]).spent()
    assert spent == Spent(4.0, {"gateway": 4.0}, Log(4_000, 40))


def test_a_load_after_which_something_stays_owed_costs_what_is_spent_until_the_end() -> None:
    samples = [sample(1), sample(3, posting=True), sample(4, owed=7), sample(5, owed=7)]
    assert Watch(samples).spent().seconds == 4.0


def test_a_load_that_was_never_seen_has_no_costs() -> None:
    with pytest.raises(RuntimeError, match="no posts were seen"):
        Watch([sample(1), sample(2)]).spent()


def test_costs_are_told_of_each_delivery() -> None:
    cost = Spent(2.0, {"sink": 0.5}, Log(3_000, 5)).each(1_000)
    assert (cost.us, cost.wal_bytes, cost.commits) == ({"sink": 500.0}, 3.0, 0.005)
