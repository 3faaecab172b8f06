"""Posts over kept connections, for the load generator: a request goes out as it is, status and body come in.

Owns the connections. It does nothing that a sender in earnest has to (addresses are not judged, answers are not cut,
TLS is not spoken), and so costs the machine that is measured half as much. Invariant: each post is told of once, with
its answer or with what went wrong; none waits for another's answer.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast
from urllib.parse import urlsplit

import httptools

CONNECTIONS = 1_024
"""Posts under way at once; past that they wait here, and their time runs."""

SWEEP_SECONDS = 1.0

CONNECTION_LOST = "connection"
TIMED_OUT = "timeout"
NO_HTTP = "protocol"
"""What may go wrong with a post, beside an answer that nobody wanted."""

Landed = Callable[[int, str, bytes], None]
"""Hears of a post by its place: the status or what went wrong, and the body."""


def request(url: str, headers: Sequence[tuple[str, str]], body: bytes) -> bytes:
    """A post of that body as it goes over the wire."""
    parts = urlsplit(url)
    lines = [f"POST {parts.path} HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join((*lines, "", "")).encode() + body


class Poster:
    """Posts to one address."""

    def __init__(self, url: str, landed: Landed, *, timeout_seconds: float) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._landed = landed
        self._timeout_seconds = timeout_seconds
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()
        self._waiting: deque[tuple[int, bytes, float]] = deque()
        self._dialling: set[asyncio.Task[None]] = set()

    def post(self, place: int, text: bytes) -> None:
        """Send a request now, or as soon as a connection can be had."""
        if self._idle:
            self._idle.pop().send(place, text)
            return
        self._waiting.append((place, text, time.monotonic()))
        self._ask()

    def _ask(self) -> None:
        """Have one more connection made, if there may be one more."""
        if len(self._all) + len(self._dialling) < CONNECTIONS:
            dialling = asyncio.create_task(self._dial(), name="dialling")
            self._dialling.add(dialling)
            dialling.add_done_callback(self._dialling.discard)

    def sweep(self, now: float) -> None:
        """Give up what has waited for its answer, or for a connection, for too long."""
        while self._waiting and now - self._waiting[0][2] > self._timeout_seconds:
            place, _, _ = self._waiting.popleft()
            self._landed(place, TIMED_OUT, b"")
        for connection in tuple(self._all):
            if now - connection.sent_at > self._timeout_seconds:
                connection.give_up(TIMED_OUT)

    def close(self) -> None:
        """Cut every connection, without a word to anybody."""
        self._landed = _nobody
        self._waiting.clear()
        for dialling in self._dialling:
            dialling.cancel()
        for connection in tuple(self._all):
            connection.give_up(CONNECTION_LOST)

    def opened(self, connection: _Connection) -> None:
        """A connection can be used."""
        self._all.add(connection)
        self.freed(connection)

    def freed(self, connection: _Connection) -> None:
        """A connection can be used again."""
        if self._waiting:
            place, text, _ = self._waiting.popleft()
            connection.send(place, text)
        else:
            self._idle.append(connection)

    def lost(self, connection: _Connection) -> None:
        """A connection is gone; whoever waits gets another one."""
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._waiting:
            self._ask()

    def landed(self, place: int, answer: str, body: bytes) -> None:
        """A post has its answer."""
        self._landed(place, answer, body)

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await loop.create_connection(lambda: _Connection(self), self._host, self._port)
        except (OSError, TimeoutError):
            if self._waiting:
                place, _, _ = self._waiting.popleft()
                self._landed(place, CONNECTION_LOST, b"")


class _Connection(asyncio.Protocol):
    """One connection, with one post under way at the most."""

    def __init__(self, poster: Poster) -> None:
        self._poster = poster
        self._transport: asyncio.Transport | None = None
        self._place: int | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._whole: tuple[str, bool] | None = None
        self.sent_at = math.inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._poster.opened(self)

    def send(self, place: int, text: bytes) -> None:
        """Post on this connection, which is free."""
        assert self._transport is not None, "a connection is free once it is made"
        self._place = place
        self.sent_at = time.monotonic()
        self._transport.write(text)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.give_up(NO_HTTP)
            return
        if self._whole is not None:
            (status, is_kept), self._whole = self._whole, None
            self._answered(status, is_kept=is_kept)

    def on_body(self, body: bytes) -> None:
        """The parser's: a part of an answer's body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The parser's: an answer is whole."""
        self._whole = str(self._parser.get_status_code()), self._parser.should_keep_alive()

    def _answered(self, status: str, *, is_kept: bool) -> None:
        place, self._place = self._place, None
        self.sent_at = math.inf
        body = b"".join(self._body)
        self._body.clear()
        # first, so that no other post has to do with a bug of whoever hears of this one
        if place is not None:
            self._poster.landed(place, status, body)
        if is_kept:
            self._poster.freed(self)
        elif self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.give_up(CONNECTION_LOST)

    def give_up(self, why: str) -> None:
        """Nothing more will come of this connection."""
        place, self._place = self._place, None
        self.sent_at = math.inf
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.abort()
            self._poster.lost(self)
        if place is not None:
            self._poster.landed(place, why, b"")


def _nobody(_: int, __: str, ___: bytes) -> None:
    """Nobody wants to know."""
