"""Whether two clocks agree well enough.

Owns the tolerance. What is known of the other clock is an interval, and only what that cannot explain is a difference.
"""

from __future__ import annotations

from datetime import datetime

from relay.app.doctor.findings import Finding, ok, warning

TOLERANCE_SECONDS = 2.0
"""Signatures are judged by clocks, within 300 seconds; a machine that keeps its time is off by milliseconds."""


def compare(whose: str, theirs: tuple[datetime, datetime], asked: datetime, answered: datetime) -> Finding:
    """Compare our clock, when we asked and had the answer, with the two instants between which that of the database or
    the gateway stood then."""
    check = f"{whose} clock"
    earliest, latest = theirs
    ahead = (earliest - answered).total_seconds()
    behind = (asked - latest).total_seconds()
    if max(ahead, behind) <= TOLERANCE_SECONDS:
        return ok(check, f"the {whose} and this machine agree")
    direction = f"{ahead:.0f} s ahead of" if ahead > behind else f"{behind:.0f} s behind"
    return warning(check, f"the {whose} is {direction} this machine: have both keep their time by NTP")
