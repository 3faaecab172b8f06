"""Claims about reading `Retry-After`."""

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.retry_after import parse

NOW = datetime(2026, 11, 30, 8, 49, 37, tzinfo=UTC)
PIECES = [
    "Mon",
    "Monday",
    "Nov",
    ", ",
    " ",
    "-",
    ":",
    "30",
    "00",
    "99",
    "26",
    "2026",
    "0000",
    "08:51:37",
    "24:60:61",
    "GMT",
]
fragments = st.binary(max_size=12).map(lambda raw: "".join(PIECES[byte % len(PIECES)] for byte in raw))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("1", 1), ("120", 120), ("007", 7), ("00", 0), (" 5\t", 5), ("7200", 7200)],
)
def test_digits_are_seconds(text: str, seconds: float) -> None:
    assert parse(text, NOW) == seconds


@pytest.mark.parametrize("digits", [11, 400, 5000])
def test_a_number_beyond_any_wait_is_read_as_a_very_long_one(digits: int) -> None:
    assert parse("9" * digits, NOW) == 10.0**10


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-5",
        "-1",
        "+5",
        "1.5",
        "1,5",
        "1e3",
        "0x10",
        "soon",
        "5s",
        "5 6",
        "٣",
        "²",
        "5\n",
        "5;",
        "NaN",
        "inf",
    ],
)
def test_what_is_neither_digits_nor_a_date_says_nothing(text: str) -> None:
    assert parse(text, NOW) is None


@pytest.mark.parametrize(
    "text",
    [
        "Mon, 30 Nov 2026 08:51:37 GMT",
        "Monday, 30-Nov-26 08:51:37 GMT",
        "Mon Nov 30 08:51:37 2026",
        "Mon, 30 Nov 2026 08:51:37 -0000",
        "Mon, 30 Nov 2026 08:51:37 +0000",
        "Mon, 30 Nov 2026 08:51:37 UTC",
        "Mon, 30 Nov 2026 08:51:37",
        "Monday, 30-Nov-26 08:51:37",
        "mon, 30 nov 2026 08:51:37 gmt",
        "Tue, 30 Nov 2026 08:51:37 GMT",
    ],
)
def test_every_form_of_a_date_names_the_same_instant(text: str) -> None:
    assert parse(text, NOW) == 120


def test_the_caller_may_tell_the_time_in_any_zone() -> None:
    local = NOW.astimezone(timezone(timedelta(hours=-11)))

    assert parse("Mon, 30 Nov 2026 08:51:37 GMT", local) == 120
    assert parse("Monday, 30-Nov-26 08:51:37 GMT", local) == 120


def test_asctime_pads_the_day_with_a_space() -> None:
    assert parse("Tue Dec  1 08:49:37 2026", NOW) == 86_400


@pytest.mark.parametrize(
    "text", ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
)
def test_a_date_in_the_past_asks_for_no_wait(text: str) -> None:
    assert parse(text, NOW) == 0


def test_a_leap_second_is_the_end_of_its_minute() -> None:
    assert parse("Mon, 30 Nov 2026 08:49:60 GMT", NOW) == 22


@pytest.mark.parametrize(
    "text",
    [
        "Mon, 31 Nov 2026 08:51:37 GMT",
        "Mon, 30 Nov 2026 24:00:00 GMT",
        "Mon, 30 Nov 2026 08:51:61 GMT",
        "Mon, 30 Foo 2026 08:51:37 GMT",
        "Mon, 30 Nov 0000 08:51:37 GMT",
        "Mon Nov  0 08:51:37 2026",
        "Mon, 30 Nov 2026 08:51:37 +0200",
        "Mon, 30 Nov 2026 08:51:37 EST",
        "Mon, 30 Nov 2026 08:51 GMT",
        "Mon, 3 Nov 2026 08:51:37 GMT",
        "30 Nov 2026 08:51:37 GMT",
        "2026-11-30T08:51:37Z",
        "Mon, 30 Nov 2026 08:51:37 GMT, 120",
    ],
)
def test_a_date_that_is_not_one_of_the_forms_says_nothing(text: str) -> None:
    assert parse(text, NOW) is None


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("Monday, 30-Nov-76 08:49:37 GMT", 2076),
        ("Monday, 30-Nov-76 08:49:38 GMT", 1976),
        ("Monday, 01-Dec-76 00:00:00 GMT", 1976),
        ("Monday, 30-Nov-77 08:49:37 GMT", 1977),
        ("Monday, 30-Nov-27 08:49:37 GMT", 2027),
        ("Monday, 30-Nov-99 08:49:37 GMT", 1999),
    ],
)
def test_two_digits_of_a_year_more_than_fifty_years_ahead_mean_the_past(text: str, year: int) -> None:
    wait = parse(text, NOW)

    assert wait == max(0.0, (NOW.replace(year=year) - NOW).total_seconds())


def test_two_digits_of_a_year_cross_a_century() -> None:
    new_years_eve = datetime(2099, 12, 31, 23, 59, 0, tzinfo=UTC)

    assert parse("Friday, 01-Jan-00 00:00:00 GMT", new_years_eve) == 60


@settings(max_examples=40)
@given(st.integers(0, 250_000_000_000))
def test_every_date_of_the_preferred_form_is_read(unix_seconds: int) -> None:
    instant = datetime.fromtimestamp(unix_seconds, UTC)

    assert parse(format_datetime(instant, usegmt=True), NOW) == max(0.0, (instant - NOW).total_seconds())


@settings(max_examples=60)
@given(st.binary(max_size=40).map(lambda raw: raw.decode("latin-1")) | fragments)
def test_no_text_raises_or_asks_for_a_negative_wait(text: str) -> None:
    wait = parse(text, NOW)

    assert wait is None or (isfinite(wait) and wait >= 0)
