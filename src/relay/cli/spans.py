"""Times as a person reads them: how long something took, and when it happened after something else.

Owns the words of a span. Invariant: a span is one number with one decimal, with its unit behind it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

_SECOND, _MINUTE, _HOUR, _DAY = 1000.0, 60_000.0, 3_600_000.0, 86_400_000.0

TICKS = (
    *((1.0, "1 ms"), (10.0, "10 ms"), (100.0, "100 ms"), (_SECOND, "1 s"), (10 * _SECOND, "10 s")),
    *((_MINUTE, "1 min"), (10 * _MINUTE, "10 min"), (_HOUR, "1 h"), (10 * _HOUR, "10 h")),
    *((_DAY, "1 d"), (10 * _DAY, "10 d"), (100 * _DAY, "100 d")),
)
"""Round spans, in milliseconds, with their words, for a logarithmic scale."""


def span(milliseconds: float) -> str:
    """So long, in the unit that fits it."""
    if milliseconds < _SECOND:
        return f"{milliseconds:.1f} ms"
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if milliseconds >= 2 * unit:
            return f"{milliseconds / unit:.1f} {name}"
    return f"{milliseconds / _SECOND:.1f} s"


def between(start: datetime, end: datetime) -> float:
    """Milliseconds from one to the other."""
    return (end - start) / timedelta(milliseconds=1)


def read_instant(text: str) -> datetime:
    """An instant as the API writes it."""
    return datetime.fromisoformat(text)
