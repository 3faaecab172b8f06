"""A tap on the way between Relay's processes and PostgreSQL, which makes a conversation stand still at one exact place.

Owns as much of the protocol (PostgreSQL 18, chapter 54) as it takes to tell which statement is about to be sent, and
when its answer is about to be given back. What happens at such a place, a kill say, is the test's. The tap runs in a
thread with a loop of its own, so a test may block while Relay goes on. Nothing is changed on the way.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from tests.support.installation import NotInTime
from tests.support.link import dial

LOOPBACK = "127.0.0.1"
START_SECONDS = STOP_SECONDS = 20.0

_VERSION_3 = 3
_ENCRYPTION_REQUESTS = (80877103, 80877104)  # TLS, GSSAPI; the answer is one byte, which says no


class Moment(Enum):
    """Where a conversation stands still."""

    SENT = auto()
    """The client has sent the statement; the server has not got it."""

    ANSWERED = auto()
    """The server has carried it out and answered; the client has not heard of it."""

    COMMITTED = auto()
    """The server has committed the transaction of the statement and said so; the client has not heard of it."""


@dataclass(eq=False, slots=True)
class Place:
    """One conversation is stopped here, the first that comes by; further ones pass.

    `connection` is the name that the client gives to its connection (`application_name`), `statement` a part of the
    statement's text, and `about` a part of the message that carries its arguments.
    """

    moment: Moment
    connection: str
    statement: str
    about: bytes
    _reached: threading.Event = field(default_factory=threading.Event)
    _passing: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None
    _is_cut: bool = False

    async def reached(self, within: float) -> None:
        """Return when a conversation stands here. Raises `NotInTime`."""
        if not await asyncio.to_thread(self._reached.wait, within):
            raise NotInTime(f"not within {within:g} s: {self.connection} is at {self.moment.name} of {self.statement}")

    @property
    def is_reached(self) -> bool:
        """Whether a conversation stands here, or has passed."""
        return self._reached.is_set()

    def pass_on(self) -> None:
        """Let it go on. What a client that has died meanwhile had sent still reaches the server."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._passing.set)

    def cut_off(self) -> None:
        """End the conversation here: what was held back reaches nobody."""
        self._is_cut = True
        self.pass_on()

    def matches(self, connection: str, statement: bytes, message: bytes) -> bool:
        """Whether this place is meant."""
        return connection == self.connection and self.statement.encode() in statement and self.about in message

    async def stop(self) -> None:
        """Stand still here."""
        self._reached.set()
        await self._passing.wait()
        if self._is_cut:
            raise ConnectionAbortedError("the test has cut it off")


class Tap:
    """The way to the server of an address; use it as a context manager."""

    def __init__(self, dsn: str) -> None:
        self.dsn_beyond = dsn
        self._places: list[Place] = []
        self._ahead: list[Place] = []
        self._faults: list[Exception] = []
        self._talks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ends: asyncio.Event | None = None
        self._port = 0
        self._running = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="tap", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._running.wait(START_SECONDS), "the tap does not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        assert self._ends is not None
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join(STOP_SECONDS)
        assert not self._thread.is_alive(), "the tap does not end"
        if self._faults and error is None:
            raise ExceptionGroup("the tap did not understand what was said", self._faults)

    @property
    def dsn(self) -> str:
        """The same database, by this way."""
        parts = urlsplit(self.dsn_beyond)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}{LOOPBACK}:{self._port}", query="target_session_attrs=any"))

    def leads_to(self, dsn: str) -> None:
        """Lead further connections to another server."""
        self.dsn_beyond = dsn

    def at(self, moment: Moment, *, connection: str, statement: str, about: bytes = b"") -> Place:
        """From now on stop the first conversation that comes to this place."""
        place = Place(moment, connection, statement, about, _loop=self._loop)
        self._ahead.append(place)
        self._places.append(place)
        return place

    def take(self, connection: str, statement: bytes, message: bytes) -> list[Place]:
        """The places that a statement comes to; nobody else comes to them afterwards."""
        found = [place for place in self._ahead if place.matches(connection, statement, message)]
        self._ahead = [place for place in self._ahead if place not in found]
        return found

    async def _run(self) -> None:
        self._loop, self._ends = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._join, LOOPBACK, 0)
        self._port = server.sockets[0].getsockname()[1]
        self._running.set()
        await self._ends.wait()
        server.close()
        for place in self._places:
            place.cut_off()
        for writer in self._talks.values():
            writer.transport.abort()
        await asyncio.gather(*self._talks)
        await server.wait_closed()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks[talk] = writer
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                far_reader, far_writer = await dial(self.dsn_beyond)
                try:
                    await _Conversation(self, (reader, writer), (far_reader, far_writer)).go_on()
                finally:
                    far_writer.close()
        except Exception as fault:  # noqa: BLE001 - told to the test when the tap ends
            self._faults.append(fault)
        finally:
            writer.close()
            del self._talks[talk]


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Conversation:
    """One connection. Its client sends a statement only when the last one has been answered, as Relay's driver does."""

    def __init__(self, tap: Tap, client: Ends, server: Ends) -> None:
        self._tap = tap
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._name = ""
        self._texts: dict[bytes, bytes] = {}
        self._awaited: list[Place] = []

    async def go_on(self) -> None:
        """Pass on what both sides say until one of them has gone."""
        await self._greet()
        sides = [asyncio.create_task(self._ask()), asyncio.create_task(self._answer())]
        try:
            await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for side in sides:
                side.cancel()
            for fault in await asyncio.gather(*sides, return_exceptions=True):
                if isinstance(fault, Exception):
                    raise fault

    async def _greet(self) -> None:
        """Pass the messages on that have no kind yet, up to the one that names the connection."""
        while True:
            head = await self._from_client.readexactly(8)
            length, code = struct.unpack("!II", head)
            body = await self._from_client.readexactly(length - 8)
            self._to_server.write(head + body)
            if code in _ENCRYPTION_REQUESTS:
                self._to_client.write(await self._from_server.readexactly(1))
                continue
            if code >> 16 == _VERSION_3:
                words = body.split(b"\0")
                names = dict(zip(words[::2], words[1::2], strict=False))
                self._name = names.get(b"application_name", b"").decode()
            return

    async def _ask(self) -> None:
        while True:
            kind, message = await _message(self._from_client)
            body = message[5:]
            if kind == b"P":
                name, text, _ = body.split(b"\0", 2)
                self._texts[name] = text
            elif kind == b"B":
                await self._statement(self._texts[body.split(b"\0", 2)[1]], body)
            elif kind == b"Q":
                await self._statement(body, body)
            self._to_server.write(message)
            await self._to_server.drain()

    async def _statement(self, text: bytes, body: bytes) -> None:
        for place in self._tap.take(self._name, text, body):
            if place.moment is Moment.SENT:
                await place.stop()
            else:
                self._awaited.append(place)

    async def _answer(self) -> None:
        held = b""
        while True:
            kind, message = await _message(self._from_server)
            held += message
            if self._awaited and kind != b"Z":
                continue
            if kind == b"Z":
                outside = message.endswith(b"I")
                for place in [each for each in self._awaited if outside or each.moment is Moment.ANSWERED]:
                    await place.stop()
                    self._awaited.remove(place)
            self._to_client.write(held)
            await self._to_client.drain()
            held = b""


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The kind of the next message, and all of it. Raises `IncompleteReadError` at the end."""
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!I", head[1:])
    return head[:1], head + await reader.readexactly(length - 4)
