"""HTTP/1.1 with the bytes in hand: for requests that no client library would send, and for many in one moment.

A connection writes what it is given and parses what comes back; an answer that came before the connection was reset is
still an answer. Every wait has a deadline.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlsplit

import httptools

ANSWER_SECONDS = 30.0


class Cut(ConnectionError):
    """The connection was closed before an answer was complete."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


def request(method: str, path: str, *, headers: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    """A well-formed request as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "host: relay.test", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Wire(asyncio.Protocol):
    """One connection; make it with `connect`, and use it as an async context manager."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._came = bytearray()
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()

    @classmethod
    async def connect(cls, url: str, tls: ssl.SSLContext | None = None) -> Self:
        """Connect to the host and port of a url, whatever its scheme, with TLS if that is given. Raises `OSError`."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        async with asyncio.timeout(ANSWER_SECONDS):
            _, wire = await asyncio.get_running_loop().create_connection(cls, parts.hostname, parts.port, ssl=tls)
        return wire

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close it; what was not sent yet is dropped."""
        if self._transport is not None:
            self._transport.abort()
        await self._lost.wait()

    async def write(self, data: bytes) -> None:
        """Write bytes, waiting while the other side does not read. Raises `Cut` and `TimeoutError`."""
        assert self._transport is not None
        self._transport.write(data)
        await asyncio.sleep(0)  # a loop that is never let run does not hear that the connection is gone
        async with asyncio.timeout(ANSWER_SECONDS):
            await self._writable.wait()
        if self._lost.is_set():
            raise Cut("the connection was closed while something was written")

    def end(self) -> None:
        """Say that nothing more comes."""
        assert self._transport is not None
        self._transport.write_eof()

    async def reply(self, within: float = ANSWER_SECONDS) -> Reply:
        """The next answer; one at a time is under way. Raises `Cut` where there is none, and `TimeoutError`."""
        answer = _Answer()
        parser = httptools.HttpResponseParser(answer)
        async with asyncio.timeout(within):
            while not answer.complete:
                while not self._came:
                    if self._lost.is_set():
                        raise Cut("the connection was closed before the answer was complete")
                    self._changed.clear()
                    await self._changed.wait()
                parser.feed_data(bytes(self._came))
                self._came.clear()
        return Reply(parser.get_status_code(), answer.headers, b"".join(answer.pieces))

    async def closed(self, within: float = ANSWER_SECONDS) -> None:
        """Wait until the other side has closed the connection. Raises `TimeoutError`."""
        async with asyncio.timeout(within):
            await self._lost.wait()

    async def ask(self, data: bytes, within: float = ANSWER_SECONDS) -> Reply:
        """Write a request and read its answer."""
        await self.write(data)
        return await self.reply(within)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's; the connection is there."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        """asyncio's; the connection is gone, whoever closed it."""
        self._lost.set()
        self._changed.set()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """asyncio's; something came."""
        self._came += data
        self._changed.set()

    def pause_writing(self) -> None:
        """asyncio's; the other side does not keep up."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """asyncio's; it does again."""
        self._writable.set()


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
