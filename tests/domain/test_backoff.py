"""Claims about delays and about the end of a generation."""

from collections import Counter
from dataclasses import replace
from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.backoff import DEFAULT, FOR_A_DAY, PATIENT, RetryPolicy, delay, next_try

MIDDLE = 0.5
draws = st.floats(0, 1, exclude_max=True)


def failed(
    attempt: int,
    *,
    age: float = 0.0,
    retry_after: float = 0.0,
    draw: float = MIDDLE,
    policy: RetryPolicy = DEFAULT,
) -> float | None:
    return next_try(policy, failed_attempt=attempt, age=age, draw=draw, retry_after=retry_after)


def attempt_ages(policy: RetryPolicy, draw: float) -> list[float]:
    """At which ages a generation is tried if every attempt fails at once and its lane is always open."""
    ages = [0.0]
    while (wait := failed(len(ages), age=ages[-1], draw=draw, policy=policy)) is not None:
        ages.append(ages[-1] + wait)
    return ages


def test_the_default_policy_doubles_from_two_seconds_to_five_minutes() -> None:
    delays = [delay(DEFAULT, attempt, MIDDLE) for attempt in range(1, 12)]

    assert delays == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_the_default_policy_fits_its_twelve_attempts_into_its_window() -> None:
    assert attempt_ages(DEFAULT, MIDDLE) == [0, 2, 6, 14, 30, 62, 126, 254, 510, 810, 1110, 1410]


@pytest.mark.parametrize("draw", [0.0, 0.999999])
def test_jitter_does_not_cost_the_default_policy_an_attempt(draw: float) -> None:
    assert len(attempt_ages(DEFAULT, draw)) == 12


def test_the_patient_preset_follows_the_standard_schedule_to_its_last_attempt() -> None:
    hours = [round(age / 3600, 2) for age in attempt_ages(PATIENT, MIDDLE)]

    assert hours == [0, 0, 0.08, 0.58, 2.58, 7.58, 17.58, 31.58, 51.58, 75.58]
    assert len(attempt_ages(PATIENT, 0.999999)) == 10


@pytest.mark.parametrize("draw", [0.0, MIDDLE, 0.999999])
def test_the_default_of_chats_goes_on_for_a_day_whatever_chance_says(draw: float) -> None:
    ages = attempt_ages(DEFAULT.overridden(FOR_A_DAY), draw)
    assert 23 <= ages[-1] / 3600 <= 24
    assert len(ages) < DEFAULT.overridden(FOR_A_DAY).max_attempts


def test_an_endpoint_may_ask_for_the_patient_preset_by_name() -> None:
    assert DEFAULT.overridden({"preset": "patient"}) is PATIENT


def test_an_endpoints_own_numbers_replace_those_of_the_installation_and_no_others() -> None:
    wished = DEFAULT.overridden({"max_attempts": 3, "base_seconds": 0.5})

    assert wished == RetryPolicy(3, 0.5, DEFAULT.max_seconds, DEFAULT.window_seconds, DEFAULT.jitter)
    assert DEFAULT.overridden({}) == DEFAULT


def test_a_base_delay_beyond_the_installations_longest_is_waited_in_full() -> None:
    assert delay(DEFAULT.overridden({"base_seconds": 600.0}), 1, MIDDLE) == 600
    assert delay(DEFAULT.overridden({"base_seconds": 600.0, "max_seconds": 400.0}), 1, MIDDLE) == 400


def test_the_last_delay_of_a_schedule_is_repeated() -> None:
    assert delay(replace(PATIENT, schedule=(1.0, 7.0)), 40, MIDDLE) == 7


@pytest.mark.parametrize(("base", "from_attempt"), [(1.0, 13), (30 * 86_400.0, 1)])
def test_a_delay_is_the_longest_one_from_where_it_is_reached(base: float, from_attempt: int) -> None:
    """Case C80: 2,000 attempts, a cap of an hour; nothing overflows on the way."""
    policy = RetryPolicy(2000, base_seconds=base, max_seconds=3600.0, window_seconds=1e9, jitter=0.2)

    waits = {failed(attempt, age=attempt * 3600.0, policy=policy) for attempt in range(max(15, from_attempt), 1101)}
    assert waits == {3600}
    assert failed(2000, policy=policy) is None


def test_an_attempt_number_beyond_any_float_waits_the_longest_delay() -> None:
    policy = RetryPolicy(2000, base_seconds=1.0, max_seconds=3600.0, window_seconds=1e9, jitter=0.2)

    assert {delay(policy, attempt, MIDDLE) for attempt in (13, 64, 1024, 1100, 2**63)} == {3600}
    assert delay(replace(policy, base_seconds=30 * 86_400.0), 1100, MIDDLE) == 3600


@settings(max_examples=40)
@given(st.integers(1, 10**6), st.floats(0, 1e300), st.floats(0, 1e9), st.floats(0, 1), draws)
def test_a_delay_is_finite_and_within_the_jitter_of_the_longest(
    attempt: int, base: float, longest: float, jitter: float, draw: float
) -> None:
    waited = delay(RetryPolicy(1, base, longest, 0.0, jitter), attempt, draw)

    assert isfinite(waited)
    assert 0 <= waited <= longest * (1 + jitter)


@pytest.mark.parametrize("attempt", range(1, 7))
def test_deliveries_that_failed_together_come_back_over_forty_percent_of_the_delay(attempt: int) -> None:
    """Case C81, rounds 1 to 6 of 5,000 deliveries. Where the spread is longer than a second, no second gets more than
    its share."""
    waits = [delay(DEFAULT, attempt, number / 5000) for number in range(5000)]

    planned = 2.0**attempt
    assert (min(waits), max(waits)) == pytest.approx((planned * 0.8, planned * 1.2), rel=1e-3)
    assert len(set(waits)) == 5000
    assert max(Counter(map(int, waits)).values()) <= 5000 / max(1.0, planned * 0.4) + 1


@pytest.mark.parametrize("attempt", range(1, 7))
def test_deliveries_with_one_retry_after_are_spread_behind_it(attempt: int) -> None:
    """Case C81."""
    waits = [failed(attempt, retry_after=60.0, draw=number / 1000) or 0.0 for number in range(1000)]

    assert min(waits) == 60
    assert max(waits) >= 60 * 1.199
    assert len(set(waits)) == 1000


def test_a_retry_after_sooner_than_the_delay_changes_nothing() -> None:
    assert failed(8, retry_after=3.0) == failed(8) == 256


def test_the_last_attempt_is_not_followed_by_another() -> None:
    assert failed(11, age=1110.0) is not None
    assert failed(12, age=1410.0) is None
    assert failed(13, age=0.0) is None


def test_a_retry_that_would_fall_past_the_window_is_not_scheduled() -> None:
    assert failed(9, age=1500.0) == 300
    assert failed(9, age=1500.5) is None


def test_an_attempt_that_a_closed_lane_kept_past_the_window_is_the_last_one() -> None:
    assert failed(2, age=1790.0) == 4
    assert failed(2, age=1800.0) is None
    assert failed(3, age=2400.0, retry_after=60.0) is None


def test_a_retry_after_past_the_window_earns_one_last_attempt() -> None:
    wait = failed(1, retry_after=3600.0, draw=0.0)

    assert wait == 3600
    assert failed(2, age=wait) is None


def test_no_retry_after_prolongs_a_generation_whose_own_delay_is_past_the_window() -> None:
    assert failed(9, age=1600.0, retry_after=30.0) is None


@settings(max_examples=40)
@given(st.integers(1, 12), st.floats(0, 1800), st.floats(0, 3600), draws, st.sampled_from([DEFAULT, PATIENT]))
def test_no_try_is_earlier_than_the_endpoint_asked(
    attempt: int, age: float, wish: float, draw: float, policy: RetryPolicy
) -> None:
    wait = failed(attempt, age=age, retry_after=wish, draw=draw, policy=policy)

    assert wait is None or (isfinite(wait) and wait >= max(wish, delay(policy, attempt, draw)))
