"""Peers that always have more to say, in what frames an answer: none holds up another request, and each is ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest

from relay.domain.sending import ErrorClass
from relay.sender import SendLimits, wire
from tests.sender.conftest import request, sending
from tests.support.scripted_server import OK, Peer, ScriptedServer, answering

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS = [
    pytest.param(CHUNKED + b"1;", b"e" * 65536, id="an extension without end"),
    pytest.param(CHUNKED, b"1;" + b"e" * 65536 + b"\r\nx\r\n", id="an extension for every byte"),
]
ENDLESS = SendLimits(framing_bytes=1 << 60)
TOTAL_SECONDS = 20.0


MOST_POURED = 32 * 1024 * 1024
"""Bytes, many of them in the kernel's buffers: what a second would let through is ten times that."""


def pour(peer: Peer, water: bytes) -> Iterator[int]:
    """Send without end, and tell how much; it ends with the connection, as every send of a script may."""
    while True:
        peer.send(water)
        yield len(water)


@pytest.mark.parametrize(("head", "water"), FLOODS)
async def test_sockets_that_always_have_more_take_turns_with_the_others(
    monkeypatch: pytest.MonkeyPatch, head: bytes, water: bytes
) -> None:
    """However little one wake-up of the loop has time for: here for a single socket."""

    def flood(peer: Peer) -> None:
        peer.read_request()
        peer.send(head)
        deque(pour(peer, water), maxlen=0)

    monkeypatch.setattr(wire, "BUSY_SECONDS", -1.0)
    with ScriptedServer(flood) as flooding, ScriptedServer(answering(OK)) as healthy:
        async with sending(limits=ENDLESS, close_within=0.1) as here:
            floods = here.begin(*[request(flooding.url(), seconds=TOTAL_SECONDS) for _ in range(6)])
            await flooding.saw(lambda: len(flooding.requests) == 6)
            for _ in range(10):
                facts = await here.post(healthy.url(), seconds=TOTAL_SECONDS)
                assert facts.status_code == 200, facts
            assert not [each for each in floods if each.done()]


@pytest.mark.parametrize("kept", [False, True], ids=["new", "kept"])
@pytest.mark.parametrize(("head", "water"), FLOODS)
async def test_an_answer_whose_framing_has_no_end_is_ended_long_before_its_time(
    head: bytes, water: bytes, kept: bool
) -> None:
    """Its status came, and stands."""

    sent = 0

    def flood(peer: Peer) -> None:
        nonlocal sent
        if kept:
            peer.read_request()
            peer.send(OK)
        peer.read_request()
        peer.send(head)
        for poured in pour(peer, water):
            sent += poured

    with ScriptedServer(flood) as server:
        async with sending() as here:
            if kept:
                await here.post(server.url())
            facts = await here.post(server.url(), seconds=TOTAL_SECONDS)
            await server.saw(lambda: server.ended == 1)
        assert server.connections == 1
    assert (facts.status_code, facts.error_class) == (200, ErrorClass.PROTOCOL), facts
    assert facts.phases.total_ms < TOTAL_SECONDS * 1000 / 2
    assert sent < MOST_POURED


async def test_what_earlier_answers_brought_does_not_count() -> None:
    """Only a slow answer is looked at, and one that is within its bounds is waited for."""
    limits = SendLimits(framing_bytes=65_536)
    asked = 0

    def script(peer: Peer) -> None:
        nonlocal asked
        while peer.read_request() is not None:
            asked += 1
            if asked == 11:
                peer.pause(1.5)
            peer.answer(200, b"x" * 60_000)

    with ScriptedServer(script) as server:
        async with sending(limits=limits) as here:
            for _ in range(10):
                assert (await here.post(server.url())).error_class is None
            slow = await here.post(server.url())
        assert server.connections == 1
    assert (slow.status_code, slow.error_class) == (200, None), slow
    assert slow.phases.total_ms >= 1500
