"""Lines of times for a person.

Owns the columns of all reports. Invariant: a row's numbers stand below the names that they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_TITLE = 34
SHOWN = ("p50", "p95", "p99", "max")
ALL_SHOWN = ("p50", "p90", "p95", "p99", "p99.9", "max")


def times_head(title: str, shown: Sequence[str] = SHOWN) -> str:
    """The line above `times_row`s."""
    return f"{title:{_TITLE}}" + "".join(f"{name:>10}" for name in shown)


def times_row(title: str, times: Mapping[str, float], shown: Sequence[str] = SHOWN) -> str:
    """One line of a table: percentiles in milliseconds."""
    return f"{title:{_TITLE}}" + "".join(f"{times[name]:10.1f}" for name in shown)
