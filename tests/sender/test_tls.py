"""TLS: certificates are verified against the url's name, pinned or not, and nothing from outside turns that off."""

import asyncio
import ssl
import struct
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from relay.domain.sending import ErrorClass
from relay.sender import NoAuthorities, SendLimits, wire
from tests.sender.authority import Authority
from tests.sender.conftest import request, sending
from tests.support.scripted_dns import Records, ScriptedDns
from tests.support.scripted_server import OK, Peer, ScriptedServer, answering

A_NAME = "a.example.test"
B_NAME = "b.example.test"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def trusting(authority: Authority, tmp_path: Path) -> SendLimits:
    return SendLimits(ca_file=authority.bundle(tmp_path))


def everything_is_here(_name: str, _asked: int) -> Records:
    return Records(["127.0.0.1"], ttl=60)


async def test_pinning_keeps_the_name_for_sni_host_header_and_certificate(
    authority: Authority, trusting: SendLimits
) -> None:
    """C44: two sites on one address, told apart by SNI alone."""
    asked_for: list[str] = []
    context, other = authority.issue(A_NAME).context(), authority.issue(B_NAME).context()

    def choose(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _context: ssl.SSLContext) -> None:
        asked_for.append(name or "")
        if name == B_NAME:
            connection.context = other

    context.sni_callback = choose
    with ScriptedServer(answering(OK), tls=context) as server, ScriptedDns(everything_is_here) as dns:
        async with sending(limits=trusting, dns=dns.address) as here:
            for name in (A_NAME, B_NAME):
                facts = await here.post(server.url(host=name))
                assert (facts.status_code, facts.error_class) == (200, None), facts
    assert asked_for == [A_NAME, B_NAME]
    assert [each.values("host") for each in server.requests] == [
        [f"{A_NAME}:{server.port}"],
        [f"{B_NAME}:{server.port}"],
    ]


async def test_certificates_that_do_not_hold_are_refused_as_such(
    authority: Authority, trusting: SendLimits, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """C25, C44."""
    stranger, between = Authority(), Authority(authority)
    (tmp_path / "stranger").mkdir()
    monkeypatch.setenv("SSL_CERT_FILE", str(stranger.bundle(tmp_path / "stranger")))
    monkeypatch.setenv("CURL_CA_BUNDLE", str(tmp_path / "stranger" / "authorities.pem"))
    monkeypatch.setenv("PYTHONHTTPSVERIFY", "0")
    bad = {
        "expired": authority.issue(A_NAME, expired=True).context(),
        "of an unknown authority": stranger.issue(A_NAME).context(),
        "of another name": authority.issue(B_NAME).context(),
        "without its intermediate": between.issue(A_NAME).context(),
    }
    with ScriptedDns(everything_is_here) as dns:
        async with sending(limits=trusting, dns=dns.address) as here:
            for what, context in bad.items():
                with ScriptedServer(answering(OK), tls=context) as server:
                    facts = await here.post(server.url(host=A_NAME))
                assert (facts.status_code, facts.error_class) == (None, ErrorClass.TLS_CERTIFICATE), (what, facts)
                assert server.requests == []
            complete = between.issue(A_NAME).context(between.identity)
            with ScriptedServer(answering(OK), tls=complete) as server:
                assert (await here.post(server.url(host=A_NAME))).status_code == 200


async def test_a_handshake_that_fails_otherwise_is_no_certificate_error(
    authority: Authority, trusting: SendLimits
) -> None:
    """C25: TLS 1.1 only, no TLS at all, and a reset."""
    old = authority.issue(A_NAME).context()
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    old.set_ciphers("ALL:@SECLEVEL=0")

    def not_tls(peer: Peer) -> None:
        peer.socket.recv(100)
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    def resetting(peer: Peer) -> None:
        peer.socket.recv(100)
        peer.reset()

    with ScriptedDns(everything_is_here) as dns:
        async with sending(limits=trusting, dns=dns.address) as here:
            for script, tls in ((answering(OK), old), (not_tls, None), (resetting, None)):
                with ScriptedServer(script, tls=tls) as server:
                    facts = await here.post(f"https://{A_NAME}:{server.port}/")
                assert (facts.status_code, facts.error_class) == (None, ErrorClass.TLS_FAILED), (script, facts)


def wait(peer: Peer) -> None:
    peer.wait_for_close()


async def test_a_handshake_that_hangs_ends_in_the_connect_timeout(trusting: SendLimits) -> None:
    with ScriptedServer(wait) as server, ScriptedDns(everything_is_here) as dns:
        async with sending(limits=replace(trusting, connect_seconds=1.5), dns=dns.address) as here:
            facts = await here.post(f"https://{A_NAME}:{server.port}/", seconds=30.0)
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.CONNECT_TIMEOUT)


async def test_time_spent_waiting_for_a_place_is_not_taken_from_connecting(
    authority: Authority, trusting: SendLimits
) -> None:
    """C18."""

    def holding(peer: Peer) -> None:
        peer.read_request()
        peer.pause(2.5)
        peer.answer()

    def shake_slowly(*_: object) -> None:
        time.sleep(0.3)  # in the server's thread

    context = authority.issue(A_NAME).context()
    context.sni_callback = shake_slowly
    limits = replace(trusting, connect_seconds=2.0, connections=1, connections_per_host=1)
    with (
        ScriptedServer(holding) as first,
        ScriptedServer(answering(OK), tls=context) as second,
        ScriptedDns(everything_is_here) as dns,
    ):
        async with sending(limits=limits, dns=dns.address) as here:
            facts = await here.send_all(request(first.url()), request(second.url(host=A_NAME)))
    assert [(each.status_code, each.error_class) for each in facts] == [(200, None)] * 2


async def test_connections_over_tls_are_kept(authority: Authority, trusting: SendLimits) -> None:
    context = authority.issue(A_NAME).context()
    with ScriptedServer(answering(OK), tls=context) as server, ScriptedDns(everything_is_here) as dns:
        async with sending(limits=trusting, dns=dns.address) as here:
            for _ in range(5):
                facts = await here.post(server.url(host=A_NAME))
                assert facts.status_code == 200
    assert server.connections == 1


async def test_stray_bytes_over_tls_answer_no_other_request(authority: Authority, trusting: SendLimits) -> None:
    taken, strayed = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(OK)
        if peer.number == 0:
            taken.wait(5)
            peer.send(b"HTTP/1.1 418 Stray\r\nContent-Length: 0\r\n\r\n")
            strayed.set()
        peer.wait_for_close()

    context = authority.issue(A_NAME).context()
    with ScriptedServer(script, tls=context) as server, ScriptedDns(everything_is_here) as dns:
        async with sending(limits=trusting, dns=dns.address) as here:
            assert (await here.post(server.url(host=A_NAME))).status_code == 200
            taken.set()
            assert strayed.wait(5)
            assert (await here.post(server.url(host=A_NAME))).status_code == 200
    assert server.connections == 2


async def test_a_peer_that_ends_tls_without_saying_so_leaves_the_status(
    authority: Authority, trusting: SendLimits
) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nhalf")
        assert isinstance(peer.socket, ssl.SSLSocket)
        # no close_notify: the TCP connection simply ends
        peer.socket.shutdown(2)

    context = authority.issue(A_NAME).context()
    with ScriptedServer(script, tls=context) as server, ScriptedDns(everything_is_here) as dns:
        async with sending(limits=trusting, dns=dns.address) as here:
            facts = await here.post(server.url(host=A_NAME))
    assert (facts.status_code, facts.error_class) == (500, ErrorClass.RESET)


async def test_many_handshakes_at_once_leave_the_loop_its_turns(
    monkeypatch: pytest.MonkeyPatch, authority: Authority, trusting: SendLimits
) -> None:
    """A wake-up whose time is over ends; here after a single socket, however quick or busy the machine is."""
    monkeypatch.setattr(wire, "BUSY_SECONDS", -1.0)
    context = authority.issue(A_NAME).context()
    loop, turns, done = asyncio.get_running_loop(), 0, False

    def turn() -> None:
        nonlocal turns
        turns += 1
        if not done:
            loop.call_soon(turn)

    with ScriptedServer(answering(OK), tls=context) as server, ScriptedDns(everything_is_here) as dns:
        async with sending(limits=trusting, dns=dns.address) as here:
            loop.call_soon(turn)
            facts = await here.send_all(*[request(server.url(host=A_NAME)) for _ in range(100)])
            done = True
    assert {each.status_code for each in facts} == {200}
    # each handshake is some milliseconds of work: others can be asked between any two of them
    assert turns >= 100


FRAME_DATA, FRAME_HEADERS, FRAME_SETTINGS, FRAME_PING = 0, 1, 4, 6
ACK = END_STREAM = 1
END_HEADERS = 4


def speak_http2(peer: Peer, pinged: threading.Event) -> None:
    """Answer each stream with 204 once it ended; header compression is not even looked at. Ping after the first."""
    file = peer.socket.makefile("rb")
    assert file.read(24) == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    peer.send(_frame(FRAME_SETTINGS, 0, 0, b""))
    while len(head := file.read(9)) == 9:
        length, kind, flags, stream = int.from_bytes(head[:3], "big"), head[3], head[4], int.from_bytes(head[5:], "big")
        file.read(length)
        if kind == FRAME_SETTINGS and not flags & ACK:
            peer.send(_frame(FRAME_SETTINGS, ACK, 0, b""))
        if kind in (FRAME_DATA, FRAME_HEADERS) and flags & END_STREAM:
            # 0x89 is ":status: 204" in the static table (RFC 7541, appendix A)
            peer.send(_frame(FRAME_HEADERS, END_HEADERS | END_STREAM, stream, b"\x89"))
            if not pinged.is_set():
                peer.pause(0.05)
                peer.send(_frame(FRAME_PING, 0, 0, b"8 bytes."))
                pinged.set()
    file.close()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack("!I", len(payload))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + payload


async def test_http2_is_spoken_where_it_is_offered_and_shares_a_connection(
    authority: Authority, trusting: SendLimits
) -> None:
    pinged = threading.Event()
    context = authority.issue(A_NAME).context(protocols=("h2", "http/1.1"))
    with (
        ScriptedServer(partial(speak_http2, pinged=pinged), tls=context) as server,
        ScriptedDns(everything_is_here) as dns,
    ):
        async with sending(limits=trusting, dns=dns.address) as here:
            assert (await here.post(server.url(host=A_NAME))).status_code == 204
            pinged.wait(5)  # what comes on an idle connection is no reason to leave it here
            facts = await here.send_all(*[request(server.url(host=A_NAME), b"x" * 100) for _ in range(30)])
    assert {(each.status_code, each.error_class) for each in facts} == {(204, None)}
    assert server.connections == 1


async def test_a_sender_without_authorities_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(NoAuthorities):
        async with sending(limits=SendLimits(ca_file=tmp_path / "missing.pem")):
            raise AssertionError("it started")
