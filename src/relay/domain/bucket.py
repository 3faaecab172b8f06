"""The token bucket of a lane: how many deliveries may leave now.

Owns the arithmetic; the state is kept in the database and shared by all dispatchers, whose statements do the same sums.
Instants are seconds on one clock, the database's. Those of transactions that run side by side may come out of order,
which adds no tokens; a clock that was set back further begins anew, with a full bucket. Invariant: what was taken and
not given back within any interval of t seconds in which the clock was not set back is at most burst + rate · t.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor

SET_BACK_SECONDS = 60.0
"""How far ahead of now an instant may lie because a transaction wrote it that began a little later. Beyond that the
clock was set back; to wait until it is where it was would close every lane in use for that long."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket that held `tokens` at the instant `at` and is refilled with `rate` tokens a second up to `burst`.

    `rate` is above 0 and `burst` at least 1. Both may change between two looks: more tokens than `burst` are cut off.
    """

    rate: float
    burst: float
    tokens: float
    at: float

    def available(self, now: float) -> float:
        """Tokens at this instant, fractions included."""
        if self._is_ahead(now):
            return self.burst
        return min(self.burst, self.tokens + self.rate * max(0.0, now - self.at))

    def take(self, now: float, wanted: int) -> tuple[Bucket, int]:
        """Take whole tokens, up to `wanted`: the bucket afterwards, and how many they were."""
        available = self.available(now)
        taken = min(wanted, floor(available))
        return self._holding(available - taken, now), taken

    def give_back(self, now: float, unused: int, taken_at: float) -> Bucket:
        """Return tokens that were taken at `taken_at` and not used.

        Had they never been taken, a full bucket would have let as many go to waste since then as it was refilled with.
        So only what exceeds that refill comes back, else the same time would be paid out twice.
        """
        wasted = self.rate * max(0.0, now - taken_at)
        returned = max(0.0, unused - wasted)
        return self._holding(min(self.burst, self.available(now) + returned), now)

    def next_token_in(self, now: float) -> float:
        """Seconds until a whole token is there; 0 if one is."""
        return max(0.0, 1 - self.available(now)) / self.rate

    def _holding(self, tokens: float, now: float) -> Bucket:
        return replace(self, tokens=tokens, at=now if self._is_ahead(now) else max(self.at, now))

    def _is_ahead(self, now: float) -> bool:
        return self.at - now > SET_BACK_SECONDS
