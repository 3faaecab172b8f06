"""A collector of spans: a real HTTP server on loopback that reads OTLP as the protocol's own definition has it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Keeps every span. `status` is what it answers; `silent` has it answer nothing until the end."""

    def __init__(self, *, status: int = 200, silent: bool = False) -> None:
        self.status = status
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.requests: list[tuple[str, str]] = []
        self._came = threading.Condition()
        self._over = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(self.path, self.headers["Content-Type"], body)
                if silent:
                    collector.wait_for_end()
                    return
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(collector.status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._serving = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """The setting's value."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._serving.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._serving.join()
        self._server.server_close()

    def wait_for_end(self) -> None:
        """Return when this is over."""
        self._over.wait()

    def take(self, path: str, content_type: str, body: bytes) -> None:
        """Read one request."""
        request = ExportTraceServiceRequest.FromString(body)
        with self._came:
            self.requests.append((path, content_type))
            self.bodies.append(body)
            if self.status == 200:
                for each in request.resource_spans:
                    self.resources.append(attributes(each.resource))
                    for scope in each.scope_spans:
                        self.spans += scope.spans
            self._came.notify_all()

    def until(self, count: int, within: float = 20.0) -> list[Span]:
        """Wait for so many spans."""
        with self._came:
            came = self._came.wait_for(lambda: len(self.spans) >= count, within)
            assert came, f"{len(self.spans)} of {count} spans came: {[span.name for span in self.spans]}"
            return list(self.spans)

    def until_asked(self, within: float = 20.0) -> None:
        """Wait for a request, whatever became of it."""
        with self._came:
            assert self._came.wait_for(lambda: bool(self.requests), within), "nobody asked"


def attributes(of: Any) -> dict[str, Any]:
    """The attributes of a span or a resource as plain values."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}
