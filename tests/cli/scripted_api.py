"""An HTTP server that answers as a test says, for what a real Relay does not do on demand: losing an answer, say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from threading import Thread
from typing import Any

from tests.support.installation import LOOPBACK


@dataclass(frozen=True)
class Call:
    """A request that came."""

    method: str
    path: str
    body: Any
    key: str | None


LOSE_THE_ANSWER = None

Answer = tuple[int, Any] | None
"""A status and its JSON, or the connection is closed without a word."""


@dataclass
class ScriptedApi:
    """Answers each call by `answer`, and keeps what was asked."""

    answer: Callable[[Call], Answer]
    calls: list[Call] = field(default_factory=list)
    url: str = ""


@contextmanager
def scripted(answer: Callable[[Call], Answer], tls: SSLContext | None = None) -> Iterator[ScriptedApi]:
    """Serve the answers inside the block, over TLS if there is a context for it."""
    api = ScriptedApi(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._do()

        def do_POST(self) -> None:
            self._do()

        def _do(self) -> None:
            length = int(self.headers.get("content-length", 0))
            raw = self.rfile.read(length)
            call = Call(self.command, self.path, json.loads(raw) if raw else None, self.headers.get("idempotency-key"))
            api.calls.append(call)
            answered = api.answer(call)
            if answered is LOSE_THE_ANSWER:
                self.close_connection = True
                return
            status, document = answered
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_PATCH(self) -> None:
            self._do()

        def do_DELETE(self) -> None:
            self._do()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing of who does not believe the certificate."""

    with Server((LOOPBACK, 0), Handler) as server:
        api.url = f"{'https' if tls else 'http'}://{LOOPBACK}:{server.server_port}"
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        yield api
        server.shutdown()
