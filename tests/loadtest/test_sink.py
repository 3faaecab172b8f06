"""Claims about the sink, as the process that it is."""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay.loadtest.sink import Record, read_record

WITHIN = 10.0
OK = b"\r\n\r\nok"


@dataclass
class Sink:
    """A sink that runs; `line` reads what it prints next, with a deadline."""

    process: subprocess.Popen[bytes]
    port: int = 0

    def line(self) -> dict[str, float]:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(WITHIN), "the sink says nothing"
        printed: dict[str, float] = json.loads(self.process.stdout.readline())
        return printed

    def counts(self) -> dict[str, float]:
        self.process.send_signal(signal.SIGUSR1)
        return self.line()

    def end(self, number: int = signal.SIGTERM) -> dict[str, float]:
        self.process.send_signal(number)
        counts = self.line()
        assert self.process.wait(WITHIN) == 0
        return counts

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WITHIN)


@contextmanager
def running(*options: str) -> Iterator[Sink]:
    command = [sys.executable, "-m", "relay.loadtest.sink", "--bind", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            sink = Sink(process)
            sink.port = int(sink.line()["port"])
            yield sink
        finally:
            process.kill()


@pytest.fixture
def sink() -> Iterator[Sink]:
    with running() as started:
        yield started


def request(body: bytes = b"{}", *headers: bytes) -> bytes:
    lines = [b"POST /sink HTTP/1.1", b"Host: sink", b"Content-Length: %d" % len(body), *headers, b"", body]
    return b"\r\n".join(lines)


def answers(connection: socket.socket, count: int) -> bytes:
    received = b""
    while received.count(OK) < count:
        piece = connection.recv(65536)
        assert piece, received
        received += piece
    return received


def everything(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


def test_every_request_on_a_kept_connection_is_answered_with_200(sink: Sink) -> None:
    with sink.connect() as connection:
        for _ in range(3):
            connection.sendall(request())
            assert (
                answers(connection, 1) == b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
            )

    assert sink.end()["requests"] == 3


def test_pipelined_requests_each_get_an_answer(sink: Sink) -> None:
    with sink.connect() as connection:
        connection.sendall(request() * 50)

        assert answers(connection, 50).count(b"HTTP/1.1 200 ") == 50


def test_a_request_is_answered_only_when_it_is_complete(sink: Sink) -> None:
    with sink.connect() as connection:
        connection.sendall(request(b"x" * 100)[:-1])
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(WITHIN)
        connection.sendall(b"x")
        answers(connection, 1)


def test_a_request_may_arrive_byte_by_byte(sink: Sink) -> None:
    with sink.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request(b"body"):
            connection.sendall(bytes([byte]))
        answers(connection, 1)

    assert sink.end()["requests"] == 1


def test_a_body_in_chunks_is_one_request(sink: Sink) -> None:
    with sink.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
        answers(connection, 1)

    assert sink.end()["requests"] == 1


def test_a_request_that_ends_the_connection_is_answered_and_then_it_ends(sink: Sink) -> None:
    with sink.connect() as connection:
        connection.sendall(request(b"{}", b"Connection: close"))

        assert everything(connection).count(b"HTTP/1.1 200 ") == 1
    assert sink.end()["malformed"] == 0


def test_what_is_no_request_gets_400_after_the_answers_that_are_due(sink: Sink) -> None:
    with sink.connect() as connection:
        connection.sendall(request() + b"nonsense\r\n\r\n")
        received = everything(connection)

    assert [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]] == [200, 400]
    counts = sink.end()
    assert (counts["requests"], counts["malformed"]) == (1, 1)


def test_a_request_for_another_protocol_is_answered_in_this_one(sink: Sink) -> None:
    with sink.connect() as connection:
        connection.sendall(request(b"", b"Connection: Upgrade", b"Upgrade: h2c"))

        assert everything(connection).count(b"HTTP/1.1 200 ") == 1


def test_a_client_that_reads_nothing_is_not_served_without_end(sink: Sink) -> None:
    """What the sink may owe is bounded by its buffers: at some point it takes no more requests."""
    with sink.connect() as connection:
        connection.setblocking(False)
        block, sent, deadline = request() * 1000, 0, time.monotonic() + WITHIN
        blocked_since = None
        while blocked_since is None or time.monotonic() - blocked_since < 0.3:
            assert time.monotonic() < deadline, f"{sent} bytes taken and no end"
            try:
                sent += connection.send(block)
                blocked_since = None
            except BlockingIOError:
                blocked_since = blocked_since or time.monotonic()
        requests = sink.counts()["requests"]

    assert requests < sent / len(request())


def test_counts_can_be_asked_for_at_any_time(sink: Sink) -> None:
    with sink.connect() as connection:
        connection.sendall(request())
        answers(connection, 1)
        first = sink.counts()
        connection.sendall(request())
        answers(connection, 1)
        second = sink.counts()

    assert [(counts["requests"], counts["connections"]) for counts in (first, second)] == [(1, 1), (2, 1)]
    assert second["bytes_in"] == 2 * len(request())
    assert 0 < first["cpu_seconds"] <= second["cpu_seconds"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_either_signal_ends_it_with_the_counts_although_a_connection_is_open(sink: Sink, number: int) -> None:
    with sink.connect() as connection:
        connection.sendall(request())
        answers(connection, 1)

        assert sink.end(number)["requests"] == 1


def test_the_record_says_which_delivery_came_when_in_order(tmp_path: Path) -> None:
    ids = [str(uuid.UUID(int=number)) for number in range(1, 6)]
    names = [
        b"Relay-Delivery-Id",
        b"relay-delivery-id",
        b"RELAY-DELIVERY-ID",
        b"Relay-Delivery-Id",
        b"Relay-Delivery-Id",
    ]
    before = time.monotonic()
    with running("--record", str(tmp_path / "arrivals")) as sink, sink.connect() as connection:
        pipelined = [request(b"{}", name + b": " + text.encode()) for name, text in zip(names, ids, strict=True)]
        connection.sendall(b"".join(pipelined))
        answers(connection, 5)
        after = time.monotonic()
        counts = sink.end()

    recorded = list(read_record(tmp_path / "arrivals"))
    assert [delivery for delivery, _ in recorded] == ids
    assert all(before <= at <= after for _, at in recorded)
    assert [at for _, at in recorded] == sorted(at for _, at in recorded)
    assert (counts["recorded"], counts["unrecorded"]) == (5, 0)


def test_a_request_without_an_id_does_not_inherit_the_one_before(tmp_path: Path) -> None:
    delivery = str(uuid.UUID(int=1)).encode()
    with running("--record", str(tmp_path / "arrivals")) as sink, sink.connect() as connection:
        connection.sendall(request(b"", b"Relay-Delivery-Id: " + delivery) + request(b""))
        answers(connection, 2)
        counts = sink.end()

    assert (counts["recorded"], counts["unrecorded"]) == (1, 1)


def test_a_full_record_counts_what_it_could_not_take(tmp_path: Path) -> None:
    with running("--record", str(tmp_path / "arrivals"), "--capacity", "2") as sink, sink.connect() as connection:
        for number in range(3):
            connection.sendall(request(b"", b"Relay-Delivery-Id: " + str(uuid.UUID(int=number)).encode()))
            answers(connection, 1)
        counts = sink.end()

    assert (counts["requests"], counts["recorded"], counts["unrecorded"]) == (3, 2, 1)
    assert len(list(read_record(tmp_path / "arrivals"))) == 2


def test_what_has_not_the_length_of_an_id_is_not_recorded(tmp_path: Path) -> None:
    record = Record(2)
    record.note(b"short", 1.0)
    record.note(str(uuid.UUID(int=9)).encode(), 2.0)
    record.write(tmp_path / "arrivals")

    assert list(read_record(tmp_path / "arrivals")) == [(str(uuid.UUID(int=9)), 2.0)]


@pytest.mark.parametrize("bind", ["127.0.0.1", ":0", "127.0.0.1:70000", "127.0.0.1:x"])
def test_an_address_that_is_none_is_wrong_usage(bind: str) -> None:
    command = [sys.executable, "-m", "relay.loadtest.sink", "--bind", bind]
    finished = subprocess.run(command, capture_output=True, timeout=WITHIN, check=False, env=dict(os.environ))

    assert finished.returncode == 2
    assert b"127.0.0.1:9100" in finished.stderr


def sent(connection: socket.socket, number: int) -> list[int]:
    """The statuses of so many requests, each with a delivery id of its own, one after the other."""
    statuses = []
    for each in range(number):
        connection.sendall(request(b"{}", b"Relay-Delivery-Id: " + str(uuid.UUID(int=each)).encode()))
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(65536)
        statuses.append(int(received[9:12]))
    return statuses


def test_the_wanted_shares_fail_and_are_throttled_and_only_what_got_200_is_recorded(tmp_path: Path) -> None:
    options = ("--record", str(tmp_path / "arrivals"), "--fail", "0.3", "--throttle", "0.2:3", "--seed", "4")
    with running(*options) as sink, sink.connect() as connection:
        statuses = sent(connection, 400)
        counts = sink.end()
    assert {status: statuses.count(status) for status in (500, 429)} == {
        500: counts["failed"],
        429: counts["throttled"],
    }
    assert 80 < counts["failed"] < 160
    assert 45 < counts["throttled"] < 115
    well = [str(uuid.UUID(int=place)) for place, status in enumerate(statuses) if status == 200]
    assert [delivery for delivery, _ in read_record(tmp_path / "arrivals")] == well
    assert (counts["requests"], counts["unrecorded"]) == (400, 0)


def test_the_same_seed_has_the_same_requests_fail() -> None:
    answered = []
    for _ in range(2):
        with running("--fail", "0.5", "--seed", "9") as sink, sink.connect() as connection:
            answered.append(sent(connection, 60))
    assert answered[0] == answered[1]


def test_a_throttled_request_is_told_how_long_to_wait() -> None:
    with running("--throttle", "1:7") as sink, sink.connect() as connection:
        connection.sendall(request())
        assert b"\r\nRetry-After: 7\r\n" in connection.recv(65536)


def test_a_slow_answer_comes_late_and_those_behind_it_in_order(tmp_path: Path) -> None:
    record = tmp_path / "arrivals"
    with running("--record", str(record), "--slow", "1:0.2") as sink, sink.connect() as connection:
        began = time.monotonic()
        pipelined = [request(b"", b"Relay-Delivery-Id: " + str(uuid.UUID(int=each)).encode()) for each in range(3)]
        connection.sendall(b"".join(pipelined))
        answers(connection, 3)
        counts = sink.end()
    arrivals = list(read_record(record))
    assert [delivery for delivery, _ in arrivals] == [str(uuid.UUID(int=each)) for each in range(3)]
    assert [at - began >= 0.2 * (place + 1) for place, (_, at) in enumerate(arrivals)] == [True] * 3
    assert (counts["slow"], counts["requests"]) == (3, 3)


def test_a_last_request_that_is_slow_is_answered_before_the_connection_ends() -> None:
    with running("--slow", "1:0.1") as sink, sink.connect() as connection:
        connection.sendall(request(b"{}", b"Connection: close"))
        assert everything(connection).endswith(OK)


def test_who_goes_before_a_slow_answer_was_not_delivered_to(tmp_path: Path) -> None:
    with running("--record", str(tmp_path / "arrivals"), "--slow", "1:30") as sink:
        with sink.connect() as connection:
            connection.sendall(request(b"", b"Relay-Delivery-Id: " + str(uuid.UUID(int=1)).encode()))
        deadline = time.monotonic() + WITHIN
        while sink.counts()["cut"] < 1:
            assert time.monotonic() < deadline, "nothing was cut"
        counts = sink.end()
    assert (counts["requests"], counts["cut"], counts["recorded"]) == (1, 1, 0)
