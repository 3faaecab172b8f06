"""Time: each of the bounds ends an attempt for its own reason, and for that reason only (C23)."""

import asyncio
import socket
import time

import pytest

from relay.domain.sending import ErrorClass
from relay.sender import SendLimits
from tests.sender.conftest import request, sending
from tests.support.scripted_server import OK, Peer, Script, ScriptedServer, answering, never_accepting

SHORT = SendLimits(connect_seconds=0.5, silence_seconds=1.0)
"""For bounds that are to be met."""

PATIENT = SendLimits(connect_seconds=20.0, silence_seconds=3.0)
"""For those that are not, on a busy machine neither."""


def silent(peer: Peer) -> None:
    peer.read_request()
    peer.wait_for_close()


async def test_silence_after_the_request_ends_the_attempt() -> None:
    with ScriptedServer(silent) as server:
        async with sending(limits=SHORT) as here:
            began = time.monotonic()
            facts = await here.post(server.url(), seconds=30.0)
            took = time.monotonic() - began
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.SILENCE_TIMEOUT)
    assert facts.phases.first_byte_ms is None
    assert 1000 <= facts.phases.total_ms <= took * 1000


async def test_a_request_that_allows_more_silence_than_the_sender_gets_it() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        if not peer.pause(2.5):
            peer.answer(200, b"late")

    with ScriptedServer(script) as server:
        async with sending(limits=SHORT) as here:
            facts = await here.send(request(server.url(), seconds=30.0, silence=30.0))
    assert (facts.status_code, facts.error_class, facts.snippet) == (200, None, b"late")


async def test_a_request_that_allows_less_silence_than_the_sender_shortens_nothing() -> None:
    """Who names a short time for the whole attempt says nothing about the silence inside of it."""
    with ScriptedServer(silent) as server:
        async with sending(limits=SHORT) as here:
            facts = await here.send(request(server.url(), seconds=30.0, silence=0.1))
    assert facts.error_class is ErrorClass.SILENCE_TIMEOUT
    assert facts.phases.total_ms >= 1000


async def test_a_silence_that_ends_an_attempt_is_told_with_its_length_and_its_setting() -> None:
    with ScriptedServer(silent) as server:
        async with sending(limits=SHORT) as here:
            facts = await here.post(server.url(), seconds=30.0)
    assert "for 1 s" in facts.detail
    assert "RELAY_READ_TIMEOUT_SECS" in facts.detail
    assert "timeout_seconds" in facts.detail


async def test_silence_in_the_middle_of_a_body_keeps_the_status() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        peer.wait_for_close()

    with ScriptedServer(script) as server:
        async with sending(limits=SHORT) as here:
            facts = await here.post(server.url())
    assert (facts.status_code, facts.error_class) == (200, ErrorClass.SILENCE_TIMEOUT)
    assert facts.snippet == b"abc"


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Drip: "])
async def test_a_drip_is_not_silence(head: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(head)
        for _ in range(6):
            if peer.pause(0.7):
                return
            peer.send(b"a")
        if not head.endswith(b"\r\n\r\n"):
            peer.send(b"\r\nContent-Length: 0\r\n\r\n")

    with ScriptedServer(script) as server:
        async with sending(limits=PATIENT) as here:
            facts = await here.post(server.url(), seconds=30.0)
    assert (facts.status_code, facts.error_class) == (200, None)
    assert facts.phases.total_ms > 4000


async def test_a_drip_does_not_outlast_the_total_time() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 500 No\r\nContent-Length: 10000\r\n\r\n")
        while not peer.pause(0.1):
            peer.send(b"a")

    with ScriptedServer(script) as server:
        async with sending(limits=PATIENT) as here:
            facts = await here.post(server.url(), seconds=1.5)
    assert (facts.status_code, facts.error_class) == (500, ErrorClass.TOTAL_TIMEOUT)
    assert facts.phases.total_ms > 1400


async def test_no_answer_within_the_total_time_is_told_from_silence() -> None:
    with ScriptedServer(silent) as server:
        async with sending(limits=PATIENT) as here:
            facts = await here.post(server.url(), seconds=1.0)
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.TOTAL_TIMEOUT)


async def test_a_slow_reader_of_a_large_request_is_not_silent() -> None:
    read = 0

    def script(peer: Peer) -> None:
        nonlocal read
        peer.read_head()
        while not peer.pause(0.3):
            if not peer.socket.recv(16 * 1024, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                return
            read += len(peer.socket.recv(16 * 1024))
            if read >= 200_000:
                break
        peer.answer(200, b"at once")

    with ScriptedServer(script, receive_buffer=8 * 1024) as server:
        async with sending(limits=PATIENT) as here:
            facts = await here.post(server.url(), b"x" * 250_000, seconds=60.0)
    assert (facts.status_code, facts.snippet) == (200, b"at once")
    assert facts.phases.total_ms > PATIENT.silence_seconds * 1000


async def test_a_receiver_that_never_reads_is_silent() -> None:
    def script(peer: Peer) -> None:
        peer.server.stopping.wait(20)

    with ScriptedServer(script, receive_buffer=4096) as server:
        async with sending(limits=SHORT) as here:
            facts = await here.post(server.url(), b"x" * 1_000_000, seconds=10.0)
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.SILENCE_TIMEOUT)


async def test_a_connection_that_is_never_accepted_ends_in_the_connect_timeout() -> None:
    with never_accepting() as url:
        async with sending(limits=SHORT) as here:
            facts = await here.post(url, seconds=30.0)
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.CONNECT_TIMEOUT)
    assert facts.phases.total_ms > 400
    assert facts.phases.connect_ms is None


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_connecting_that_may_take_longer_than_silence_ends_in_the_connect_timeout(scheme: str) -> None:
    """Neither a connection that is not made nor a handshake that is not answered is a silence of the receiver's."""
    limits = SendLimits(connect_seconds=3.0, silence_seconds=0.7)
    with never_accepting() as dead, ScriptedServer(silent) as mute:
        async with sending(limits=limits) as here:
            facts = await here.post(dead if scheme == "http" else f"https://127.0.0.1:{mute.port}/", seconds=30.0)
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.CONNECT_TIMEOUT)
    assert facts.phases.total_ms > 2900


async def test_a_port_where_nobody_listens_refuses_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        async with sending() as here:
            facts = await here.post(f"http://127.0.0.1:{port}/")
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.CONNECT_REFUSED)
    assert "127.0.0.1" in facts.detail


async def test_the_silent_do_not_hold_up_the_others() -> None:
    def script(peer: Peer) -> None:
        while (received := peer.read_request()) is not None:
            if received.body == b"silent":
                peer.wait_for_close()
                return
            peer.answer()

    with ScriptedServer(script) as server:
        async with sending(limits=PATIENT) as here:
            silent_ones = here.begin(*[request(server.url(), b"silent", seconds=30.0) for _ in range(20)])
            facts = await here.send_all(*[request(server.url(), b"well") for _ in range(50)])
            assert {each.status_code for each in facts} == {200}
            assert not any(each.done() for each in silent_ones)
            for each in silent_ones:
                assert (await each).error_class is ErrorClass.SILENCE_TIMEOUT


async def test_a_drip_every_three_seconds_is_not_silence_by_the_defaults() -> None:
    """libcurl's own timer would have ended it after seven."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n")
        for _ in range(3):
            if peer.pause(3.0):
                return
            peer.send(b"a")

    with ScriptedServer(script) as server:
        async with sending() as here:
            facts = await here.post(server.url(), seconds=30.0)
    assert (facts.status_code, facts.error_class, facts.snippet) == (200, None, b"aaa")


@pytest.mark.parametrize("script", [answering(OK), silent])
async def test_time_that_this_process_lost_is_not_blamed_on_the_endpoint(script: Script) -> None:
    """C23: the loop is blocked by other work for longer than any bound. Whether there was an answer all the while or
    none, no timeout is reported: what came of the request is unknown."""
    with ScriptedServer(script) as server:
        async with sending(limits=SHORT) as here:
            (future,) = here.begin(request(server.url(), seconds=1.5))
            await server.saw(lambda: len(server.requests) == 1)
            time.sleep(3.0)  # noqa: ASYNC251 - that is the claim
            facts = await future
    assert facts.error_class in (None, ErrorClass.CUT_SHORT)


async def test_a_connection_that_was_not_made_while_this_process_stood_still_is_no_fault_of_the_endpoint() -> None:
    """C23."""
    with never_accepting() as url:
        async with sending(limits=SHORT) as here:
            (future,) = here.begin(request(url, seconds=30.0))
            await asyncio.sleep(0)
            time.sleep(3.0)  # noqa: ASYNC251 - that is the claim
            facts = await future
            later = await here.post(url, seconds=30.0)
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.LOCAL)
    assert later.error_class is ErrorClass.CONNECT_TIMEOUT


async def test_an_endpoint_that_is_silent_after_a_stall_is_silent() -> None:
    with ScriptedServer(silent) as server:
        async with sending(limits=SHORT) as here:
            (future,) = here.begin(request(server.url(), seconds=30.0))
            await server.saw(lambda: len(server.requests) == 1)
            time.sleep(3.0)  # noqa: ASYNC251 - that is the claim
            woke = time.monotonic()
            facts = await future
    assert facts.error_class is ErrorClass.SILENCE_TIMEOUT
    assert time.monotonic() - woke > 0.9, "the silence is counted from the stall's end"
