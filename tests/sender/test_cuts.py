"""What this side ends is LOCAL only if no byte of the request can have left; else it is an attempt, cut short."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from relay.domain.sending import ErrorClass, SendFacts
from relay.sender import SendLimits
from relay.sender.wire import Wire
from tests.sender.authority import Authority
from tests.sender.conftest import request, sending
from tests.sender.test_bounds import only_descriptors
from tests.support.scripted_dns import Records, ScriptedDns
from tests.support.scripted_server import Peer, ScriptedServer, never_accepting

NAME = "a.example.test"
AT_ONCE = 0.05
LARGE = b"x" * 8_000_000
"""More than the buffers of both ends hold."""


def here(_name: str, _asked: int) -> Records:
    return Records(["127.0.0.1"], ttl=60)


def silent(peer: Peer) -> None:
    while peer.read_request() is not None:
        pass


def reading_nothing(peer: Peer) -> None:
    peer.pause(20)


def answering_once(peer: Peer) -> None:
    peer.read_request()
    peer.answer()
    peer.read_request()
    peer.pause(20)


def fate(facts: SendFacts) -> tuple[int | None, ErrorClass | None]:
    return facts.status_code, facts.error_class


async def test_a_request_that_its_endpoint_has_is_cut_short_when_the_sender_closes() -> None:
    with ScriptedServer(silent) as server:
        async with sending(close_within=AT_ONCE) as sender:
            (future,) = sender.begin(request(server.url()))
            await server.saw(lambda: len(server.requests) == 1)
    assert fate(future.result()) == (None, ErrorClass.CUT_SHORT)


async def test_a_request_on_a_kept_connection_is_cut_short_when_the_sender_closes() -> None:
    with ScriptedServer(answering_once) as server:
        async with sending(close_within=AT_ONCE) as sender:
            assert (await sender.post(server.url())).status_code == 200
            (future,) = sender.begin(request(server.url()))
            await server.saw(lambda: len(server.requests) == 2)
        assert server.connections == 1
    assert fate(future.result()) == (None, ErrorClass.CUT_SHORT)


async def test_a_request_that_is_still_being_written_is_cut_short_when_the_sender_closes() -> None:
    with ScriptedServer(reading_nothing, receive_buffer=4096) as server:
        async with sending(close_within=AT_ONCE) as sender:
            (future,) = sender.begin(request(server.url(), LARGE))
            await server.saw(lambda: server.connections == 1)
    assert fate(future.result()) == (None, ErrorClass.CUT_SHORT)


async def test_over_tls_too_what_is_still_being_written_is_cut_short(tmp_path: Path) -> None:
    authority = Authority()
    limits = SendLimits(ca_file=authority.bundle(tmp_path))
    began: list[int] = []

    def reading_a_little(peer: Peer) -> None:
        peer.socket.recv(1)
        began.append(peer.number)
        peer.server.note()
        peer.pause(20)

    context = authority.issue(NAME).context()
    with ScriptedServer(reading_a_little, tls=context, receive_buffer=4096) as server, ScriptedDns(here) as dns:
        async with sending(limits=limits, dns=dns.address, close_within=AT_ONCE) as sender:
            (future,) = sender.begin(request(server.url(host=NAME), LARGE))
            await server.saw(lambda: bool(began))
    assert fate(future.result()) == (None, ErrorClass.CUT_SHORT)


async def test_a_connection_that_is_still_being_made_carried_nothing_when_the_sender_closes() -> None:
    with never_accepting() as url:
        async with sending(close_within=AT_ONCE) as sender:
            (future,) = sender.begin(request(url))
    assert fate(future.result()) == (None, ErrorClass.LOCAL)


async def test_a_handshake_that_is_under_way_carried_nothing_when_the_sender_closes(tmp_path: Path) -> None:
    limits = SendLimits(ca_file=Authority().bundle(tmp_path))
    greeted: list[bytes] = []

    def hanging(peer: Peer) -> None:
        greeted.append(peer.socket.recv(100))
        peer.server.note()
        peer.wait_for_close()

    with ScriptedServer(hanging) as server, ScriptedDns(here) as dns:
        async with sending(limits=limits, dns=dns.address, close_within=AT_ONCE) as sender:
            (future,) = sender.begin(request(f"https://{NAME}:{server.port}/"))
            await server.saw(lambda: bool(greeted))
    assert fate(future.result()) == (None, ErrorClass.LOCAL)


async def test_a_request_that_waits_for_a_place_carried_nothing_when_the_sender_closes() -> None:
    limits = replace(SendLimits(), connections=1)
    with ScriptedServer(silent) as server:
        async with sending(limits=limits, close_within=AT_ONCE) as sender:
            futures = sender.begin(*[request(server.url()) for _ in range(2)])
            await server.saw(lambda: len(server.requests) == 1)
    assert [fate(each.result())[1] for each in futures] == [ErrorClass.CUT_SHORT, ErrorClass.LOCAL]


async def test_a_used_handle_does_not_tell_of_its_last_request() -> None:
    """libcurl's counts of a transfer stay until the next one begins on the same handle."""

    def script(peer: Peer) -> None:
        while peer.read_request() is not None:
            peer.answer(200, b"ok", b"Connection: close")

    with ScriptedServer(script) as server, never_accepting() as url:
        async with sending(close_within=AT_ONCE) as sender:
            assert (await sender.post(server.url())).status_code == 200
            (future,) = sender.begin(request(url))
    assert fate(future.result()) == (None, ErrorClass.LOCAL)


async def test_time_lost_in_the_queue_hands_back_no_request_that_was_sent_after_it() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        if peer.number == 0:
            peer.pause(0.2)
            peer.answer(200, b"ok", b"Connection: close")
        else:
            peer.wait_for_close()

    limits = replace(SendLimits(), connections=1)
    with ScriptedServer(script) as server:
        async with sending(limits=limits) as sender:
            first, second = await sender.send_all(*[request(server.url(), seconds=3.0) for _ in range(2)])
            assert len(server.requests) == 2
    assert (fate(first), fate(second)) == ((200, None), (None, ErrorClass.CUT_SHORT))


async def test_trouble_after_a_kept_connection_died_hands_back_no_request_that_went_over_it() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.answer()
        peer.read_request()
        peer.socket.shutdown(socket.SHUT_RDWR)
        peer.pause(20)  # its descriptor stays taken

    with ScriptedServer(script) as server:
        async with sending() as sender:
            assert (await sender.post(server.url())).status_code == 200
            with only_descriptors(0):
                facts = await sender.post(server.url())
            assert len(server.requests) == 2
    assert fate(facts) == (None, ErrorClass.CUT_SHORT)


async def test_requests_that_were_taken_come_back_once_although_the_wire_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Wire.run
    failed: list[bool] = []

    def failing(self: Wire) -> None:
        if not failed:
            failed.append(True)
            raise TypeError("a bug")
        run(self)

    monkeypatch.setattr(Wire, "run", failing)
    with ScriptedServer(silent) as server:
        async with sending(close_within=AT_ONCE) as sender:
            (future,) = sender.begin(request(server.url()))
            await server.saw(lambda: len(server.requests) == 1)
            assert [str(fault) for _, fault in sender.faults] == ["a bug"]
            sender.faults.clear()
    assert fate(future.result()) == (None, ErrorClass.CUT_SHORT)
