"""Claims about the load generator's connections: each post is told of once, whatever becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from relay.loadtest import poster
from relay.loadtest.poster import CONNECTION_LOST, NO_HTTP, TIMED_OUT, Poster, request

OK = b"HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\n\r\nyes"
CLOSING = b"HTTP/1.1 503 Unavailable\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"
PROMPT = 30.0

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Told:
    """What was told of posts."""

    def __init__(self) -> None:
        self.of: list[tuple[int, str, bytes]] = []
        self._news = asyncio.Event()

    def __call__(self, place: int, answer: str, body: bytes) -> None:
        self.of.append((place, answer, body))
        self._news.set()

    async def until(self, number: int) -> list[tuple[int, str, bytes]]:
        """All of it in the order of places, once there is so much."""
        async with asyncio.timeout(PROMPT):
            while len(self.of) < number:
                self._news.clear()
                await self._news.wait()
        return sorted(self.of)


class Server:
    """A server of a test's making, with the number of connections it was asked for."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.connections = 0
        self.url = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._serve(reader, writer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def posting(serve: Serve) -> AsyncIterator[tuple[Poster, Told, Server]]:
    """A poster before such a server."""
    server, told = Server(serve), Told()
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1/events"
    made = Poster(server.url, told, timeout_seconds=PROMPT)
    try:
        yield made, told, server
    finally:
        made.close()
        listening.close()


async def asked(reader: asyncio.StreamReader, body: bytes = b"{}") -> None:
    """Read one request."""
    await reader.readuntil(b"\r\n\r\n" + body)


def post(server: Server) -> bytes:
    return request(server.url, (("Content-Type", "application/json"),), b"{}")


def test_a_request_is_whole_and_says_how_long_its_body_is() -> None:
    text = request("http://127.0.0.1:80/v1/events", (("Relay-Source", "shop"),), b'{"a":1}')
    assert text == (
        b'POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Length: 7\r\nRelay-Source: shop\r\n\r\n{"a":1}'
    )


async def test_posts_one_after_the_other_share_a_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await asked(reader)
            writer.write(OK)

    async with posting(serve) as (made, told, server):
        for place in range(3):
            made.post(place, post(server))
            await told.until(place + 1)
        assert told.of == [(place, "202", b"yes") for place in range(3)]
        assert server.connections == 1


async def test_a_post_waits_for_no_other_ones_answer() -> None:
    all_here = asyncio.Barrier(5)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        await all_here.wait()
        writer.write(OK)

    async with posting(serve) as (made, told, server):
        for place in range(5):
            made.post(place, post(server))
        assert [place for place, _, _ in await told.until(5)] == list(range(5))


async def test_past_the_bound_of_connections_posts_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poster, "CONNECTIONS", 2)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await asked(reader)
            writer.write(OK)

    async with posting(serve) as (made, told, server):
        for place in range(20):
            made.post(place, post(server))
        assert [answer for _, answer, _ in await told.until(20)] == ["202"] * 20
        assert server.connections <= 2


async def test_what_waits_gets_another_connection_where_the_server_closes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poster, "CONNECTIONS", 1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(CLOSING)

    async with posting(serve) as (made, told, server):
        for place in range(4):
            made.post(place, post(server))
        assert await told.until(4) == [(place, "503", b"no") for place in range(4)]
        assert server.connections == 4


@pytest.mark.parametrize(
    ("says", "told_of"),
    [
        (b"", CONNECTION_LOST),
        (b"HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\n\r\nye", CONNECTION_LOST),
        (b"220 mail.example ESMTP\r\n", NO_HTTP),
    ],
)
async def test_a_connection_that_ends_or_speaks_something_else_is_told_of_once(says: bytes, told_of: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(says)

    async with posting(serve) as (made, told, server):
        made.post(0, post(server))
        assert await told.until(1) == [(0, told_of, b"")]
        made.post(1, post(server))
        assert await told.until(2) == [(0, told_of, b""), (1, told_of, b"")]


async def test_a_server_that_is_not_there_is_told_of_for_each_post() -> None:
    listening = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()
    told = Told()
    made = Poster(f"http://127.0.0.1:{port}/", told, timeout_seconds=PROMPT)
    for place in range(3):
        made.post(place, b"")
    assert await told.until(3) == [(place, CONNECTION_LOST, b"") for place in range(3)]
    made.close()


async def test_a_bug_of_whoever_hears_of_an_answer_is_no_other_posts_fault() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await asked(reader)
            writer.write(OK)

    bugs: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(str(context["exception"])))
    async with posting(serve) as (made, told, server):

        def heard(place: int, answer: str, body: bytes) -> None:
            told(place, answer, body)
            if place == 0:
                raise RuntimeError("a bug")

        made._landed = heard
        for place in range(3):
            made.post(place, post(server))
            await told.until(place + 1)
        assert told.of == [(place, "202", b"yes") for place in range(3)]
    assert bugs == ["a bug"]


async def test_what_gets_no_connection_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poster, "CONNECTIONS", 0)

    async def serve(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        raise AssertionError("nobody connects")

    async with posting(serve) as (made, told, server):
        made.post(0, post(server))
        now = asyncio.get_running_loop().time()
        made.sweep(now + PROMPT - 5.0)
        assert told.of == []
        made.sweep(now + PROMPT + 5.0)
        assert told.of == [(0, TIMED_OUT, b"")]


async def test_what_is_not_answered_in_time_is_given_up() -> None:
    heard = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await asked(reader)
        heard.set()
        await reader.read()

    async with posting(serve) as (made, told, server):
        made.post(0, post(server))
        async with asyncio.timeout(PROMPT):
            await heard.wait()
        now = asyncio.get_running_loop().time()
        made.sweep(now + PROMPT - 5.0)
        assert told.of == []
        made.sweep(now + PROMPT + 5.0)
        assert told.of == [(0, TIMED_OUT, b"")]
