"""Claims about explicit acks, with a server in Relay's place that notes each call and answers as it is told."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from relay.testkit.acks import PAUSES_SECONDS, AckCounts, Acknowledger
from tests.support.receiver import Receiver

RECEIPT = "rcp_0197c0de01977c0d8197c0de0197c0de"
DELIVERY = "0197c0de-0197-7c0d-8197-c0de00000001"
WITHIN = 10.0


@dataclass
class Relay:
    """Takes acks on a real socket: the raw calls, and the statuses with which to answer them (then 200)."""

    statuses: list[int] = field(default_factory=list)
    calls: list[bytes] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    url: str = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        status = self.statuses.pop(0) if self.statuses else 200
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno" % status)
        writer.close()
        async with self.changed:
            self.calls.append(head + body)
            self.changed.notify_all()

    async def called(self, count: int) -> list[bytes]:
        async with asyncio.timeout(WITHIN), self.changed:
            await self.changed.wait_for(lambda: len(self.calls) >= count)
        return self.calls


@asynccontextmanager
async def relay(*statuses: int) -> AsyncIterator[Relay]:
    running = Relay(list(statuses))
    server = await asyncio.start_server(running.answer, "127.0.0.1", 0)
    async with server:
        running.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield running


@asynccontextmanager
async def acknowledger(
    url: str, waiting: int = 10, pauses: Sequence[float] = PAUSES_SECONDS
) -> AsyncIterator[Acknowledger]:
    made = Acknowledger(url, waiting=waiting, pauses=pauses)
    try:
        yield made
    finally:
        await made.close()


async def settled(acks_of: Acknowledger) -> AckCounts:
    async with asyncio.timeout(WITHIN):
        await acks_of.settle()
    return acks_of.counts()


async def test_the_ack_follows_the_2xx() -> None:
    async with relay() as running:
        with Receiver(relay_url=running.url, api_key="key") as receiver:
            async with httpx.AsyncClient() as client:
                response = await client.post(
                    receiver.url("/ack-later?ms=20"),
                    headers={"Relay-Receipt-Id": RECEIPT, "Relay-Delivery-Id": DELIVERY},
                )
            assert response.status_code == 202
            (call,) = await running.called(1)
    head, _, body = call.partition(b"\r\n\r\n")

    assert head.startswith(f"POST /v1/receipts/{RECEIPT}/acks HTTP/1.1\r\n".encode())
    assert b"authorization: bearer key" in head.lower()
    assert json.loads(body) == {"delivery_id": DELIVERY}


async def test_a_delivery_that_cannot_be_acked_is_refused(receiver: Receiver) -> None:
    async with httpx.AsyncClient() as client:
        response = await client.post(receiver.url("/ack-later"))

    assert response.status_code == 400


async def test_an_ack_that_relay_took_is_counted_as_sent() -> None:
    async with relay() as running, acknowledger(running.url) as acks_of:
        acks_of.promise(RECEIPT, DELIVERY, 0)

        assert await settled(acks_of) == AckCounts(waiting=0, sent=1, failed=0, last_failure=None)


async def test_an_ack_is_tried_again_where_relay_could_not_take_it() -> None:
    async with relay(503, 500) as running, acknowledger(running.url, pauses=(0, 0)) as acks_of:
        acks_of.promise(RECEIPT, DELIVERY, 0)
        counts = await settled(acks_of)

        assert len(running.calls) == 3
        assert (counts.sent, counts.failed) == (1, 0)


async def test_an_ack_that_relay_refused_is_not_tried_again() -> None:
    async with relay(404) as running, acknowledger(running.url) as acks_of:
        acks_of.promise(RECEIPT, DELIVERY, 0)
        counts = await settled(acks_of)

        assert len(running.calls) == 1
        assert counts == AckCounts(waiting=0, sent=0, failed=1, last_failure="status 404: no")


async def test_an_ack_that_reaches_nobody_fails_in_the_end() -> None:
    async with relay() as running:
        closed = running.url
    async with acknowledger(closed, pauses=(0,)) as acks_of:
        acks_of.promise(RECEIPT, DELIVERY, 0)
        counts = await settled(acks_of)

        assert (counts.sent, counts.failed) == (0, 1)
        assert "ConnectError" in str(counts.last_failure)


async def test_no_more_acks_are_promised_than_may_wait() -> None:
    async with relay() as running, acknowledger(running.url, waiting=2) as acks_of:
        promised = [acks_of.promise(RECEIPT, DELIVERY, 600) for _ in range(3)]

        assert promised == [True, True, False]


async def test_closing_gives_up_what_still_waits() -> None:
    async with relay() as running, acknowledger(running.url) as acks_of:
        acks_of.promise(RECEIPT, DELIVERY, 600)
        await acks_of.close()

        assert acks_of.counts().waiting == 0
        assert running.calls == []
