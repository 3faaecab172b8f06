"""Claims about histograms of times, also that they are HdrHistogram's: its Python implementation wrote three."""

from __future__ import annotations

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.loadtest.histogram import HIGHEST, Histogram, NotAHistogram, percentiles

NONE = "HISTFAAAABx4nJNpmSzMgADMUJoRRFybvITB/gNEAABQ2gSH"
SPREAD = "HISTFAAAADR4nJNpmSzMwMAgwgABzFCaEURcm7yEwf4DVICFkek4P9NHYZbDvkx3HZl+b2dkAgDi6wpq"
EVEN = (
    "HISTFAAAAE54nJNpmSzMwMBbxgABzFCaEURcm7yEwf4DVICJexSOQipAdiZmJtZRPIopxkyMYDhKjVKj"
    "1MijIIBllBqlRqkRSLGwsIHR8KWYAImKLjg="
)
WRITTEN_BY_OTHERS = {
    NONE: [],
    SPREAD: [1, 1, 3, 1000, 2500, 2500, 70000, 1234567, 3600000000],
    EVEN: list(range(1, 20001, 7)),
}
OF_ANOTHER_PRECISION = "HISTFAAAACF4nJNpmSzMwMDAxAABMJoRRDBPbmew/wAR4GQCAE1BA6M="

TIMES = st.lists(st.floats(0, 3600), min_size=1, max_size=60)


def of(microseconds: list[int]) -> Histogram:
    return Histogram.of(each / 1e6 for each in microseconds)


@pytest.mark.parametrize(("text", "microseconds"), WRITTEN_BY_OTHERS.items())
def test_what_another_implementation_wrote_is_read(text: str, microseconds: list[int]) -> None:
    read = Histogram.decode(text)
    assert (read.total, list(read.counted())) == (len(microseconds), list(of(microseconds).counted()))


@pytest.mark.parametrize(("text", "microseconds"), WRITTEN_BY_OTHERS.items())
def test_what_is_written_is_what_another_implementation_writes(text: str, microseconds: list[int]) -> None:
    ours, others = (base64.b64decode(each) for each in (of(microseconds).encode(), text))
    assert (ours[:4], zlib.decompress(ours[8:])) == (others[:4], zlib.decompress(others[8:]))


@given(TIMES)
def test_what_is_written_is_read_again(seconds: list[float]) -> None:
    made = Histogram.of(seconds)
    assert list(Histogram.decode(made.encode()).counted()) == list(made.counted())


@given(TIMES, st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_not_below_what_it_stands_for_and_a_thousandth_above_at_most(
    seconds: list[float], share: float
) -> None:
    ordered = sorted(round(each * 1e6) for each in seconds)
    exact = ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
    assert exact <= round(Histogram.of(seconds).seconds_at(share) * 1e6) <= exact * 1.001


@given(TIMES, TIMES)
def test_histograms_of_two_runs_add_up_to_that_of_both(one: list[float], other: list[float]) -> None:
    both = Histogram.of(one)
    both.add(Histogram.of(other))
    assert list(both.counted()) == list(Histogram.of(one + other).counted())
    assert both.total == len(one) + len(other)


def test_percentiles_are_milliseconds() -> None:
    assert percentiles(each / 1000 for each in range(1, 1001)) == {
        "p50": 500.223,
        "p90": 900.095,
        "p95": 950.271,
        "p99": 990.207,
        "p99.9": 999.423,
        "max": 1000.447,
    }


def test_nothing_took_no_time() -> None:
    assert set(percentiles([]).values()) == {0.0}


def test_what_is_out_of_range_counts_at_its_end() -> None:
    made = Histogram.of([-1.0, 10 * HIGHEST / 1e6])
    assert (made.total, made.seconds_at(0.1)) == (2, 0.0)
    assert made.seconds_at(1.0) == pytest.approx(HIGHEST / 1e6, rel=0.001)


def torn() -> str:
    """A histogram whose counts end within a number."""
    inner = zlib.decompress(base64.b64decode(SPREAD)[8:])
    return packed(inner[:4] + (len(inner) - 40 + 1).to_bytes(4, "big") + inner[8:] + b"\x80")


def overfull() -> str:
    """A histogram with a count behind the last place: thirty thousand zeros come first."""
    inner = zlib.decompress(base64.b64decode(NONE)[8:])
    counts = b"\xdf\xd4\x03\x02"
    return packed(inner[:4] + len(counts).to_bytes(4, "big") + inner[8:40] + counts)


def packed(inner: bytes) -> str:
    data = zlib.compress(inner)
    return base64.b64encode(bytes.fromhex("1c849314") + len(data).to_bytes(4, "big") + data).decode()


@pytest.mark.parametrize(
    "text",
    ["", "no base64!", "AAAA", SPREAD[:40], SPREAD[:-8], "A" + SPREAD[1:], OF_ANOTHER_PRECISION, torn(), overfull()],
)
def test_what_is_no_histogram_of_these_times_is_refused(text: str) -> None:
    with pytest.raises(NotAHistogram):
        Histogram.decode(text)
