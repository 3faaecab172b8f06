"""A way to PostgreSQL that a test can break at one exact place, such as between a commit and its answer.

It runs on the test's own event loop and passes bytes on in both directions. It understands a little of the protocol:
a statement gets its name and its text by a Parse message, is run by a Bind message with that name or, for `commit`, by
a simple query, and its answer ends with ReadyForQuery, which the server sends after the commit.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit, urlunsplit

CHUNK = 65536
NAMES_A_STATEMENT = b"P"
RUNS_A_STATEMENT = b"B"
ASKS_SIMPLY = b"Q"
HEADER = 5
SAYS_COMMIT = b"COMMIT;"
READY_OUTSIDE_OF_A_TRANSACTION = b"Z\x00\x00\x00\x05I"


class _Way:
    """One connection. Once it is `stranded`, each end may say what it likes and the other will never hear it."""

    def __init__(self, near: asyncio.StreamWriter) -> None:
        self.near = near
        self.losing = asyncio.Event()
        self.stranded = False
        self._statements: dict[bytes, bytes] = {}

    def runs(self, data: bytes) -> bytes | None:
        """The text of the statement that is run by this, None if none is; it must have been named before."""
        if data.startswith(NAMES_A_STATEMENT):
            name, _, rest = data[HEADER:].partition(b"\0")
            self._statements[name] = rest.partition(b"\0")[0]
        if data.startswith(RUNS_A_STATEMENT):
            return self._statements.get(data[HEADER:].split(b"\0", 2)[1], b"")
        return data if SAYS_COMMIT in data else None


class Link:
    """The way to the server of an address; use it as an async context manager.

    `losses` counts the answers that were lost so far, `strandings` the statements whose connection died without a word
    while they were run, `statements` everything that was asked.
    """

    def __init__(self, dsn: str) -> None:
        self._parts = urlsplit(dsn)
        self._server: asyncio.Server | None = None
        self._armed = False
        self._about = b""
        self._stranding: bytes | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._ways: set[_Way] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_down = False
        self._is_a_swamp = False
        self.losses = 0
        self.strandings = 0
        self.statements = 0

    def freeze(self) -> None:
        """From now on let nothing through and cut nothing, as a server that was stopped in its tracks: it takes new
        connections and says nothing."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Let everything through that was held back."""
        self._flowing.set()

    def strand(self, *, new_ones_too: bool = False) -> None:
        """Have every connection that there is die without a word, as behind a router that has forgotten it: both ends
        believe in it, what they say is accepted, and nothing ever arrives. Also those to come, with `new_ones_too`,
        until `come_up`."""
        self._is_a_swamp = new_ones_too
        for way in self._ways:
            way.stranded = True

    def strand_next(self, about: bytes) -> None:
        """Let the next statement whose text has this reach the server, and its connection die without a word then."""
        self._stranding = about

    def go_down(self) -> None:
        """From now on cut every connection, and each new one as it comes."""
        self._is_down = True
        self.cut(reset=True)

    def come_up(self) -> None:
        """Take connections again. Those that were stranded stay so."""
        self._is_down = self._is_a_swamp = False

    @property
    def dsn(self) -> str:
        """The same database, by this way."""
        assert self._server is not None
        user, at, _ = self._parts.netloc.rpartition("@")
        host, port = self._server.sockets[0].getsockname()
        return urlunsplit(self._parts._replace(netloc=f"{user}{at}{host}:{port}", query=""))

    def lose_next_answer(self, about: bytes = b"") -> None:
        """Let the next statement that commits be committed, and cut its connection before the answer is through.

        `about` is what its message has to contain.
        """
        self._armed, self._about = True, about

    def interject(self, data: bytes) -> None:
        """Say something to every client, as if it came from the server."""
        for way in self._ways:
            way.near.write(data)

    def cut(self, *, reset: bool = False) -> None:
        """Close every connection, in order or by a reset."""
        for near in [way.near for way in self._ways]:
            if reset:
                near.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                near.transport.abort()
            else:
                near.close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.thaw()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_down:
            writer.transport.abort()
            return
        way = _Way(writer)
        self._writers.add(writer)
        self._ways.add(way)
        try:
            if self._is_a_swamp:
                way.stranded = True
                await _swallow(reader)
            else:
                await self._lead(way, reader)
        finally:
            self._writers.discard(writer)
            self._ways.discard(way)
            writer.close()

    async def _lead(self, way: _Way, reader: asyncio.StreamReader) -> None:
        far_reader, far_writer = await dial(urlunsplit(self._parts))
        self._writers.add(far_writer)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._ask(reader, far_writer, way))
                both.create_task(self._answer(far_reader, way))
        finally:
            self._writers.discard(far_writer)
            far_writer.close()

    async def _ask(self, reader: asyncio.StreamReader, far: asyncio.StreamWriter, way: _Way) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                await self._flowing.wait()
                if way.stranded:
                    continue
                self.statements += data.startswith((RUNS_A_STATEMENT, ASKS_SIMPLY))
                statement = way.runs(data)
                if self._armed and statement is not None and self._about in data:
                    way.losing.set()
                far.write(data)
                if self._stranding is not None and statement is not None and self._stranding in statement:
                    self._stranding, way.stranded = None, True
                    self.strandings += 1
        if not way.stranded:  # else the server does not hear of this end
            far.close()

    async def _answer(self, far: asyncio.StreamReader, way: _Way) -> None:
        held = b""
        with suppress(ConnectionError):
            while data := await far.read(CHUNK):
                await self._flowing.wait()
                if way.stranded:
                    continue
                if not way.losing.is_set():
                    way.near.write(data)
                    continue
                held += data
                if held.endswith(READY_OUTSIDE_OF_A_TRANSACTION):
                    self._armed = False
                    self.losses += 1
                    break
                if held.endswith((b"Z\x00\x00\x00\x05T", b"Z\x00\x00\x00\x05E")):
                    # a statement inside of a transaction: its commit is what is waited for
                    way.near.write(held)
                    held = b""
                    way.losing.clear()
        if not way.stranded:
            way.near.close()


async def _swallow(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await reader.read(CHUNK):
            pass


async def dial(dsn: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the server of an address that names one. Raises `OSError`."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    port = int(query["port"][0]) if "port" in query else parts.port or 5432
    host = query["host"][0] if "host" in query else parts.hostname or "127.0.0.1"
    if host.startswith("/"):
        return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
    return await asyncio.open_connection(host, port)
