"""One request's body coming in and its answer going out.

Owns reading within a limit of bytes and of time, for bodies of declared length and chunked ones alike, and the end of
a connection whose request was answered before its end. Invariant: never more than the limit and what the server has
buffered beyond it are held, whatever a `Content-Length` claims, nor more than `MOST_UNDER_READ` of all bodies together,
and neither a body nor its rest is waited for for ever.
"""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope, Send

from relay.web.answers import Answer
from relay.web.problems import ErrorCode, Refused, refuse

READ_SECONDS = 30.0
"""How long a whole body may take, give or take a second."""

DISCARD_SECONDS = 2.0
DISCARD_BYTES = 32 * 1024 * 1024
"""What a client that goes on sending after its answer is granted before the connection is closed under it."""

MOST_UNDER_READ = 128 * 1024 * 1024
"""Bytes of bodies that have come in parts and are not whole yet, in one process."""

_SWEEP_SECONDS = 1.0
_CLOSE = (b"connection", b"close")


class Disconnected(Exception):
    """The client left before its request was whole. There is nobody to answer."""


class Heap:
    """The bytes of unfinished bodies, all together; at most `most`, but for one that is alone."""

    def __init__(self, most: int = MOST_UNDER_READ) -> None:
        self.bytes = 0
        self._most = most

    def grow(self, own: int, more: int) -> None:
        """A body that has `own` bytes here gets `more`. Raises `Refused` (`overloaded`)."""
        if self.bytes + more > self._most and self.bytes > own:
            raise refuse(ErrorCode.OVERLOADED, "too many large bodies are being read; send it again in a moment")
        self.bytes += more


_HEAP = Heap()
"""This process's."""


class Intake:
    """One request's body on its way in: `declared` is its `Content-Length`, `chunked` says that it tells no length.

    `ended` says that nothing of it is left to come.
    """

    __slots__ = ("_receive", "declared", "ended")

    def __init__(self, receive: Receive, *, declared: bytes | None, chunked: bool) -> None:
        self._receive = receive
        self.declared = int(declared) if declared is not None and declared.isdigit() else 0
        # only what certainly has no body has none: a length that cannot be read is for the server to tell the end of
        self.ended = not chunked and (declared is None or (declared.isdigit() and not self.declared))

    @classmethod
    def of(cls, scope: Scope, receive: Receive) -> Intake:
        """The body of the request that `scope` describes."""
        headers = dict(scope["headers"])
        return cls(receive, declared=headers.get(b"content-length"), chunked=b"transfer-encoding" in headers)

    async def receive(self) -> Message:
        """The next message of ASGI."""
        message = await self._receive()
        if not message.get("more_body", False):
            self.ended = True
        return message

    async def read(self, limit: int, heap: Heap = _HEAP) -> bytes:
        """The whole body, at most `limit` bytes. Raises `Refused` (`payload_too_large`, `overloaded`), `Disconnected`.

        A declared length past the limit is refused before anything is read. The time is `BodyReader`'s to bound.
        """
        if self.declared > limit:
            raise too_large(limit)
        body = bytearray()
        try:
            return await self._gather(body, limit, heap)
        finally:
            heap.bytes -= len(body)

    async def _gather(self, body: bytearray, limit: int, heap: Heap) -> bytes:
        while not self.ended:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.ended = True
                raise Disconnected
            self.ended = not message.get("more_body", False)
            part: bytes = message.get("body", b"")
            if len(body) + len(part) > limit:
                raise too_large(limit)
            if self.ended and not body:
                return part
            heap.grow(len(body), len(part))
            body += part
        return bytes(body)

    async def discard(self) -> None:
        """Let the rest of the body go by, for a moment and within bounds, and keep nothing of it."""
        left = DISCARD_BYTES
        try:
            async with asyncio.timeout(DISCARD_SECONDS):
                while not self.ended and left > 0:
                    left -= len((await self.receive()).get("body", b""))
        except TimeoutError:
            return


def too_large(limit: int) -> Refused:
    """The refusal of a body that passes so many bytes."""
    return refuse(ErrorCode.PAYLOAD_TOO_LARGE, f"the body may have at most {limit} bytes", limit_bytes=limit)


class BodyReader:
    """Reads bodies of at most `limit` bytes, each within `READ_SECONDS`.

    One timer a second watches over all reads that are under way: a timer for each would cost a tenth of what the
    whole ingest of an event may.
    """

    def __init__(
        self,
        limit: int,
        *,
        seconds: float = READ_SECONDS,
        sweep_seconds: float = _SWEEP_SECONDS,
        heap: Heap = _HEAP,
    ) -> None:
        self.limit = limit
        self._heap = heap
        self._seconds = seconds
        self._sweep_seconds = sweep_seconds
        self._reading: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._sweeping = False

    async def read(self, intake: Intake) -> bytes:
        """The whole body. Raises `Refused` (`payload_too_large`, `body_timeout`, `overloaded`) and `Disconnected`."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a body is read inside a task")
        loop = task.get_loop()
        self._reading[task] = loop.time()
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(self._sweep_seconds, self._sweep, loop)
        try:
            return await intake.read(self.limit, self._heap)
        except asyncio.CancelledError:
            # as asyncio.timeout does it: a cancellation that was not ours stays one
            if task in self._late and task.uncancel() == 0:
                raise refuse(
                    ErrorCode.BODY_TIMEOUT, f"the body did not arrive within {self._seconds:.0f} seconds"
                ) from None
            raise
        finally:
            self._reading.pop(task, None)
            self._late.discard(task)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Interrupt the reads that have taken too long; they stand first, in the order in which they began."""
        began_before = loop.time() - self._seconds
        late = [task for task, began in self._reading.items() if began <= began_before]
        for task in late:
            del self._reading[task]
            self._late.add(task)
            task.cancel()
        self._sweeping = bool(self._reading)
        if self._sweeping:
            loop.call_later(self._sweep_seconds, self._sweep, loop)


async def send_answer(answer: Answer, intake: Intake, send: Send) -> None:
    """Send an answer, and end the connection if the request's body is still under way.

    What is left of such a body must be neither kept nor read for ever; but closing a connection that has unread data
    resets it, and the client could lose the answer. So the answer goes out whole, the client gets a moment to notice
    it and stop, and then the connection is closed.
    """
    headers = [
        (b"content-type", answer.media_type),
        (b"content-length", b"%d" % len(answer.body)),
        *answer.headers,
    ]
    if intake.ended:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        return
    headers.append(_CLOSE)
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    await intake.discard()
    await send({"type": "http.response.body", "body": b""})
