"""Serving the receiver: a socket, uvicorn on top of it, and a stop that is prompt.

Owns the listening socket and the server's life. Invariant: once `stop` is set, `serve` returns within
twice `GRACE_SECONDS`, whatever modes still hold connections open.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relay.testkit.answers import TRANSPORT
from relay.testkit.app import ReceivingApp

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

GRACE_SECONDS = 2.0
KEEP_ALIVE_SECONDS = 75
BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of a PEM certificate chain and of its key."""

    certificate: Path
    key: Path


class _TransportInScope(HttpToolsProtocol):
    """Lets the application reach the connection, which ASGI hides: `/reset` has to tell the kernel how to close."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {TRANSPORT: {"transport": self.transport}}


class _Server(uvicorn.Server):
    """uvicorn's server, but stopped by an event: it takes no signals, does not wake up to look, and stops promptly."""

    def __init__(
        self, config: uvicorn.Config, app: ReceivingApp, stop: asyncio.Event, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._receiving = app
        self._stop = stop
        self._ready = ready

    async def main_loop(self) -> None:
        self._ready()
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cut what is held open, finish the answers under way within `GRACE_SECONDS`, then cut the rest."""
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        self._receiving.release()
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
        await self._tasks_end_within(GRACE_SECONDS)
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()
        await self._tasks_end_within(GRACE_SECONDS)

    async def _tasks_end_within(self, seconds: float) -> None:
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=seconds)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Bind and listen; port 0 takes a free one. Raises `OSError` where the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


async def serve(
    app: ReceivingApp,
    listener: socket.socket,
    *,
    stop: asyncio.Event,
    ready: Callable[[tuple[str, int]], None] | None = None,
    tls: Tls | None = None,
) -> None:
    """Serve the receiver on a listening socket until `stop` is set, then close both.

    `ready` is called once with host and port when connections are accepted. What the modes hold open is cut at the
    stop. With `tls` it speaks HTTPS alone.
    """
    host, port = listener.getsockname()[:2]
    server = _Server(_config(app, tls), app, stop, lambda: None if ready is None else ready((host, port)))
    try:
        await server.serve([listener])
    finally:
        listener.close()
        await app.close()


def _config(app: ReceivingApp, tls: Tls | None) -> uvicorn.Config:
    return uvicorn.Config(
        cast("ASGI3Application", app),
        http=_TransportInScope,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",  # malformed requests are no news here
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
