"""How long things took, as an HDR histogram: every time is kept to three digits, whatever its size.

Owns the buckets, the percentiles, and the text form (the compressed "V2" encoding that HdrHistogram defines for all its
implementations), so that anybody's tools can plot the histograms of a result file, or add those of several runs. Why it
is not the library of that name: docs/decisions/0026-the-load-generator.md. Invariant: a percentile is, to the
microsecond, never below the time that it stands for, and at most a thousandth above.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
"""What a report shows, as shares of what was recorded."""

UNIT_SECONDS = 1e-6
"""Times are recorded in microseconds."""

LOWEST = 1
HIGHEST = 3_600_000_000
DIGITS = 3
"""From a microsecond to an hour, to three digits."""

_HALF_BITS = 10
_HALF = 1 << _HALF_BITS
"""Places within a bucket, and twice as many in the first: enough for three digits."""

_COOKIE = 0x1C849313
_COMPRESSED_COOKIE = 0x1C849314
_HEAD = struct.Struct(">IIIIQQd")
_OUTER = struct.Struct(">II")


class NotAHistogram(ValueError):
    """A text that is no histogram of times in this module's units."""


class Histogram:
    """Counts of times by their length."""

    def __init__(self) -> None:
        self._counts = array("q", bytes(8 * (_index(HIGHEST) + 1)))
        self.total = 0

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Histogram:
        """A histogram of these times."""
        made = cls()
        for each in seconds:
            made.record(each)
        return made

    def record(self, seconds: float) -> None:
        """Count a time; what is shorter than a microsecond counts as none, what is longer than an hour as an hour."""
        self._counts[_index(min(max(round(seconds / UNIT_SECONDS), 0), HIGHEST))] += 1
        self.total += 1

    def add(self, other: Histogram) -> None:
        """Count what the other one has counted, too."""
        for index, count in other.counted():
            self._counts[index] += count
        self.total += other.total

    def counted(self) -> Iterator[tuple[int, int]]:
        """Places and counts of all buckets that have any, shortest times first."""
        return ((index, count) for index, count in enumerate(self._counts) if count)

    def seconds_at(self, share: float) -> float:
        """The time that so large a share of all took at most; 0 for none. `share` is from 0 to 1."""
        wanted, seen = max(math.ceil(share * self.total), 1), 0
        for index, count in self.counted():
            seen += count
            if seen >= wanted:
                return _longest(index) * UNIT_SECONDS
        return 0.0

    def percentiles(self) -> dict[str, float]:
        """The times of `PERCENTILES`, in milliseconds; zeros for none."""
        return {name: round(self.seconds_at(share) * 1000, 3) for name, share in PERCENTILES.items()}

    def encode(self) -> str:
        """The histogram in HdrHistogram's own form: base64 of a compressed V2 encoding, in microseconds."""
        counts = b"".join(_written(self._counts))
        head = _HEAD.pack(_COOKIE, len(counts), 0, DIGITS, LOWEST, HIGHEST, 1.0)
        packed = zlib.compress(head + counts)
        return base64.b64encode(_OUTER.pack(_COMPRESSED_COOKIE, len(packed)) + packed).decode("ascii")

    @classmethod
    def decode(cls, text: str) -> Histogram:
        """Read what `encode` wrote. Raises `NotAHistogram`, also for one of another range or precision."""
        try:
            outer = base64.b64decode(text, validate=True)
            cookie, length = _OUTER.unpack_from(outer)
            packed = outer[_OUTER.size :]
            inner = zlib.decompress(packed)
            head = _HEAD.unpack_from(inner)
        except (ValueError, struct.error, zlib.error) as fault:
            raise NotAHistogram(f"no compressed histogram: {fault}") from fault
        counts = inner[_HEAD.size :]
        if (cookie, length) != (_COMPRESSED_COOKIE, len(packed)):
            raise NotAHistogram("no compressed histogram of the second version")
        if head != (_COOKIE, len(counts), 0, DIGITS, LOWEST, HIGHEST, 1.0):
            raise NotAHistogram("a histogram of another range or precision")
        made = cls()
        made._read(counts)
        return made

    def _read(self, written: bytes) -> None:
        index = 0
        for number in _numbers(written):
            if number < 0:
                index -= number
                continue
            if index >= len(self._counts):
                raise NotAHistogram("more counts than its range has room for")
            self._counts[index] = number
            self.total += number
            index += 1


def percentiles(seconds: Iterable[float]) -> dict[str, float]:
    """The times of `PERCENTILES` of these, in milliseconds; zeros for none."""
    return Histogram.of(seconds).percentiles()


def _index(value: int) -> int:
    """The place of a value's count."""
    bucket = max(0, value.bit_length() - _HALF_BITS - 1)
    return (bucket << _HALF_BITS) + (value >> bucket)


def _longest(index: int) -> int:
    """The largest value that is counted in this place."""
    bucket = max(0, (index >> _HALF_BITS) - 1)
    return ((index - (bucket << _HALF_BITS) + 1) << bucket) - 1


def _written(counts: array[int]) -> Iterator[bytes]:
    """Up to the last count that is one: each as a number, a row of zeros as the negative of its length."""
    zeros = 0
    for count in counts:
        if not count:
            zeros += 1
            continue
        if zeros:
            yield _number(-zeros)
            zeros = 0
        yield _number(count)


def _number(number: int) -> bytes:
    """A signed number in as few bytes as it takes: zigzag, then seven bits a byte, the lowest first."""
    left = (number << 1) ^ (number >> 63)
    made = bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def _numbers(written: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in written:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield (number >> 1) ^ -(number & 1)
            number = shift = 0
    if shift:
        raise NotAHistogram("it ends within a number")
