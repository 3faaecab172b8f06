"""`Retry-After`: how long an endpoint asks to be left alone (RFC 9110, 10.2.3 and 5.6.7).

Owns the reading of the field; the caller decides how much of it to honour. Invariant: whatever the text, the answer is
None or a finite number of seconds of at least 0, and nothing raises.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

_SECONDS = re.compile(r"0*([0-9]+)")
_DIGITS_READ = 10
"""Longer numbers are beyond three centuries and beyond any cap; they are read as the largest of this length."""

_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_ZONE = r"(?: (?:GMT|UTC|UT|Z|[+-]0000))?"
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"[a-z]{{3}}, (?P<day>[0-9]{{2}}) (?P<month>[a-z]{{3}}) (?P<year>[0-9]{{4}}) {_TIME}{_ZONE}",
        rf"[a-z]{{6,9}}, (?P<day>[0-9]{{2}})-(?P<month>[a-z]{{3}})-(?P<year>[0-9]{{2}}) {_TIME}{_ZONE}",
        rf"[a-z]{{3}} (?P<month>[a-z]{{3}}) (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}}){_ZONE}",
    )
)
"""IMF-fixdate, the obsolete RFC 850 form and asctime. A date that names no zone is in UTC."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def parse(value: str, now: datetime) -> float | None:
    """Seconds from `now` (with a time zone) until the endpoint wants to be tried again, or None if this says nothing.

    Seconds are digits only: a sign, a fraction or a word makes the field invalid, and an invalid field is ignored. A
    date in the past is 0. Weekdays are not compared with their dates.
    """
    text = value.strip(" \t")
    if digits := _SECONDS.fullmatch(text):
        return float(digits[1]) if len(digits[1]) <= _DIGITS_READ else 10.0**_DIGITS_READ
    for form in _FORMS:
        if match := form.fullmatch(text):
            instant = _instant(match, now.astimezone(UTC))
            return None if instant is None else max(0.0, (instant - now).total_seconds())
    return None


def _instant(match: re.Match[str], now: datetime) -> datetime | None:
    """The instant that the matched date names, or None where the calendar has no such date."""
    month = match["month"].lower()
    if month not in _MONTHS:
        return None
    fields = (
        _MONTHS.index(month) + 1,
        int(match["day"]),
        int(match["hour"]),
        int(match["minute"]),
        min(int(match["second"]), 59) if match["second"] == "60" else int(match["second"]),
    )
    year = int(match["year"])
    if len(match["year"]) == 2:
        year = _full_year(year, fields, now)
    try:
        return datetime(year, *fields, tzinfo=UTC)
    except ValueError:
        return None


def _full_year(two_digits: int, rest: tuple[int, ...], now: datetime) -> int:
    """The year meant by two digits: what seems more than 50 years ahead is the latest such year in the past."""
    ahead = (two_digits - now.year + 49) % 100 - 49
    if ahead == 50 and rest > (now.month, now.day, now.hour, now.minute, now.second):
        ahead -= 100
    return now.year + ahead
