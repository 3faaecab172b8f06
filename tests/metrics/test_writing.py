"""Claims about how lines reach a stream that somebody reads, or does not."""

import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.metrics.writing import MOST_BYTES, PIECE_BYTES, RESERVED_BYTES, LineWriter

WITHIN = 20.0


def gap(count: int) -> bytes:
    return b"missing %d\n" % count


class Pipe:
    """A pipe with a writer; `read` takes what has come so far."""

    def __init__(self) -> None:
        self.out, self.into = os.pipe()
        self.writer = LineWriter(self.into, gap)
        self.ended = False

    def read_all(self) -> bytes:
        """Read until the writer has ended and nothing is left."""
        if self.ended:
            return b""
        self.ended = True
        parts: list[bytes] = []
        reading = threading.Thread(target=self._read, args=(parts,))
        reading.start()
        self.writer.close(WITHIN)
        os.close(self.into)
        reading.join(WITHIN)
        os.close(self.out)
        return b"".join(parts)

    def leave(self) -> None:
        """Read no more, ever: the number of this end becomes that of an empty file."""
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, self.out)
        os.close(nothing)

    def read_into_nothing(self, count: int) -> None:
        """Read so many bytes."""
        while count > 0:
            count -= len(os.read(self.out, count))

    def _read(self, parts: list[bytes]) -> None:
        while part := os.read(self.out, 1 << 20):
            parts.append(part)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    # the thread must have ended before the numbers of the descriptors are given to others
    made.read_all()


def test_lines_come_out_in_order(pipe: Pipe) -> None:
    for number in range(1000):
        pipe.writer.write(b"%d\n" % number)
    assert pipe.read_all().split() == [b"%d" % number for number in range(1000)]


def test_whoever_logs_does_not_wait_for_a_pipe_that_nobody_reads(pipe: Pipe) -> None:
    began = time.perf_counter()
    line = b"x" * 999 + b"\n"
    for _ in range(20_000):
        pipe.writer.write(line)
    assert time.perf_counter() - began < WITHIN / 4
    assert not pipe.writer.flush(0.0)


def test_what_waits_for_a_pipe_is_bounded_and_what_is_dropped_is_counted_and_told(pipe: Pipe) -> None:
    line = b"x" * 999 + b"\n"
    for _ in range(20_000):
        pipe.writer.write(line)
    dropped = pipe.writer.dropped
    came = pipe.read_all()
    assert came.count(line) + dropped == 20_000
    assert MOST_BYTES - len(line) <= came.count(line) * len(line) <= MOST_BYTES + 2 * 65_536
    assert sum(map(int, re.findall(rb"missing (\d+)\n", came))) == dropped


def test_the_place_of_a_gap_is_told(pipe: Pipe) -> None:
    big = b"y" * (MOST_BYTES // 4) + b"\n"
    for _ in range(10):
        pipe.writer.write(big)
    dropped = pipe.writer.dropped
    reading = threading.Thread(target=pipe.read_into_nothing, args=(len(big),))
    reading.start()
    reading.join(WITHIN)
    pipe.writer.write(b"afterwards\n")
    came = pipe.read_all()
    assert sum(map(int, re.findall(rb"missing (\d+)\n", came))) == dropped
    assert came.endswith(b"\nafterwards\n")


def test_trouble_is_written_where_a_flood_of_other_lines_has_no_room(pipe: Pipe) -> None:
    for _ in range(5000):
        pipe.writer.write(b"x" * 999 + b"\n")
    pipe.writer.write(b"trouble\n", important=True)
    assert b"\ntrouble\n" in pipe.read_all()


def test_even_trouble_is_bounded(pipe: Pipe) -> None:
    for _ in range(20_000):
        pipe.writer.write(b"x" * 999 + b"\n", important=True)
    assert len(pipe.read_all()) <= MOST_BYTES + RESERVED_BYTES + 2 * 65_536


def test_a_pipe_whose_reader_has_left_costs_lines_and_nothing_else(pipe: Pipe) -> None:
    pipe.leave()
    pipe.writer.write(b"one\ntwo\n", 2)
    assert pipe.writer.flush(WITHIN)
    pipe.writer.write(b"three\n")
    assert pipe.writer.flush(WITHIN)
    # the last is the line that should have told of the first two
    assert pipe.writer.dropped >= 3


def test_a_full_disk_costs_lines_and_says_so_once_there_is_room(monkeypatch: pytest.MonkeyPatch, pipe: Pipe) -> None:
    real, full = os.write, threading.Event()
    full.set()

    def write(descriptor: int, data: bytes) -> int:
        if full.is_set():
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr("relay.metrics.writing.os.write", write)
    pipe.writer.write(b"lost\n")
    assert pipe.writer.flush(WITHIN)
    full.clear()
    pipe.writer.write(b"kept\n")
    assert pipe.read_all() == b"missing 1\nkept\n"


def test_a_stream_that_somebody_else_made_unable_to_wait_loses_nothing(pipe: Pipe) -> None:
    os.set_blocking(pipe.into, False)
    lines = [b"%06d" % number + b"z" * 500 + b"\n" for number in range(1000)]
    for line in lines:
        pipe.writer.write(line)
    assert pipe.read_all() == b"".join(lines)


def test_no_write_is_longer_than_what_a_pipe_takes_in_one_piece(monkeypatch: pytest.MonkeyPatch, pipe: Pipe) -> None:
    real = os.write
    sizes: list[int] = []

    def write(descriptor: int, data: bytes) -> int:
        sizes.append(len(data))
        assert data.endswith(b"\n")
        return real(descriptor, data)

    monkeypatch.setattr("relay.metrics.writing.os.write", write)
    pipe.writer.write(b"".join(b"%04d" % number + b"w" * 400 + b"\n" for number in range(100)), 100)
    pipe.read_all()
    assert max(sizes) <= PIECE_BYTES
    assert len(sizes) < 20


def test_a_line_longer_than_that_is_written_whole(pipe: Pipe) -> None:
    lines = b"short\n" + b"l" * 50_000 + b"\nshort\n"
    pipe.writer.write(lines, 3)
    assert pipe.read_all() == lines


def test_the_end_does_not_wait_for_ever(pipe: Pipe) -> None:
    pipe.writer.write(b"x" * 1_000_000 + b"\n")
    began = time.perf_counter()
    pipe.writer.close(0.2)
    assert time.perf_counter() - began < WITHIN / 4


def test_what_comes_after_the_end_is_counted_as_dropped(pipe: Pipe) -> None:
    pipe.writer.write(b"one\n")
    assert pipe.read_all() == b"one\n"
    pipe.writer.write(b"two\n")
    assert pipe.writer.dropped == 1


def test_a_file_gets_what_a_pipe_gets(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        writer = LineWriter(file.fileno(), gap)
        writer.write(b"one\n")
        writer.close(WITHIN)
    assert (tmp_path / "log").read_bytes() == b"one\n"
