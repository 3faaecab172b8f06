"""A sink: an HTTP/1.1 server that says 200 to everything and costs next to nothing.

Owns the process that stands for all endpoints in a measurement. It keeps connections alive, answers pipelined
requests in order, counts, and on request notes which delivery was answered with 200 when, and lets a share of the
requests fail or wait. It leaves everything else to the testkit, whose modes cost four times as much.
Invariant: one answer per complete request, in order, and none before the request is complete.

Run as `python -m relay.loadtest.sink --bind 127.0.0.1:0`. The first line of its output is
`{"host", "port", "pid"}`; SIGUSR1 prints the counts so far, SIGTERM and SIGINT print the final ones and end it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import signal
import struct
import sys
import time
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import httptools
import msgspec
import uvloop

from relay.loadtest.receivers import ALL_WELL, Receivers, Share, read_share

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
BACKLOG = 4096

_FAILED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nfailed"
_THROTTLED = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: {:.0f}\r\nContent-Length: 0\r\n\r\n"
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_DELIVERY_ID = b"Relay-Delivery-Id"
_ID_LENGTH = 36
_ROW = struct.Struct("<36sd")


@dataclass(slots=True)
class Counts:
    """What the sink has seen. `bytes_in` counts everything read, heads included; `malformed` requests got a 400. Of all
    `requests`, `failed` got a 500, `throttled` a 429 and `cut` no answer, since the other side had gone; the others a
    200, `slow` of them late.

    `unrecorded` requests had no delivery id, or no room was left for them. `cpu_seconds` is the process's user and
    system time since it began to listen. `unix` and `monotonic` are the two clocks at one instant: recorded times
    are of the second.
    """

    requests: int = 0
    bytes_in: int = 0
    connections: int = 0
    malformed: int = 0
    failed: int = 0
    throttled: int = 0
    slow: int = 0
    cut: int = 0
    recorded: int = 0
    unrecorded: int = 0
    cpu_seconds: float = 0.0
    unix: float = 0.0
    monotonic: float = 0.0


class Record:
    """Room for so many delivery ids and their times of arrival, taken before the measurement begins."""

    def __init__(self, capacity: int) -> None:
        self._ids = bytearray(_ID_LENGTH * capacity)
        self._times = array("d", bytes(8 * capacity))
        self._capacity = capacity
        self.count = 0

    def note(self, delivery_id: bytes, at: float) -> None:
        """Note an arrival, `at` in seconds of the monotonic clock; nothing where it is no id or there is no room."""
        position = self.count
        if len(delivery_id) == _ID_LENGTH and position < self._capacity:
            offset = position * _ID_LENGTH
            self._ids[offset : offset + _ID_LENGTH] = delivery_id
            self._times[position] = at
            self.count = position + 1

    def write(self, path: Path) -> None:
        """Write the arrivals in order: 36 bytes of text for the id, 8 for the time as a little-endian double."""
        with path.open("wb") as file:
            for position in range(self.count):
                offset = position * _ID_LENGTH
                file.write(_ROW.pack(self._ids[offset : offset + _ID_LENGTH], self._times[position]))


def read_record(path: Path) -> Iterator[tuple[str, float]]:
    """The arrivals that a sink wrote: delivery id and monotonic seconds. Raises `struct.error` for a torn file."""
    return ((text.decode("latin-1"), at) for text, at in _ROW.iter_unpack(path.read_bytes()))


class _Sink:
    """What all connections share."""

    def __init__(self, counts: Counts, record: Record | None, receivers: Receivers) -> None:
        self.counts = counts
        self.record = record
        self.connections: set[_Connection] = set()
        self.fate = None if receivers.answer_alike else _Fate(receivers)

    def protocol(self) -> _Connection:
        if self.fate is not None:
            return _MixedConnection(self, self.record or Record(0), self.fate)
        return _Connection(self) if self.record is None else _RecordingConnection(self, self.record)

    def close(self) -> None:
        """Cut every connection."""
        for connection in tuple(self.connections):
            connection.cut()


class _Fate:
    """What becomes of the next request: the bytes of its answer and the seconds until then."""

    def __init__(self, receivers: Receivers) -> None:
        self._chance = random.Random(receivers.seed)  # noqa: S311 - a measurement's, to be repeated by its seed
        self._failing = receivers.failing
        self._throttled = self._failing + receivers.throttled.share
        self._slow = self._throttled + receivers.slow.share
        self._delay = receivers.slow.seconds
        self._refusal = _THROTTLED.format(receivers.throttled.seconds).encode()

    def next(self) -> tuple[bytes, float]:
        drawn = self._chance.random()
        if drawn >= self._slow:
            return RESPONSE, 0.0
        if drawn < self._failing:
            return _FAILED, 0.0
        return (self._refusal, 0.0) if drawn < self._throttled else (RESPONSE, self._delay)


class _Connection(asyncio.Protocol):
    """One connection. It has no `on_header`: the parser then spares itself the headers altogether."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink
        self._counts = sink.counts
        self._complete = 0
        self._is_last = False
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._sink.connections.add(self)
        self._counts.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._sink.connections.discard(self)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or self._is_last:
            return
        self._counts.bytes_in += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_last = True
        except httptools.HttpParserError:
            self._refuse(transport)
        self._answer(transport)
        self._close_at_end(transport)

    def on_message_complete(self) -> None:
        self._complete += 1
        if not self._parser.should_keep_alive():
            self._is_last = True

    def _close_at_end(self, transport: asyncio.Transport) -> None:
        if self._is_last:
            transport.close()

    def pause_writing(self) -> None:
        """The other side sends, but does not read: no more requests until it does."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _refuse(self, transport: asyncio.Transport) -> None:
        """Answer what was complete, then say 400; not where the trouble is only what follows a last request."""
        self._answer(transport)
        if not self._is_last:
            self._counts.malformed += 1
            transport.write(_BAD_REQUEST)
            self._is_last = True

    def _answer(self, transport: asyncio.Transport) -> None:
        complete = self._complete
        if not complete:
            return
        self._complete = 0
        self._counts.requests += complete
        transport.write(RESPONSE if complete == 1 else RESPONSE * complete)


class _RecordingConnection(_Connection):
    """A connection that also notes which delivery each request was."""

    def __init__(self, sink: _Sink, record: Record) -> None:
        self._record = record
        self._headers: dict[bytes, bytes] = {}
        # The parser calls this for every header: a method of the dictionary itself spares a Python call each time.
        self.on_header = self._headers.__setitem__
        super().__init__(sink)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        headers = self._headers
        self._arrived(headers.get(_DELIVERY_ID) or _in_any_case(headers))
        headers.clear()

    def _arrived(self, delivery: bytes) -> None:
        self._record.note(delivery, time.monotonic())


class _MixedConnection(_RecordingConnection):
    """A connection whose requests have fates; one that waits keeps those behind it waiting, since answers have an
    order."""

    def __init__(self, sink: _Sink, record: Record, fate: _Fate) -> None:
        self._fate = fate
        self._unanswered: deque[bytes] = deque()
        self._waits = False
        super().__init__(sink, record)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._counts.cut += len(self._unanswered)
        self._unanswered.clear()

    def _arrived(self, delivery: bytes) -> None:
        self._unanswered.append(delivery)

    def _answer(self, transport: asyncio.Transport) -> None:
        self._counts.requests += self._complete
        self._complete = 0
        while self._unanswered and not self._waits:
            answer, seconds = self._fate.next()
            if seconds:
                self._waits = True
                asyncio.get_running_loop().call_later(seconds, self._answer_late, answer)
            else:
                self._write(transport, answer)

    def _answer_late(self, answer: bytes) -> None:
        self._waits = False
        transport = self._transport
        if transport is not None:
            self._counts.slow += 1
            self._write(transport, answer)
            self._answer(transport)
            self._close_at_end(transport)

    def _write(self, transport: asyncio.Transport, answer: bytes) -> None:
        delivery = self._unanswered.popleft()
        transport.write(answer)
        if answer is RESPONSE:
            self._record.note(delivery, time.monotonic())
        elif answer is _FAILED:
            self._counts.failed += 1
        else:
            self._counts.throttled += 1

    def _close_at_end(self, transport: asyncio.Transport) -> None:
        if not self._unanswered:
            super()._close_at_end(transport)


def _in_any_case(headers: dict[bytes, bytes]) -> bytes:
    """The delivery id of a client that writes the header's name in its own way; empty without one."""
    return next((value for name, value in headers.items() if name.lower() == _DELIVERY_ID.lower()), b"")


async def run(bind: tuple[str, int], record_to: Path | None, capacity: int, receivers: Receivers = ALL_WELL) -> None:
    """Serve until SIGTERM or SIGINT. Writes JSON lines to standard output, and the record to its file at the end."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    record = None if record_to is None else Record(capacity)
    counts = Counts(unix=time.time(), monotonic=time.monotonic())
    sink = _Sink(counts, record, receivers)
    server = await loop.create_server(sink.protocol, *bind, backlog=BACKLOG)
    cpu_at_start = _cpu_seconds()

    def report() -> None:
        counts.recorded = 0 if record is None else record.count
        counts.unrecorded = counts.requests - counts.recorded - counts.failed - counts.throttled
        counts.cpu_seconds = _cpu_seconds() - cpu_at_start
        _print(asdict(counts))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, report)
    host, port = server.sockets[0].getsockname()[:2]
    _print({"host": host, "port": port, "pid": os.getpid()})
    await stop.wait()
    server.close()
    sink.close()
    report()
    if record is not None and record_to is not None:
        record.write(record_to)


def main(arguments: list[str] | None = None) -> None:
    """The command line; see the module's description."""
    parser = argparse.ArgumentParser(
        prog="python -m relay.loadtest.sink",
        description="An HTTP/1.1 server that says 200 to everything and costs next to nothing.",
        epilog="Example: python -m relay.loadtest.sink --bind 127.0.0.1:0 --record arrivals.bin",
    )
    parser.add_argument("--bind", type=_bind, default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--record", type=Path, metavar="FILE", help="note each delivery id and its time of arrival")
    parser.add_argument("--capacity", type=int, default=1_000_000, metavar="N", help="room for so many of them")
    parser.add_argument("--fail", type=float, default=0.0, metavar="SHARE", help="so many requests get a 500")
    parser.add_argument(
        "--throttle",
        type=read_share,
        default=Share(),
        metavar="SHARE:SECONDS",
        help="so many get a 429 to wait so long",
    )
    parser.add_argument(
        "--slow", type=read_share, default=Share(), metavar="SHARE:SECONDS", help="so many get their 200 so late"
    )
    parser.add_argument("--seed", type=int, default=0, help="what chance begins with")
    options = parser.parse_args(arguments)
    receivers = Receivers(options.fail, options.throttle, options.slow, seed=options.seed)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(options.bind, options.record, options.capacity, receivers))


def _bind(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError("an address looks like 127.0.0.1:9100 or [::1]:9100")
    return host.strip("[]"), int(port)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _print(document: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
