"""Claims that only a socket can show, with the server that the product runs on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from relay.gateway import batch
from relay.gateway.ingest import PATH
from relay.web.serving import by_path
from tests.gateway.world import MAX_BATCH_BYTES, MAX_PAYLOAD_BYTES, World, element, event
from tests.support.asgi import served

BATCH_HEAD = f"POST {batch.PATH} HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\n"
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\n"


class Client:
    """One connection, written to and read from by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer: status, headers in lower case, body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = head.rstrip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(status.split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))

    async def is_closed(self) -> bool:
        """Whether nothing more comes from the other side."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def client(world: World) -> AsyncIterator[Client]:
    async with served(by_path(world.gateway.routes, world.gateway.routes[PATH])) as (host, port), asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(body: bytes, *lines: str) -> bytes:
    return "".join([HEAD, *(f"{line}\r\n" for line in lines), f"Content-Length: {len(body)}\r\n\r\n"]).encode() + body


async def test_a_connection_serves_one_event_after_the_other(world: World) -> None:
    async with client(world) as each:
        for n in range(3):
            await each.send(whole(event(n=n)))
            assert (await each.answer())[0] == 202
    assert await world.count("journal") == 3


async def test_requests_that_come_together_are_answered_in_their_order(world: World) -> None:
    async with client(world) as each:
        await each.send(whole(event("a")) + whole(b"{}") + whole(event("b")))
        assert [(await each.answer())[0] for _ in range(3)] == [202, 400, 202]


async def test_a_chunked_event_is_taken(world: World) -> None:
    body = event(x="x" * 1000)
    async with client(world) as each:
        await each.send(HEAD.encode(), b"Transfer-Encoding: chunked\r\n\r\n", chunk(body[:500]), chunk(body[500:]))
        await each.send(b"0\r\n\r\n")
        assert (await each.answer())[0] == 202


@pytest.mark.parametrize(("head", "limit"), [(HEAD, MAX_PAYLOAD_BYTES), (BATCH_HEAD, MAX_BATCH_BYTES)])
async def test_a_never_ending_body_is_refused_soon_after_the_limit_and_the_connection_closed(
    world: World, head: str, limit: int
) -> None:
    """Case C149."""
    async with client(world) as each:
        await each.send(head.encode(), b"Transfer-Encoding: chunked\r\n\r\n")
        sent = 0
        answering = asyncio.create_task(each.answer())
        while not answering.done():
            await each.send(chunk(b"x" * 16_384))
            sent += 16_384
            await asyncio.wait([answering], timeout=0.001)
        status, headers, _ = await answering
        assert (status, headers["connection"]) == (413, "close")
        assert sent < limit + 8 * 1024 * 1024
        assert await each.is_closed()
    assert await world.stored_nothing()


@pytest.mark.parametrize(("head", "limit"), [(HEAD, MAX_PAYLOAD_BYTES), (BATCH_HEAD, MAX_BATCH_BYTES)])
async def test_a_body_that_is_announced_too_large_is_refused_before_it_is_sent(
    world: World, head: str, limit: int
) -> None:
    async with client(world) as each:
        announced = f"Content-Length: {limit + 1}\r\nExpect: 100-continue\r\n\r\n"
        await each.send(head.encode(), announced.encode())
        status, headers, _ = await each.answer()
        assert (status, headers["connection"]) == (413, "close")
    assert await world.stored_nothing()


async def test_a_batch_comes_in_chunks_that_part_a_payload(world: World) -> None:
    body = b"[%b,%b]" % (element(payload=b'{"text":"' + "€".encode() * 500 + b'"}'), element(event_id="last"))
    async with client(world) as each:
        await each.send(BATCH_HEAD.encode(), b"Transfer-Encoding: chunked\r\n\r\n", chunk(body[:100]))
        await each.send(*[chunk(body[at : at + 7]) for at in range(100, len(body), 7)], b"0\r\n\r\n")
        assert (await each.answer())[0] == 202
    rows = await world.sql("select length(payload) as size from journal order by number")
    assert [row["size"] for row in rows] == [1511, 2]


async def test_an_endless_form_is_refused_for_its_content_type(world: World) -> None:
    """Case C151."""
    head = HEAD.replace("application/json", "multipart/form-data; boundary=zz")
    async with client(world) as each:
        await each.send(head.encode(), b"Transfer-Encoding: chunked\r\n\r\n", chunk(b"no boundary\r\n" * 500))
        status, headers, _ = await each.answer()
        assert (status, headers["connection"]) == (415, "close")


async def test_a_client_that_leaves_within_its_body_leaves_nothing_behind(world: World) -> None:
    async with client(world) as each:
        await each.send(HEAD.encode(), b"Content-Length: 1000\r\n\r\n", b'{"type":"a"')
        each.writer.close()
        await each.writer.wait_closed()
    assert await world.stored_nothing()


@pytest.mark.parametrize(
    "line", ["Content-Length: 5\r\nTransfer-Encoding: chunked", "Content-Length: -1", "Content-Length: 5, 5"]
)
async def test_a_length_that_contradicts_itself_is_no_request(world: World, line: str) -> None:
    """Case C149: a length beside chunks is nobody's to choose between."""
    async with client(world) as each:
        await each.send(HEAD.encode(), f"{line}\r\n\r\n".encode(), chunk(event()), b"0\r\n\r\n")
        assert (await each.answer())[0] == 400
        assert await each.is_closed()
    assert await world.stored_nothing()


async def test_a_chunk_that_breaks_the_rules_is_answered_though_the_event_is_not_whole(world: World) -> None:
    async with client(world) as each:
        await each.send(HEAD.encode(), b"Transfer-Encoding: chunked\r\n\r\n", chunk(b'{"type"'), b"zz\r\n")
        assert (await each.answer())[0] == 400
        assert await each.is_closed()
    assert await world.stored_nothing()


async def test_an_event_is_appended_though_its_sender_has_hung_up(world: World) -> None:
    async with client(world) as each, world.appends_held():
        await each.send(whole(event()))
        await world.until_an_append_waits()
        each.writer.transport.abort()
    await world.gateway.appender.drain(10.0)
    assert await world.count("journal") == 1
