"""An ASGI application behind a socket that is bound already: uvicorn, with what it leaves open closed.

Owns the server's options and its life. Invariant: once `stop` is set, `serve` returns within `drain_seconds` and a
moment; what a client sends before its request begins is bounded in bytes and in time."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from relay.app.faults import CannotRun
from relay.app.listening import BACKLOG
from relay.settings import Settings
from relay.web.problems import ErrorCode, Problem

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

KEEP_ALIVE_SECONDS = 75
"""How long a connection may be idle between two requests; a minute is what most load balancers keep."""

HEAD_SECONDS = 20.0
"""How long a request line and its headers may take, and how long a new connection may say nothing."""

HEAD_BYTES = 64 * 1024
"""How long a request line and its headers may be together."""

TICK_SECONDS = 1.0
"""How often the `Date` header is renewed: it has a grain of a second."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of a PEM certificate chain and of its key, which fit together."""

    certificate: Path
    key: Path


def tls_of(settings: Settings) -> Tls | None:
    """The certificate that the gateway is to show; None for plain HTTP. Raises `CannotRun` if it cannot be used."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as fault:  # what ssl raises for a bad certificate is one, too
        raise CannotRun(
            f"the certificate {settings.tls_cert} with the key {settings.tls_key} cannot be used: {fault};"
            " set RELAY_TLS_CERT and RELAY_TLS_KEY to PEM files that belong together"
        ) from fault
    return Tls(settings.tls_cert, settings.tls_key)


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    stop: asyncio.Event,
    ready: Callable[[], None],
    drain_seconds: float,
    tls: Tls | None = None,
) -> None:
    """Serve until `stop` is set, then close the socket and finish the requests under way, at most `drain_seconds` long.

    `ready` is called when connections are accepted.
    """
    config = uvicorn.Config(
        cast("ASGI3Application", app),
        http=BoundedHead,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",  # anybody can cause its warnings, as often as they like
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else str(tls.key),
    )
    await _Server(config, stop, ready).serve([listener])


class _Server(uvicorn.Server):
    """uvicorn's server, stopped by an event: it takes no signals, and wakes up once a second instead of ten times."""

    def __init__(self, config: uvicorn.Config, stop: asyncio.Event, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._stop = stop
        self._ready = ready

    async def main_loop(self) -> None:
        await self.on_tick(0)
        self._ready()
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(TICK_SECONDS):
                    await self._stop.wait()
            except TimeoutError:
                await self.on_tick(0)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class BoundedHead(HttpToolsProtocol):
    """Bounds what comes before a request's body, which uvicorn leaves to a proxy, and refuses in Relay's own form.

    A head that is complete in one read, as nearly all are, costs one comparison.
    """

    _head_bytes = 0
    _in_head = True
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """A connection that says nothing has a deadline, too."""
        super().connection_made(transport)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever it was waiting for is over."""
        self._forget_head()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request begins, on a new connection or on a kept one."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """What follows is the application's to bound."""
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, then look whether it is still inside a head."""
        super().data_received(data)
        if not self._in_head:
            if self._head_timer is not None or self._head_bytes:
                self._forget_head()
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self._refuse(f"the request line and the headers may have at most {HEAD_BYTES} bytes")
        elif self._head_timer is None:
            self._watch_head()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn says of bytes that are no HTTP, in the form of all of Relay's refusals."""
        self._refuse(msg)

    def _watch_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _forget_head(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        """Close a connection that says nothing, or nothing whole: there is no request that could be answered."""
        self._head_timer = None
        self.transport.close()

    def _refuse(self, detail: str) -> None:
        """Answer with a problem document and close; in the middle of another answer, the close is the answer."""
        self._forget_head()
        if self.transport.is_closing():
            return
        answering: RequestResponseCycle | None = self.cycle
        if answering is None or answering.response_complete:
            answer = Problem(ErrorCode.MALFORMED, detail).answer()
            head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (answer.media_type, len(answer.body)) + answer.body)
        self.transport.close()
