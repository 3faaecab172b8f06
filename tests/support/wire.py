"""HTTP/1.1 with the bytes in hand: for requests that no client library would send, and for many in one moment.

A connection writes what it is given and parses what comes back. Every wait has a deadline.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httptools

ANSWER_SECONDS = 30.0


class Cut(ConnectionError):
    """The other side closed the connection before its answer was complete."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - JSON is what it is
        """The body, parsed."""
        return json.loads(self.body)


def request(method: str, path: str, *, headers: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    """A well-formed request as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "host: relay.test", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Wire:
    """One connection; make it with `connect`, and use it as an async context manager."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, url: str) -> Self:
        """Connect to the host and port of a url. Raises `OSError`."""
        parts = urlsplit(url)
        async with asyncio.timeout(ANSWER_SECONDS):
            return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def write(self, data: bytes) -> None:
        """Write bytes, waiting while the other side does not read. Raises `OSError`."""
        self._writer.write(data)
        async with asyncio.timeout(ANSWER_SECONDS):
            await self._writer.drain()

    def end(self) -> None:
        """Say that nothing more comes."""
        self._writer.write_eof()

    async def reply(self, within: float = ANSWER_SECONDS) -> Reply:
        """The next answer. Raises `Cut` where there is none, and `TimeoutError`."""
        answer = _Answer()
        parser = httptools.HttpResponseParser(answer)
        async with asyncio.timeout(within):
            while not answer.complete:
                try:
                    data = await self._reader.read(65_536)
                except ConnectionError as fault:
                    raise Cut(str(fault)) from fault
                if not data:
                    raise Cut("the connection was closed before the answer was complete")
                parser.feed_data(data)
        return Reply(parser.get_status_code(), answer.headers, b"".join(answer.pieces))

    async def closed(self, within: float = ANSWER_SECONDS) -> bytes:
        """Wait until the other side closes; answers what it still sent. Raises `TimeoutError`."""
        async with asyncio.timeout(within):
            try:
                return await self._reader.read()
            except ConnectionError:
                return b""

    async def ask(self, data: bytes, within: float = ANSWER_SECONDS) -> Reply:
        """Write a request and read its answer."""
        await self.write(data)
        return await self.reply(within)


class _Answer:
    """What the parser reports."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.complete = True
