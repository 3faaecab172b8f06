"""Serving the receiver: a socket, uvicorn on top of it, and a stop that is prompt.

Owns the listening socket and the server's life. Invariant: once `stop` is set, `serve` returns within
`GRACE_SECONDS` and a moment, whatever modes still hold connections open.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relay.testkit.answers import TRANSPORT
from relay.testkit.app import ReceivingApp

GRACE_SECONDS = 5
KEEP_ALIVE_SECONDS = 75
BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of a PEM certificate chain and of its key."""

    certificate: str
    key: str


class _TransportInScope(HttpToolsProtocol):
    """Lets the application reach the connection, which ASGI hides: `/reset` has to tell the kernel how to
    close.
    """

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {TRANSPORT: {"transport": self.transport}}


class _Server(uvicorn.Server):
    """uvicorn's server, but stopped by an event: it takes no signals and does not wake up to look."""

    def __init__(self, config: uvicorn.Config, stop: asyncio.Event, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._stop = stop
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def main_loop(self) -> None:
        await self._stop.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    app: ReceivingApp,
    bind: tuple[str, int] | socket.socket,
    *,
    stop: asyncio.Event,
    ready: Callable[[tuple[str, int]], None] | None = None,
    tls: Tls | None = None,
) -> None:
    """Serve the receiver on `bind` until `stop` is set: a host and a port (0 takes a free one), or a socket that is
    bound already and is closed at the end.

    `ready` is called once with the address in use, when connections are accepted. Raises `OSError` where the
    address cannot be bound. What the modes hold open is cut at the stop.
    """
    with _listen(bind) as listener:
        host, port = listener.getsockname()[:2]
        server = _Server(_config(app, tls), stop, lambda: None if ready is None else ready((host, port)))
        release = asyncio.create_task(_release(app, stop))
        try:
            await server.serve([listener])
        finally:
            release.cancel()
            await asyncio.gather(release, return_exceptions=True)
            await app.close()


def _config(app: ReceivingApp, tls: Tls | None) -> uvicorn.Config:
    return uvicorn.Config(
        cast("uvicorn._types.ASGI3Application", app),
        http=_TransportInScope,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )


def _listen(bind: tuple[str, int] | socket.socket) -> socket.socket:
    if isinstance(bind, socket.socket):
        return bind
    family = socket.AF_INET6 if ":" in bind[0] else socket.AF_INET
    return socket.create_server(bind, family=family, backlog=BACKLOG)


async def _release(app: ReceivingApp, stop: asyncio.Event) -> None:
    await stop.wait()
    app.release()
