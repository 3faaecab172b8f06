"""Carrying a reply out: from a decision to bytes, silence or a reset on the connection.

Owns how each `Reply` looks on the wire. Invariant: whatever a reply holds open ends when the other side
leaves, when `release` is called, or after `LONGEST_HOLD_SECONDS`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache
from typing import Any, assert_never

from relay.testkit.acks import Acknowledger
from relay.testkit.modes import (
    AckLater,
    Answer,
    Bomb,
    Flood,
    Hang,
    HeaderLines,
    Later,
    Reply,
    Reset,
    Trickle,
    problem,
)

TRANSPORT = "relay.testkit.transport"
"""The ASGI extension through which a reply reaches the connection; its entry `transport` is the asyncio
transport.
"""

LONGEST_HOLD_SECONDS = 3600.0

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_MEBIBYTE = 1024 * 1024
_CHUNK = bytes(range(32, 127)).ljust(64, b"-") * 690
_PAUSE_EVERY = 16
"""After so many chunks without a wait the loop gets its turn."""

_GZIP_HEAD = bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 2, 255))
_LINGER_NOT = struct.pack("ii", 1, 0)
_BINARY: HeaderLines = ((b"content-type", b"application/octet-stream"),)
_GZIP: HeaderLines = ((b"content-type", b"text/plain"), (b"content-encoding", b"gzip"))


class Responder:
    """Carries out the replies of one receiver, and can let go of everyone it holds."""

    def __init__(self, acknowledger: Acknowledger) -> None:
        self._acknowledger = acknowledger
        self._held: set[asyncio.Transport] = set()
        self._released = False

    async def perform(self, reply: Reply, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, whose body has been read, as the reply says."""
        if isinstance(reply, Answer):
            await answer(reply, send)
            return
        with self._holding(transport_of(scope)) as transport:
            match reply:
                case Later():
                    if not await _left_within(reply.seconds, receive):
                        await answer(reply.answer, send)
                case Flood():
                    await _stream(reply.status, _BINARY, reply.size, _flood(reply.size), send)
                case Bomb():
                    await _stream(reply.status, _GZIP, _bomb_size(reply.mebibytes), _bomb(reply.mebibytes), send)
                case Trickle():
                    await _trickle(reply, receive, send, transport)
                case Hang():
                    await _left_within(LONGEST_HOLD_SECONDS, receive)
                    await _abort(transport, receive)
                case Reset():
                    await _reset(reply, receive, send, transport)
                case AckLater():
                    await self._ack_later(reply, send)
                case _:
                    assert_never(reply)

    def release(self) -> None:
        """Cut every connection that a reply holds open now, and any that would be held from now on."""
        self._released = True
        for transport in tuple(self._held):
            transport.abort()

    @contextmanager
    def _holding(self, transport: asyncio.Transport | None) -> Iterator[asyncio.Transport | None]:
        if transport is None:
            yield None
            return
        if self._released:
            transport.abort()
        self._held.add(transport)
        try:
            yield transport
        finally:
            self._held.discard(transport)

    async def _ack_later(self, reply: AckLater, send: Send) -> None:
        if self._acknowledger.promise(reply.receipt_id, reply.delivery_id, reply.seconds):
            await answer(Answer(reply.status, body=b"the ack follows\n"), send)
        else:
            await answer(problem(503, "too_many_acks", "too many acks are waiting already"), send)


def transport_of(scope: Message) -> asyncio.Transport | None:
    """The connection under this request, where the server lets an application reach it."""
    extension = scope.get("extensions", {}).get(TRANSPORT)
    return None if extension is None else extension["transport"]


async def answer(reply: Answer, send: Send) -> None:
    """Send an ordinary response with its length."""
    headers = [*reply.headers]
    if reply.status not in (204, 304):
        headers.append((b"content-length", b"%d" % len(reply.body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def _left_within(seconds: float, receive: Receive) -> bool:
    """Wait until the other side leaves, at most so long; True if it left."""
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return False
    return True


async def _abort(transport: asyncio.Transport | None, receive: Receive) -> None:
    """Cut the connection, and wait for the server to notice, so that it does not answer in our place."""
    if transport is not None:
        transport.abort()
        await _left_within(LONGEST_HOLD_SECONDS, receive)


async def _stream(status: int, headers: HeaderLines, size: int, chunks: Iterator[bytes], send: Send) -> None:
    """Send a body of known size in chunks; waits whenever the other side is slower."""
    length = (b"content-length", b"%d" % size)
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    for number, chunk in enumerate(chunks, start=1):
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if number % _PAUSE_EVERY == 0:
            await asyncio.sleep(0)
    await send({"type": "http.response.body"})


def _flood(size: int) -> Iterator[bytes]:
    for start in range(0, size, len(_CHUNK)):
        yield _CHUNK[: size - start]


async def _trickle(reply: Trickle, receive: Receive, send: Send, transport: asyncio.Transport | None) -> None:
    await send({"type": "http.response.start", "status": reply.status, "headers": [*_BINARY]})
    for _ in range(int(LONGEST_HOLD_SECONDS / reply.seconds) + 1):
        await send({"type": "http.response.body", "body": b".", "more_body": True})
        if await _left_within(reply.seconds, receive):
            return
    await _abort(transport, receive)


async def _reset(reply: Reset, receive: Receive, send: Send, transport: asyncio.Transport | None) -> None:
    """Close with RST: what was sent may be read, and then the connection is gone."""
    if transport is None:
        await answer(problem(501, "no_transport", "this server does not let a connection be reset"), send)
        return
    if reply.status is not None:
        length = (b"content-length", b"%d" % len(_CHUNK))
        await send({"type": "http.response.start", "status": reply.status, "headers": [*_BINARY, length]})
        await send({"type": "http.response.body", "body": _CHUNK[:1024], "more_body": True})
        await _flushed(transport)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
    await _abort(transport, receive)


async def _flushed(transport: asyncio.Transport) -> None:
    """Wait, at most a second, until what was written is with the kernel."""
    for _ in range(100):
        if transport.is_closing() or transport.get_write_buffer_size() == 0:
            return
        await asyncio.sleep(0.01)


@cache
def _bomb_parts() -> tuple[bytes, bytes]:
    """A mebibyte of zeros as a deflate block that may be repeated at will, and the end of such a stream."""
    # A full flush ends on a byte and forgets what came before: repetitions need no history.
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = compressor.compress(bytes(_MEBIBYTE)) + compressor.flush(zlib.Z_FULL_FLUSH)
    return block, compressor.flush(zlib.Z_FINISH)


def _bomb_size(mebibytes: int) -> int:
    block, end = _bomb_parts()
    return len(_GZIP_HEAD) + mebibytes * len(block) + len(end) + 8


def _bomb(mebibytes: int) -> Iterator[bytes]:
    block, end = _bomb_parts()
    zeros, checksum = bytes(_MEBIBYTE), 0
    yield _GZIP_HEAD
    for _ in range(mebibytes):
        checksum = zlib.crc32(zeros, checksum)
        yield block
    yield end + struct.pack("<II", checksum, mebibytes * _MEBIBYTE % 2**32)
