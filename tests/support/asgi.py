"""Calling an ASGI application as a server does, message by message, and serving one on a real socket.

Owns nothing of what is tested. `call` shows what an application does with a request's pieces; `served` is for what only
a socket shows.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message

Headers = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Reply:
    """What an application answered; header names in lower case. `messages` is how it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    messages: Sequence[Message]

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem document; fails for anything else."""
        assert self.headers["content-type"] == "application/problem+json", self
        document = self.json()
        assert document["status"] == self.status
        assert {"type", "title", "status", "detail", "code"} <= document.keys()
        code: str = document["code"]
        return code


async def call(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    headers: Headers = (),
    body: bytes | Iterable[bytes] = b"",
    declared: bool = True,
) -> Reply:
    """Make one request. Several pieces of body come one at a time; without `declared` their length is not told."""
    pieces = [body] if isinstance(body, bytes) else list(body)
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    if not declared:
        raw.append((b"transfer-encoding", b"chunked"))
    elif any(pieces):
        raw.append((b"content-length", b"%d" % sum(map(len, pieces))))
    path, _, query = path.partition("?")
    sent: list[Message] = []
    left = list(reversed(pieces))

    async def receive() -> Message:
        if not left:
            return {"type": "http.disconnect"}
        piece = left.pop()
        return {"type": "http.request", "body": piece, "more_body": bool(left)}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": raw,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8080),
    }
    await app(scope, receive, send)
    return _reply(sent)


def _reply(sent: Sequence[Message]) -> Reply:
    start, *rest = sent
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]}
    return Reply(start["status"], headers, b"".join(message.get("body", b"") for message in rest), sent)


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs the tests."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[tuple[str, int]]:
    """Serve the application on a free loopback port, as the product does; gives the address."""
    config = uvicorn.Config(
        app, http="httptools", ws="none", lifespan="off", access_log=False, server_header=False, log_config=None
    )
    server = _Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            async with asyncio.timeout(10):
                await serving
