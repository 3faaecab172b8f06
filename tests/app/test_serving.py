"""Claims about the HTTP server around an application: what precedes a request is bounded, and its end is orderly."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from relay.app import serving
from relay.app.exposition import dispatcher_http
from relay.app.faults import CannotRun
from relay.app.listening import address_of, listen
from relay.app.serving import HEAD_BYTES, Tls, serve, tls_of
from relay.settings import Bind, read
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
            while True:
                try:
                    async with await Wire.connect(server.url):
                        pass
                except OSError:
                    break
        may_answer.set()
        assert (await wire.reply()).body == b"hello"


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
