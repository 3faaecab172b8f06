"""Claims about the token bucket. Times and rates are binary fractions, so that every sum is exact."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.bucket import SET_BACK_SECONDS, Bucket

FULL = Bucket(rate=10.0, burst=20.0, tokens=20.0, at=100.0)
TICK = 1 / 64


def test_a_full_bucket_lets_its_burst_leave_at_once_and_no_more() -> None:
    bucket, taken = FULL.take(100.0, 500)

    assert taken == 20
    assert bucket.take(100.0, 1) == (bucket, 0)


def test_a_take_gets_exactly_the_rows_it_wants() -> None:
    bucket, taken = FULL.take(100.0, 7)

    assert (taken, bucket.available(100.0)) == (7, 13)


def test_tokens_come_back_continuously_up_to_the_burst() -> None:
    empty = replace(FULL, tokens=0.0)

    assert [empty.available(100.0 + seconds) for seconds in (0, 0.25, 1, 2, 1e9)] == [0, 2.5, 10, 20, 20]


def test_fractions_of_tokens_are_kept_not_given_away() -> None:
    bucket, taken = replace(FULL, tokens=0.0).take(100.25, 5)

    assert (taken, bucket.tokens) == (2, 0.5)


def test_the_next_token_is_announced_for_when_it_is_there() -> None:
    empty = replace(FULL, rate=4.0, tokens=0.5)

    assert empty.next_token_in(100.0) == 0.125
    assert empty.take(100.125, 1)[1] == 1
    assert FULL.next_token_in(100.0) == 0


def test_instants_out_of_order_add_nothing() -> None:
    bucket, _ = FULL.take(100.0, 20)
    earlier, taken = bucket.take(100.0 - SET_BACK_SECONDS, 20)

    assert (taken, earlier.at) == (0, 100.0)
    assert earlier.available(100.5) == 5


def test_a_clock_that_was_set_back_begins_anew_with_one_burst() -> None:
    bucket, _ = FULL.take(100.0, 20)
    earlier, taken = bucket.take(10.0, 50)

    assert (taken, earlier.at) == (20, 10.0)
    assert earlier.take(10.5, 50)[1] == 5


def test_tokens_given_back_at_once_are_there_again() -> None:
    bucket, taken = FULL.take(100.0, 20)

    assert bucket.give_back(100.0, taken, taken_at=100.0) == FULL


def test_tokens_given_back_never_fill_beyond_the_burst() -> None:
    assert FULL.give_back(100.0, 5, taken_at=100.0) == FULL


def test_time_that_refilled_the_bucket_is_not_paid_out_again_with_what_comes_back() -> None:
    first, _ = FULL.take(100.0, 20)
    second, taken = first.take(102.0, 20)

    assert taken == 20
    assert second.give_back(102.0, 20, taken_at=100.0).available(102.0) == 0


def test_a_burst_that_was_lowered_cuts_off_what_was_stocked() -> None:
    assert replace(FULL, burst=3.0).take(100.0, 20)[1] == 3


@settings(max_examples=80)
@given(st.integers(1, 40), st.integers(1, 20), st.binary(min_size=40, max_size=40))
def test_no_interval_uses_more_than_its_burst_and_its_refill(rate: int, burst: int, drawn: bytes) -> None:
    bucket, now = Bucket(float(rate), float(burst), float(burst), 0.0), 0.0
    used: list[tuple[float, int]] = []
    for ticks, wanted, earlier, unused in zip(*[iter(drawn)] * 4, strict=False):
        now += ticks % 64 * TICK
        if earlier % 16 < len(used):
            at, count = used[earlier % 16]
            bucket = bucket.give_back(now, min(unused, count), taken_at=at)
            used[earlier % 16] = (at, count - min(unused, count))
        bucket, taken = bucket.take(now, wanted % 32)
        used.append((now, taken))

    for first, (start, _) in enumerate(used):
        for last in range(first, len(used)):
            assert sum(count for _, count in used[first : last + 1]) <= burst + rate * (used[last][0] - start)


@settings(max_examples=40)
@given(st.integers(1, 64), st.binary(min_size=20, max_size=20))
def test_a_lane_that_never_fills_its_bucket_gets_all_that_its_rate_allows(rate: int, pauses: bytes) -> None:
    bucket, now, taken = Bucket(float(rate), burst=500.0, tokens=0.0, at=0.0), 0.0, 0
    for ticks in pauses:
        now += ticks * TICK
        bucket, got = bucket.take(now, 500)
        taken += got

    assert taken == int(rate * now)
