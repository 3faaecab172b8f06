"""Two machines' clocks, compared by a question and its answer.

Owns the sum. Invariant: a difference is told only where the time that the question took cannot explain it.
"""

from __future__ import annotations

from datetime import datetime


def seconds_ahead(asked: datetime, theirs: datetime, answered: datetime) -> float:
    """By how many seconds our clock, which showed `asked` and `answered`, is at least ahead of the one that showed
    `theirs` at some moment in between; negative where it is behind, 0 where nothing says that they differ."""
    if theirs < asked:
        return (asked - theirs).total_seconds()
    return min((answered - theirs).total_seconds(), 0.0)
