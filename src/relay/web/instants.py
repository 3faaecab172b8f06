"""Instants as text: RFC 3339 in UTC with milliseconds.

Owns the one form in which every answer writes a time. Invariant: equal instants have equal texts, and texts sort by
time.
"""

from __future__ import annotations

from datetime import UTC, datetime

_UTC_OFFSET = len("+00:00")


def write(instant: datetime) -> str:
    """`2026-01-31T09:05:00.120Z`; what is finer than a millisecond is cut off. The instant must have a zone."""
    if instant.tzinfo is not UTC:
        instant = instant.astimezone(UTC)
    return instant.isoformat(timespec="milliseconds")[:-_UTC_OFFSET] + "Z"


def write_optional(instant: datetime | None) -> str | None:
    """The same for an instant that may not have come."""
    return None if instant is None else write(instant)
