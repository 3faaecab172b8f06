"""Claims about how instants are written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from relay.web import instants

# up to the year 9992, in seconds: further out, a zone's offset no longer fits
some_instant = st.integers(min_value=-30_000_000_000_000_000, max_value=253_000_000_000_000_000).map(
    lambda microseconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
)


@given(some_instant)
def test_an_instant_reads_back_to_the_millisecond(instant: datetime) -> None:
    written = datetime.fromisoformat(instants.write(instant))
    assert timedelta(0) <= instant - written < timedelta(milliseconds=1)


@given(some_instant, some_instant)
def test_texts_sort_as_instants_do(one: datetime, other: datetime) -> None:
    assert (instants.write(one) <= instants.write(other)) or one > other


def test_the_form_is_that_of_the_contract() -> None:
    assert instants.write(datetime(2026, 1, 31, 9, 5, 0, 120_999, UTC)) == "2026-01-31T09:05:00.120Z"
    assert instants.write(datetime(2026, 1, 31, 9, 5, tzinfo=UTC)) == "2026-01-31T09:05:00.000Z"


def test_other_zones_are_written_in_utc() -> None:
    east = timezone(timedelta(hours=2))
    assert instants.write(datetime(2026, 1, 1, 1, 0, tzinfo=east)) == "2025-12-31T23:00:00.000Z"


def test_what_has_not_come_is_null() -> None:
    assert instants.write_optional(None) is None
