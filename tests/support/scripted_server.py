"""A server on loopback that does, per connection, exactly what a test says: on the level of bytes, over TCP or TLS.

A script is a function of one `Peer`, run in a thread of its own per connection; what it does wrong fails the test at
the end. Everything a peer waits for has a deadline.
"""

import asyncio
import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

DEADLINE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it arrived: the request line, the headers in order with names as sent, and the body."""

    line: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def values(self, name: str) -> list[str]:
        """All values of the header, whatever its case."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


class Peer:
    """The server's end of one connection. `number` counts connections from 0."""

    def __init__(self, server: "ScriptedServer", sock: socket.socket, number: int) -> None:
        self.server = server
        self.socket = sock
        self.number = number
        self._unread = b""

    def read_head(self) -> Received | None:
        """Read a request's head only; None if the client left. `body` is what came along with it."""
        while b"\r\n\r\n" not in self._unread:
            data = self.socket.recv(65536)
            if not data:
                return None
            self._unread += data
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        pairs = (each.partition(":") for each in lines)
        return Received(line, tuple((name, value.strip()) for name, _, value in pairs), self._unread)

    def read_request(self) -> Received | None:
        """Read a whole request and add it to the server's; None if the client left before one."""
        head = self.read_head()
        if head is None:
            return None
        length = int(head.values("content-length")[0])
        while len(self._unread) < length:
            data = self.socket.recv(65536)
            if not data:
                return None
            self._unread += data
        request = Received(head.line, head.headers, self._unread[:length])
        self._unread = self._unread[length:]
        with self.server.changed:
            self.server.requests.append(request)
            self.server.changed.notify_all()
        return request

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, status: int = 200, body: bytes = b"ok", *headers: bytes) -> None:
        """Send a whole response that leaves the connection open."""
        extra = b"".join(header + b"\r\n" for header in headers)
        self.send(b"HTTP/1.1 %d Word\r\n%sContent-Length: %d\r\n\r\n%s" % (status, extra, len(body), body))

    def reset(self) -> None:
        """Break the connection off with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def wait_for_close(self) -> bytes:
        """Wait until the client closes or resets; answers what it sent until then."""
        seen = self._unread
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := self.socket.recv(65536):
                seen += data
        return seen

    def pause(self, seconds: float) -> bool:
        """Let time pass, as part of a script's behaviour; ends early if the test ends, which it answers with True."""
        return self.server.stopping.wait(seconds)


Script = Callable[[Peer], None]


def answering(*responses: bytes) -> Script:
    """A script that answers each request on a connection with the next of the responses, the last one from then on."""

    def script(peer: Peer) -> None:
        count = 0
        while peer.read_request() is not None:
            peer.send(responses[min(count, len(responses) - 1)])
            count += 1

    return script


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class ScriptedServer:
    """A listening server; use it as a context manager.

    `tls` wraps each connection; `receive_buffer` is its SO_RCVBUF, set before a connection is made so that it bounds
    the window. `requests` and `connections` say what arrived so far, `ended` how many scripts ran out, `faults` what a
    script did not expect.
    """

    def __init__(
        self,
        script: Script,
        *,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        receive_buffer: int | None = None,
    ) -> None:
        self._script = script
        self._tls = tls
        self._listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._listener.bind((host, port))
        self._listener.listen(512)
        self.port: int = self._listener.getsockname()[1]
        self.host = host
        self.changed = threading.Condition()
        self.stopping = threading.Event()
        self.requests: list[Received] = []
        self.connections = 0
        self.ended = 0
        self.faults: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._acceptor = threading.Thread(target=self._accept, name="scripted server")

    def url(self, path: str = "/hook", host: str | None = None) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{host or self.host}:{self.port}{path}"

    async def saw(self, condition: Callable[[], bool]) -> None:
        """`wait_until` for a test whose loop has to go on meanwhile."""
        await asyncio.to_thread(self.wait_until, condition)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that scripts report is so."""
        with self.changed:
            if not self.changed.wait_for(condition, DEADLINE_SECONDS):
                raise AssertionError("what the server was to see did not happen in time")

    def note(self) -> None:
        """Tell waiters to look again."""
        with self.changed:
            self.changed.notify_all()

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._acceptor.join(DEADLINE_SECONDS)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        until = time.monotonic() + DEADLINE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        for sock in self._sockets:
            sock.close()
        if self.faults and kind is None:
            raise self.faults[0]

    def _accept(self) -> None:
        while not self.stopping.is_set():
            if not select.select([self._listener], [], [], 0.05)[0]:
                continue
            sock, _ = self._listener.accept()
            sock.settimeout(DEADLINE_SECONDS)
            self._sockets.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock, self.connections), name="scripted connection")
            self._threads.append(thread)
            with self.changed:
                self.connections += 1
                self.changed.notify_all()
            thread.start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                self._sockets.append(sock)
            self._script(Peer(self, sock, number))
        except (ConnectionError, ssl.SSLError):
            pass  # the client left, as it may at any time
        except OSError as fault:
            if not self.stopping.is_set():
                self.faults.append(fault)
        except Exception as fault:  # noqa: BLE001 - it fails the test, in the test's thread
            self.faults.append(fault)
        finally:
            sock.close()
            with self.changed:
                self.ended += 1
                self.changed.notify_all()


@contextlib.contextmanager
def never_accepting() -> Iterator[str]:
    """The url of a port where a connection is neither made nor refused."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port = listener.getsockname()[1]
    fillers = [socket.socket() for _ in range(8)]
    try:
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield f"http://127.0.0.1:{port}/"
    finally:
        for each in (*fillers, listener):
            each.close()
