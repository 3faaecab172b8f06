"""When posts are due: fixed before the first one leaves, so that nothing that happens can move them.

Owns the arithmetic of arrival times. Invariant: the same rate, number, kind and seed give the same times.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_right
from enum import StrEnum


class Arrivals(StrEnum):
    """How posts are spread over the time."""

    CONSTANT = "constant"
    POISSON = "poisson"


class Schedule:
    """Seconds from the beginning at which each post is due, in order."""

    def __init__(self, rate: float, number: int, arrivals: Arrivals = Arrivals.CONSTANT, seed: int = 0) -> None:
        """So many posts at `rate` per second: at even distances, or each as long after the last as chance has it."""
        if arrivals is Arrivals.CONSTANT:
            self._due = array("d", (place / rate for place in range(number)))
        else:
            chance = random.Random(seed)  # noqa: S311 - arrivals of a measurement, to be repeated by their seed
            at, due = 0.0, array("d")
            for _ in range(number):
                at += chance.expovariate(rate)
                due.append(at)
            self._due = due

    def __len__(self) -> int:
        return len(self._due)

    def due(self, place: int) -> float:
        """When the post in this place is due."""
        return self._due[place]

    def until(self, elapsed: float, sent: int) -> int:
        """How many posts are due by now, given that the first `sent` of them were."""
        return bisect_right(self._due, elapsed, sent)
