"""When the next append begins.

Owns the pace of one process's appends. Each costs a round trip, a commit and the locks of its heads, whatever it holds:
as much as fifteen events do. So where requests come thick, the next append waits as long again as the last one took,
and more of them share it; the longer appends take, because the machine is busy, the fewer there are. Where requests
come singly none waits, nor would company come. Invariant: between two appends lies no more than the time of the first,
and never more than `LONGEST_SECONDS`.
"""

from __future__ import annotations

CROWD = 4
"""Requests in one append by which they come thick: so many came while the one before it was under way."""

LONGEST_SECONDS = 0.01


class Pace:
    """The pace of one process; times are seconds of its monotonic clock."""

    def __init__(self) -> None:
        self._not_before = 0.0

    def ended(self, began: float, now: float, requests: int) -> None:
        """An append for so many requests that began at that moment has ended."""
        self._not_before = now + min(now - began, LONGEST_SECONDS) if requests >= CROWD else now

    def rest(self, now: float) -> float:
        """How many seconds the next one has to wait."""
        return max(0.0, self._not_before - now)
