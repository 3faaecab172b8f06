"""An ASGI application behind a socket that is bound already: uvicorn, with what it leaves open closed.

Owns the server's options and its life. Invariant: once `stop` is set, `serve` returns within `drain_seconds` and a
moment, and ends no plain connection by a reset that may bring a request; whatever a client sends beside the bodies of
its requests is bounded in bytes and in time.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from relay.app.accepting import Acceptor
from relay.app.listening import BACKLOG
from relay.app.peers import Peers
from relay.app.tls import Tls
from relay.web.certificates import PEER
from relay.web.problems import ErrorCode, Problem

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application
    from uvicorn.server import ServerState

KEEP_ALIVE_SECONDS = 75
"""How long a connection may be idle between two requests; a minute is what most load balancers keep."""

HEAD_SECONDS = 20.0
"""How long a request line and its headers may take, and how long a new connection may say nothing or shake hands."""

HEAD_BYTES = 64 * 1024
"""How long a request line and its headers may be together, and likewise what is neither they nor a body."""

_FRAMING = (b"content-length", b"transfer-encoding")

HALF_CLOSED_SECONDS = 10.0
"""How long an answer may take whose client says nothing more: most such clients have left, and none asks again."""

GRACE_SECONDS = 0.5
"""How long a kept connection may still bring a request once the server stops: whoever is busy learns by its answer that
it is the last, and sends no other into the end of the connection."""

LINGER_SECONDS = 0.4
"""For how long what comes is read and dropped after a kept connection was ended from here: it was sent before the end
was seen, and unread it would make a reset of the end."""

TICK_SECONDS = 1.0
"""How often the `Date` header is renewed: it has a grain of a second."""


NOBODYS = Peers()
"""For listeners behind which nobody asks who connects."""


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    stop: asyncio.Event,
    ready: Callable[[], None],
    drain_seconds: float,
    tls: Tls | None = None,
    peers: Peers = NOBODYS,
) -> None:
    """Serve until `stop` is set, then close the socket and finish the requests under way, at most `drain_seconds` long.

    `ready` is called when connections are accepted. Raises `CannotRun` if the files of `tls` cannot be used.
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
    )
    await _Server(config, stop, ready, tls, peers).serve([listener])


class _Server(uvicorn.Server):
    """uvicorn's server, stopped by an event: it takes no signals, wakes up once a second instead of ten times, and
    shares its socket fairly.
    """

    def __init__(
        self, config: uvicorn.Config, stop: asyncio.Event, ready: Callable[[], None], tls: Tls | None, peers: Peers
    ) -> None:
        super().__init__(config)
        self._stop = stop
        self._ready = ready
        self._tls = None if tls is None else tls.context()
        self._peers = peers

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections from the sockets."""
        make_protocol = partial(BoundedHead, self._peers, self.config, self.server_state)
        self.servers = [Acceptor(each, make_protocol, self._tls, HEAD_SECONDS) for each in sockets or ()]  # type: ignore[misc]  # it has what uvicorn's shutdown asks of a server
        self.started = True

    async def main_loop(self) -> None:
        await self.on_tick(0)
        self._ready()
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(TICK_SECONDS):
                    await self._stop.wait()
            except TimeoutError:
                await self.on_tick(0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take who has connected by now, close the sockets, and let every connection come to its end."""
        acceptors = cast("list[Acceptor]", self.servers)
        for each in acceptors:
            each.take_rest()
        for listener in sockets or ():
            listener.close()
        for each in acceptors:
            await each.opened()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class BoundedHead(HttpToolsProtocol):
    """Bounds what is read beside bodies, which uvicorn leaves to a proxy, and refuses in Relay's own form.

    Heads, trailers and chunk extensions are counted together: what was read since the last piece of a body or the last
    end of a request. A head that is complete in one read, as nearly all are, costs one comparison.
    """

    _beside_bytes = 0
    _advanced = False
    _in_head = True
    _resuming = False
    _leaving = False
    _parted = False
    _head_timer: asyncio.TimerHandle | None = None

    def __init__(self, peers: Peers, config: uvicorn.Config, server_state: ServerState) -> None:
        super().__init__(config, server_state, app_state={})
        self._peers = peers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Look who connected, once for all its requests. A connection that says nothing has a deadline, too."""
        super().connection_made(transport)
        peer = self._peers.look(transport, None if self.client is None else self.client[0])
        if peer is not None:
            self.app_state[PEER] = peer  # of which each request is given a copy
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever it was waiting for is over."""
        self._forget_head()
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:  # type: ignore[override]  # uvicorn's closes every connection
        """A client that says that nothing more comes is still there for the answer to what it has said.

        TLS knows no half-closed connections: there the end is the end.
        """
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or self.scheme == "https":
            return None
        if cycle.more_body:
            self._refuse("the request ended before its body did")
            return None
        cycle.keep_alive = False
        self.loop.call_later(HALF_CLOSED_SECONDS, self.transport.close)
        return True

    # -- the end of a kept connection ---------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """The server stops: the answer to the request under way is the last, or else to the one that comes shortly."""
        self._leaving = True
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_started:
            self.loop.call_later(GRACE_SECONDS, self._part)
        else:
            cycle.keep_alive = False

    def timeout_keep_alive_handler(self) -> None:
        """It was idle for long."""
        self._part()

    def _part(self) -> None:
        """End a kept connection so that a request that is on its way meets an end and no reset: whoever sent it knows
        by that that nobody has read it. TLS says so itself."""
        cycle: RequestResponseCycle | None = self.cycle
        if self.transport.is_closing():
            return
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False
        elif self.scheme == "https":
            self.transport.close()
        else:
            self._parted = True
            self._forget_head()
            self.transport.write_eof()
            self.loop.call_later(LINGER_SECONDS, self.transport.close)

    # -- what the parser reports --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins, on a new connection or on a kept one."""
        if not self._resuming:
            self._in_head = True
            super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header without the white space around it (RFC 9110, 5.5); a trailer is none (6.5.1)."""
        if not self._in_head:
            return
        name = name.lower()
        value = value.rstrip(b" \t")
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"transfer-encoding" and value.lower() != b"chunked":
            # another coding would have to be undone here, and nobody is told to use one
            raise ValueError("a body is chunked or has a length")
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """What follows is the application's to bound."""
        if not self._resuming:
            self._in_head = False
            super().on_headers_complete()
            if self._leaving:
                self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """A piece of the body, which is bounded where it is read."""
        self._advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole, unless its parser stopped at the offer of another protocol in its head."""
        if self.parser.should_upgrade() and self._framing():
            return
        self._advanced = True
        super().on_message_complete()

    # -- bytes --------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Feed the parser, then look how much it took without getting on."""
        if self._parted:
            return
        self._unset_keepalive_if_required()
        self._advanced = False
        if not self._parse(data):
            self._refuse("the bytes are not a valid HTTP request")
            return
        self._beside_bytes = 0 if self._advanced else self._beside_bytes + len(data)
        if self._beside_bytes > HEAD_BYTES:
            what = "the request line and the headers" if self._in_head else "the trailers and chunk extensions"
            self._refuse(f"{what} may have at most {HEAD_BYTES} bytes")
        elif not self._in_head:
            self._forget_head()
        elif self._head_timer is None:
            self._watch_head()

    def _parse(self, data: bytes) -> bool:
        """Parse all of it; False if it is no HTTP.

        The parser stops behind a head that offers another protocol (Java's client offers HTTP/2 in each request). No
        other is spoken here, and an offer may be ignored (RFC 9110, 7.8): the request goes on as if there were none.
        """
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                self._read_on()
                data = data[offer.args[0] :]
            except httptools.HttpParserError:
                return False
            else:
                break
        return True

    def _read_on(self) -> None:
        """Have the body of the request whose head was read parsed as the body that it is, by a parser of its own."""
        framing = self._framing()
        if not framing:
            return
        self.parser = httptools.HttpRequestParser(self)
        self._resuming = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % framing)
        self._resuming = False

    def _framing(self) -> bytes:
        """The headers of the current request that say where its body ends, as lines; empty if it has none."""
        lines = (b"%b: %b\r\n" % header for header in self.headers if header[0] in _FRAMING and header[1] != b"0")
        return b"".join(lines)

    def _watch_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        """Close a connection that says nothing, or nothing whole: there is no request that could be answered."""
        self._head_timer = None
        self.transport.close()

    def _refuse(self, detail: str) -> None:
        """Answer with a problem document and close.

        What is refused may be the rest of a request whose answer has not begun: then this is its answer. If it comes
        behind whole requests that are still being answered, the end of those answers is the end of the connection.
        """
        self._forget_head()
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False
            if not cycle.more_body:
                return
            cycle.disconnected = True
            cycle.message_event.set()
        if cycle is None or cycle.response_complete or not (cycle.response_started or self.pipeline):
            answer = Problem(ErrorCode.MALFORMED, detail).answer()
            head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (answer.media_type, len(answer.body)) + answer.body)
        self.transport.close()
