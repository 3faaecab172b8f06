"""A receiver whose every answer the test gives by hand, so that something can happen exactly between two steps.

It runs on the test's own event loop. A request is handed over when its body is there in whole; until it is answered,
its connection stays open and says nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that waits for its answer; header names are in lower case."""

    headers: Mapping[str, str]
    body: bytes
    writer: asyncio.StreamWriter

    @property
    def delivery_id(self) -> str:
        """Which delivery it is an attempt of."""
        return self.headers["relay-delivery-id"]

    @property
    def attempt(self) -> int:
        """Which attempt it says it is."""
        return int(self.headers["relay-attempt"])

    def answer(self, status: int = 200, *, retry_after: int | None = None) -> None:
        """Answer, and keep the connection. Whoever asked may be gone."""
        header = b"" if retry_after is None else b"retry-after: %d\r\n" % retry_after
        self.writer.write(b"HTTP/1.1 %d Said\r\n%bcontent-length: 0\r\n\r\n" % (status, header))


class Gate:
    """The receiver; use it as an async context manager."""

    def __init__(self) -> None:
        self._visits: asyncio.Queue[Visit] = asyncio.Queue()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._port = 0

    async def __aenter__(self) -> Self:
        await self.rise()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.die()

    async def rise(self) -> None:
        """Listen, where it did before if it died."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def die(self) -> None:
        """Listen no more, and leave whoever waits without an answer."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{LOOPBACK}:{self._port}/gate"

    @property
    def waiting(self) -> int:
        """How many requests nobody has taken yet."""
        return self._visits.qsize()

    async def visit(self, within: float) -> Visit:
        """The next request. Raises `TimeoutError`."""
        async with asyncio.timeout(within):
            return await self._visits.get()

    async def visits(self, count: int, within: float) -> list[Visit]:
        """The next so many requests. Raises `TimeoutError`."""
        async with asyncio.timeout(within):
            return [await self._visits.get() for _ in range(count)]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    lines = [line.partition(b":") for line in head.split(b"\r\n")[1:] if line]
                    headers = {name.decode().lower(): value.strip().decode("latin-1") for name, _, value in lines}
                    body = await reader.readexactly(int(headers["content-length"]))
                    await self._visits.put(Visit(headers, body, writer))
        finally:
            self._writers.discard(writer)
            writer.close()
