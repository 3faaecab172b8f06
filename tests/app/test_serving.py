"""Claims about the HTTP server around an application: what precedes a request is bounded, and its end is orderly."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from relay.app import listening, serving
from relay.app.exposition import dispatcher_http
from relay.app.faults import CannotRun
from relay.app.listening import address_of, listen
from relay.app.serving import HEAD_BYTES, serve
from relay.app.tls import Tls, tls_of
from relay.settings import Bind, read
from relay.web.answers import Answer
from relay.web.exchange import Intake, send_answer
from tests.support.certificates import issue
from tests.support.wire import Cut, Wire, request

PATIENCE_SECONDS = 20.0
GET = request("GET", "/")


async def hello(_: Scope, __: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


class Running:
    """A server of one test."""

    def __init__(self, url: str, stop: asyncio.Event, task: asyncio.Task[None]) -> None:
        self.url = url
        self.stop = stop
        self.task = task


@asynccontextmanager
async def served(app: ASGIApp, *, drain_seconds: float = 5.0, tls: Tls | None = None) -> AsyncIterator[Running]:
    stop, ready = asyncio.Event(), asyncio.Event()
    listener = listen(Bind("127.0.0.1", 0), "RELAY_BIND")
    url = f"http://{address_of(listener)}"
    task = asyncio.create_task(serve(app, listener, stop=stop, ready=ready.set, drain_seconds=drain_seconds, tls=tls))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await ready.wait()
    try:
        yield Running(url, stop, task)
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await task


def place_of(server: Running) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return host, int(port)


async def until_refused(server: Running) -> None:
    """Return once nobody can connect any more."""
    while True:
        try:
            async with await Wire.connect(server.url):
                pass
        except OSError:
            return


async def test_an_endless_head_is_refused_soon_after_the_limit() -> None:
    async with served(hello) as server, await Wire.connect(server.url) as wire:
        await wire.write(b"GET / HTTP/1.1\r\nhost: relay.test\r\n")
        for _ in range(HEAD_BYTES // 1024 + 8):
            try:
                await wire.write(b"x-filler: " + b"x" * 1012 + b"\r\n")
            except OSError:
                break
        try:
            reply = await wire.reply()
        except Cut:  # the close overtook the answer, since there was more to read
            return
        assert reply.status == 400
        assert reply.json()["code"] == "malformed"


async def test_what_is_no_http_gets_a_problem_document_and_the_end() -> None:
    async with served(hello) as server, await Wire.connect(server.url) as wire:
        reply = await wire.ask(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        assert reply.status == 400
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.headers["connection"] == "close"
        await wire.closed()


async def test_a_head_within_the_limit_is_served_however_small_its_pieces() -> None:
    async with served(hello) as server, await Wire.connect(server.url) as wire:
        for position in range(len(GET) - 1):
            await wire.write(GET[position : position + 1])
        assert (await wire.ask(GET[-1:])).body == b"hello"
        assert (await wire.ask(GET)).body == b"hello"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body, and with the headers that came as a header."""
    intake = Intake.of(scope, receive)
    body = b"".join([await intake.read(1 << 20)])
    told = b";".join(b"%b=%b" % header for header in scope["headers"] if header[0].startswith(b"x-"))
    await send_answer(Answer(200, b"text/plain", body, ((b"told", told),)), intake, send)


POST = b"POST / HTTP/1.1\r\nhost: relay.test\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
OFFERS = {
    "java": b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAB\r\n",
    "websocket": b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
}


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
@pytest.mark.parametrize(
    "framed", [b"content-length: 5\r\n\r\nhello", b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
)
@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_an_offer_of_another_protocol_costs_no_request_its_body(offer: bytes, framed: bytes, step: int) -> None:
    request_bytes = POST + offer + framed
    async with served(echo) as server, await Wire.connect(server.url) as wire:
        for _ in range(2):  # and none of its bytes is taken for the next request
            for position in range(0, len(request_bytes), step):
                await wire.write(request_bytes[position : position + step])
            assert (await wire.reply()).body == b"hello"
        await wire.write(2 * (b"GET / HTTP/1.1\r\nhost: relay.test\r\n" + offer + b"\r\n"))
        assert (await wire.reply()).body == b""
        assert (await wire.ask(POST + b"content-length: 2\r\n\r\nok")).body == b"ok"


@pytest.mark.parametrize("space", [b" ", b"\t", b" \t  "])
async def test_white_space_around_a_header_is_none_of_it(space: bytes) -> None:
    head = POST + b"content-length:" + space + b"5" + space + b"\r\nx-given:" + space + b"a b" + space + b"\r\n\r\n"
    async with served(echo) as server, await Wire.connect(server.url) as wire:
        reply = await wire.ask(head + b"hello")
        assert (reply.body, reply.headers["told"]) == (b"hello", "x-given=a b")


async def test_a_trailer_is_not_a_header() -> None:
    async with served(echo) as server, await Wire.connect(server.url) as wire:
        await wire.write(CHUNKED + b"5\r\nhello\r\n0\r\nx-late: 1\r\n")
        reply = await wire.ask(b"\r\n")
        assert (reply.body, reply.headers["told"]) == (b"hello", "")


@pytest.mark.parametrize(
    ("begin", "more"),
    [(b"0\r\n", b"x-filler: " + b"x" * 1012 + b"\r\n"), (b"5;", b"x" * 1024)],
    ids=["trailers", "extensions"],
)
async def test_endless_framing_of_a_body_is_refused_soon_after_the_limit(begin: bytes, more: bytes) -> None:
    async with served(echo) as server, await Wire.connect(server.url) as wire:
        await wire.write(CHUNKED + begin)
        written = 0
        while written < 64 * HEAD_BYTES:
            try:
                await wire.write(more)
            except OSError:
                break
            written += len(more)
        assert written < 64 * HEAD_BYTES


async def test_a_long_body_and_the_head_behind_it_are_counted_apart() -> None:
    body = b"x" * (HEAD_BYTES + 1000)
    async with served(echo) as server, await Wire.connect(server.url) as wire:
        first = POST + b"content-length: %d\r\n\r\n" % len(body) + body
        await wire.write(first + POST[:10])
        assert (await wire.reply()).body == body
        assert (await wire.ask(POST[10:] + b"content-length: 2\r\n\r\nok")).body == b"ok"


@pytest.mark.parametrize(
    "rest",
    [
        CHUNKED + b"zz\r\n",
        CHUNKED + b"5\r\nhelloX",
        POST + b"transfer-encoding: gzip\r\n\r\nx",
        POST + b"transfer-encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        POST + b"content-length: -1\r\n\r\n",
    ],
    ids=["no chunk size", "no end of a chunk", "unknown coding", "two codings", "no length"],
)
async def test_framing_that_is_none_is_told(rest: bytes) -> None:
    async with served(echo) as server, await Wire.connect(server.url) as wire:
        reply = await wire.ask(rest)
        assert (reply.status, reply.json()["code"]) == (400, "malformed")
        await wire.closed()


async def test_what_is_no_http_behind_a_request_spoils_no_answer() -> None:
    async with served(echo) as server, await Wire.connect(server.url) as wire:
        reply = await wire.ask(POST + b"content-length: 2\r\n\r\nok\x16\x03\x01 nonsense\r\n\r\n")
        assert (reply.status, reply.body, reply.headers["connection"]) == (200, b"ok", "close")
        await wire.closed()


async def test_a_client_that_says_nothing_more_gets_its_answer() -> None:
    may_answer = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await may_answer.wait()
        await echo(scope, receive, send)

    async with served(slow) as server, await Wire.connect(server.url) as wire, await Wire.connect(server.url) as other:
        await wire.write(POST + b"content-length: 5\r\n\r\nhello")
        wire.end()
        await other.write(b"no http")  # answered after the end of the first was read
        assert (await other.reply()).status == 400
        may_answer.set()
        reply = await wire.reply()
        assert (reply.body, reply.headers["connection"]) == (b"hello", "close")
        await wire.closed()


async def test_a_client_that_has_left_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HALF_CLOSED_SECONDS", 0.05)
    entered, left = asyncio.Event(), asyncio.Event()

    async def waiting(scope: Scope, receive: Receive, _: Send) -> None:
        assert (await receive())["type"] == "http.request"
        entered.set()
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    async with served(waiting) as server, await Wire.connect(server.url) as wire:
        await wire.write(GET)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await entered.wait()
            wire.end()
            await left.wait()


async def test_a_body_that_ends_too_soon_is_told() -> None:
    async with served(echo) as server, await Wire.connect(server.url) as wire:
        await wire.write(POST + b"content-length: 50\r\n\r\nhello")
        wire.end()
        reply = await wire.reply()
        assert (reply.status, reply.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nhost: relay"], ids=["nothing", "half a head"])
async def test_a_connection_that_says_nothing_whole_is_closed_in_time(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.05)
    async with served(hello) as server, await Wire.connect(server.url) as wire:
        await wire.write(said)
        await wire.closed(PATIENCE_SECONDS)


async def test_a_second_request_has_a_deadline_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(hello) as server, await Wire.connect(server.url) as wire:
        assert (await wire.ask(GET)).status == 200
        monkeypatch.setattr(serving, "HEAD_SECONDS", 0.05)
        await wire.write(GET[:-2])
        await wire.closed(PATIENCE_SECONDS)


async def test_a_stop_answers_the_request_under_way_and_refuses_new_connections() -> None:
    entered, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await may_answer.wait()
        await hello(scope, receive, send)

    async with served(slow) as server, await Wire.connect(server.url) as wire:
        await wire.write(GET)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await entered.wait()
            server.stop.set()
            await until_refused(server)
        may_answer.set()
        assert (await wire.reply()).body == b"hello"


async def test_a_stop_answers_what_a_kept_connection_brings_shortly_and_says_that_it_is_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "GRACE_SECONDS", 600.0)
    async with served(hello) as server, await Wire.connect(server.url) as wire:
        assert "connection" not in (await wire.ask(GET)).headers
        server.stop.set()
        await until_refused(server)
        reply = await wire.ask(GET)
        assert (reply.body, reply.headers["connection"]) == (b"hello", "close")
        await wire.closed()


@pytest.mark.parametrize("why", ["stop", "idle"])
async def test_a_request_that_crosses_the_end_of_its_kept_connection_meets_no_reset(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not read, and whoever sent it may know that: HAProxy repeats what ended so, and nothing that was reset."""
    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(serving, "KEEP_ALIVE_SECONDS", 0 if why == "idle" else 75)
    loop, part = asyncio.get_running_loop(), serving.BoundedHead._part
    with socket.socket() as kept:

        def crossing(connection: serving.BoundedHead) -> None:
            kept.setblocking(True)
            kept.sendall(GET)
            kept.setblocking(False)
            part(connection)

        monkeypatch.setattr(serving.BoundedHead, "_part", crossing)
        async with served(hello) as server, asyncio.timeout(PATIENCE_SECONDS):
            kept.setblocking(False)
            await loop.sock_connect(kept, place_of(server))
            await loop.sock_sendall(kept, GET)
            read = b""
            while not read.endswith(b"hello"):
                read += await loop.sock_recv(kept, 4096)
            if why == "stop":
                server.stop.set()
            assert await loop.sock_recv(kept, 4096) == b""
            kept.shutdown(socket.SHUT_WR)
            assert await loop.sock_recv(kept, 4096) == b""


async def test_who_has_connected_before_a_stop_is_answered() -> None:
    """Accepted or not: the system tells the client that it is connected."""
    loop = asyncio.get_running_loop()
    async with served(hello) as server:
        waiting = [socket.create_connection(place_of(server)) for _ in range(30)]
        for each in waiting:
            each.sendall(GET)
            each.setblocking(False)
        server.stop.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            for each in waiting:
                read = b""
                while got := await loop.sock_recv(each, 4096):
                    read += got
                each.close()
                assert read.endswith(b"hello")


async def test_a_stop_cuts_what_takes_longer_than_it_may() -> None:
    async def never(_: Scope, __: Receive, ___: Send) -> None:
        await asyncio.Event().wait()

    async with served(never, drain_seconds=0.1) as server, await Wire.connect(server.url) as wire:
        await wire.write(GET)
        server.stop.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await server.task


async def test_with_a_certificate_the_gateway_speaks_https(tmp_path: Path) -> None:
    issued = issue(tmp_path, "localhost", "127.0.0.1")
    settings = read({"RELAY_TLS_CERT": str(issued.certificate), "RELAY_TLS_KEY": str(issued.key)})
    async with served(hello, tls=tls_of(settings)) as server:
        trusting = ssl.create_default_context(cafile=str(issued.authority))
        async with httpx.AsyncClient(verify=trusting, trust_env=False) as client:
            assert (await client.get(server.url.replace("http:", "https:"))).text == "hello"


async def test_a_client_that_owes_its_handshake_holds_no_stop_up(tmp_path: Path) -> None:
    issued = issue(tmp_path, "localhost", "127.0.0.1")
    settings = read({"RELAY_TLS_CERT": str(issued.certificate), "RELAY_TLS_KEY": str(issued.key)})
    async with served(hello, tls=tls_of(settings), drain_seconds=600) as server, await Wire.connect(server.url) as wire:
        await wire.write(b"\x16\x03\x01")
        server.stop.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await server.task
        await wire.closed()


async def test_a_client_that_says_no_word_of_its_handshake_is_closed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.05)
    issued = issue(tmp_path, "localhost", "127.0.0.1")
    settings = read({"RELAY_TLS_CERT": str(issued.certificate), "RELAY_TLS_KEY": str(issued.key)})
    async with served(hello, tls=tls_of(settings)) as server, await Wire.connect(server.url) as wire:
        await wire.closed(PATIENCE_SECONDS)


async def test_an_answer_that_nobody_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "UNREAD_SECONDS", 0.5)
    over = asyncio.Event()

    async def large(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(32 << 20), "more_body": True})
        await send({"type": "http.response.body", "body": b""})  # waits until there is room, or nobody left
        over.set()

    async with served(large) as server:
        with socket.socket() as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.setblocking(False)
            await asyncio.get_running_loop().sock_connect(silent, place_of(server))
            await asyncio.get_running_loop().sock_sendall(silent, GET)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await over.wait()


def test_a_certificate_that_cannot_be_used_is_told_in_words(tmp_path: Path) -> None:
    issued = issue(tmp_path, "localhost")
    settings = read({"RELAY_TLS_CERT": str(issued.authority), "RELAY_TLS_KEY": str(issued.key)})
    with pytest.raises(CannotRun, match="set RELAY_TLS_CERT and RELAY_TLS_KEY to PEM files that belong together"):
        tls_of(settings)


def exposition(accept: str) -> tuple[str, bytes]:
    return "text/plain", f"relay_in_flight 0 for {accept}\n".encode()


async def test_the_dispatcher_shows_its_numbers_in_the_format_that_is_asked_for() -> None:
    async with (
        served(dispatcher_http(exposition, lambda: False)) as server,
        await Wire.connect(server.url) as wire,
    ):
        reply = await wire.ask(request("GET", "/metrics", headers={"accept": "application/openmetrics-text"}))
        assert reply.status == 200
        assert reply.body == b"relay_in_flight 0 for application/openmetrics-text\n"


async def test_a_bug_in_the_dispatchers_numbers_is_a_problem_document_and_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_: str) -> tuple[str, bytes]:
        raise LookupError("a bug")

    async with served(dispatcher_http(broken, lambda: False)) as server, await Wire.connect(server.url) as wire:
        reply = await wire.ask(request("GET", "/metrics"))
        assert (reply.status, json.loads(reply.body)["code"]) == (500, "internal")
        assert (await wire.ask(request("GET", "/healthz"))).status == 200
    assert "a bug" in caplog.text


@pytest.mark.parametrize(("draining", "status"), [(False, 200), (True, 503)])
async def test_the_dispatchers_health_says_no_while_it_drains(draining: bool, status: int) -> None:
    async with (
        served(dispatcher_http(exposition, lambda: draining)) as server,
        await Wire.connect(server.url) as wire,
    ):
        reply = await wire.ask(request("GET", "/healthz"))
        assert reply.status == status
        assert json.loads(reply.body) == {"status": "draining" if draining else "ok"}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/", 404, "not_found"), ("POST", "/metrics", 405, "method_not_allowed")],
)
async def test_anything_else_of_the_dispatcher_is_a_problem(method: str, path: str, status: int, code: str) -> None:
    async with (
        served(dispatcher_http(exposition, lambda: False)) as server,
        await Wire.connect(server.url) as wire,
    ):
        reply = await wire.ask(request(method, path))
        assert (reply.status, reply.json()["code"]) == (status, code)
