"""A way to PostgreSQL that a test can break at one exact place, such as between a commit and its answer.

It runs on the test's own event loop and passes bytes on in both directions. It understands two things of the protocol:
a statement is run by a Bind message or, for `commit`, by a simple query, and its answer ends with ReadyForQuery, which
the server sends after the commit.
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
RUNS_A_STATEMENT = b"B"
SAYS_COMMIT = b"COMMIT;"
READY_OUTSIDE_OF_A_TRANSACTION = b"Z\x00\x00\x00\x05I"


class Link:
    """The way to the server of an address; use it as an async context manager.

    `losses` counts the answers that were lost so far.
    """

    def __init__(self, dsn: str) -> None:
        self._parts = urlsplit(dsn)
        self._server: asyncio.Server | None = None
        self._armed = False
        self._about = b""
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._near: set[asyncio.StreamWriter] = set()
        self._is_down = False
        self.losses = 0

    def freeze(self) -> None:
        """From now on let nothing through and cut nothing, as a server that was stopped in its tracks: it takes new
        connections and says nothing."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Let everything through that was held back."""
        self._flowing.set()

    def go_down(self) -> None:
        """From now on cut every connection, and each new one as it comes."""
        self._is_down = True
        self.cut(reset=True)

    def come_up(self) -> None:
        """Take connections again."""
        self._is_down = False

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
        for near in self._near:
            near.write(data)

    def cut(self, *, reset: bool = False) -> None:
        """Close every connection, in order or by a reset."""
        for near in self._near:
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
        far_reader, far_writer = await dial(urlunsplit(self._parts))
        ends = {writer, far_writer}
        self._writers |= ends
        self._near.add(writer)
        losing = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._ask(reader, far_writer, losing))
                both.create_task(self._answer(far_reader, writer, losing))
        finally:
            self._writers -= ends
            self._near.discard(writer)
            for end in ends:
                end.close()

    async def _ask(self, reader: asyncio.StreamReader, far: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                await self._flowing.wait()
                runs = data.startswith(RUNS_A_STATEMENT) or SAYS_COMMIT in data
                if self._armed and runs and self._about in data:
                    losing.set()
                far.write(data)
        far.close()

    async def _answer(self, far: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        held = b""
        with suppress(ConnectionError):
            while data := await far.read(CHUNK):
                await self._flowing.wait()
                if not losing.is_set():
                    writer.write(data)
                    continue
                held += data
                if held.endswith(READY_OUTSIDE_OF_A_TRANSACTION):
                    self._armed = False
                    self.losses += 1
                    break
                if held.endswith((b"Z\x00\x00\x00\x05T", b"Z\x00\x00\x00\x05E")):
                    # a statement inside of a transaction: its commit is what is waited for
                    writer.write(held)
                    held = b""
                    losing.clear()
        writer.close()


async def dial(dsn: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the server of an address that names one. Raises `OSError`."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    port = int(query["port"][0]) if "port" in query else parts.port or 5432
    host = query["host"][0] if "host" in query else parts.hostname or "127.0.0.1"
    if host.startswith("/"):
        return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
    return await asyncio.open_connection(host, port)
