"""What comes back: statuses, heads and bodies of every kind, and what becomes of the connection afterwards."""

import asyncio
import contextlib
import itertools
import socket
import threading
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from relay.domain.sending import ErrorClass
from relay.sender import SendLimits
from tests.sender.conftest import request, resident_bytes, sending
from tests.support.scripted_dns import Records, ScriptedDns
from tests.support.scripted_server import DEADLINE_SECONDS, OK, Peer, ScriptedServer, answering

SMALLEST_BUFFER = 4096
RECEIVE_BUFFER = int(Path("/proc/sys/net/ipv4/tcp_rmem").read_text().split()[1])
"""What a new connection's receiving side holds before its reader has shown how fast it reads."""

NOTHING = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


async def test_the_headers_of_a_failure_are_facts_in_order_and_in_lower_case() -> None:
    response = (
        b"HTTP/1.1 503 Busy\r\nRetry-After: 12\r\nX-B:  b  \r\nX-A: caf\xe9\r\nX-A: 2\r\nContent-Length: 4\r\n\r\nbusy"
    )
    with ScriptedServer(answering(response)) as server:
        async with sending() as here:
            facts = await here.post(server.url())
    assert facts.status_code == 503
    assert facts.headers == (
        ("retry-after", "12"),
        ("x-b", "b"),
        ("x-a", "caf\u00e9"),
        ("x-a", "2"),
        ("content-length", "4"),
    )
    assert facts.snippet == b"busy"


@pytest.mark.parametrize(
    "line",
    [
        b"HTTP/1.1 2000 Foo",
        b"HTTP/1.1 200OK",
        b"HTTP/1.1 200.5 OK",
        b"HTTP/1.1 200-OK",
        b"HTTP/1.1\t200 OK",
        b"http/1.1 200 OK",
        b"HTTP/3 200 OK",
        b"HTTP/1.1 4040 Foo",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 2000 Foo",
        b"HTTP/1.1 1030 Early Hints\r\n\r\nHTTP/1.1 200 OK",
    ],
)
async def test_a_status_line_that_is_none_is_no_answer(line: bytes) -> None:
    def script(peer: Peer) -> None:
        while peer.read_request() is not None:
            peer.send(OK if peer.number else line + b"\r\nContent-Length: 2\r\n\r\nok")

    with ScriptedServer(script) as server:
        async with sending() as here:
            facts = await here.post(server.url())
            assert (await here.post(server.url())).status_code == 200
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.PROTOCOL)
    assert facts.headers == ()
    assert server.connections == 2


@pytest.mark.parametrize("line", [b"HTTP/1.1 200", b"HTTP/1.1 200 ", b"HTTP/1.0 200 OK", b"HTTP/1.1 200  two  spaces "])
async def test_a_status_line_needs_no_reason(line: bytes) -> None:
    with ScriptedServer(answering(line + b"\r\nContent-Length: 2\r\n\r\nok")) as server:
        async with sending() as here:
            facts = await here.post(server.url())
    assert (facts.status_code, facts.error_class) == (200, None)


async def test_a_kept_connection_that_was_closed_meanwhile_costs_no_attempt() -> None:
    """C01."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n")
        peer.pause(0.005)

    with ScriptedServer(script) as server:
        async with sending() as here:
            for number in range(50):
                facts = await here.post(server.url(), b"%d" % number)
                assert (facts.status_code, facts.error_class) == (204, None)
    assert [each.body for each in server.requests] == [b"%d" % number for number in range(50)]


async def test_a_kept_connection_that_is_reset_on_its_next_request_costs_no_attempt() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(OK)
        if peer.number == 0:
            peer.read_head()
            peer.reset()
        else:
            peer.wait_for_close()

    with ScriptedServer(script) as server:
        async with sending() as here:
            assert (await here.post(server.url(), b"first")).status_code == 200
            facts = await here.post(server.url(), b"second")
    assert (facts.status_code, facts.error_class) == (200, None)
    assert [each.body for each in server.requests] == [b"first", b"second"]


async def test_any_number_of_dead_kept_connections_costs_no_attempt() -> None:
    """libcurl by itself gives up after five of them."""
    many = 30
    go = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        if peer.number < many:
            peer.server.wait_until(lambda: len(peer.server.requests) >= many)
            peer.send(OK)
            go.wait(10)
            return
        peer.send(OK)
        peer.wait_for_close()

    with ScriptedServer(script) as server:
        async with sending() as here:
            await here.send_all(*[request(server.url()) for _ in range(many)])
            assert server.connections == many
            go.set()
            server.wait_until(lambda: server.ended == many)
            facts = await here.send_all(*[request(server.url()) for _ in range(3)])
    assert [(each.status_code, each.error_class) for each in facts] == [(200, None)] * 3
    assert len(server.requests) == many + 3


async def test_what_dies_on_a_kept_and_on_a_new_connection_is_a_failure() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        if peer.number == 0:
            peer.send(OK)
            peer.read_request()
        peer.reset()

    with ScriptedServer(script) as server:
        async with sending() as here:
            assert (await here.post(server.url())).status_code == 200
            facts = await here.post(server.url())
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.RESET)
    assert server.connections == 2


async def test_a_new_connection_that_is_reset_is_a_failure() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.reset()

    with ScriptedServer(script) as server:
        async with sending() as here:
            facts = await here.post(server.url())
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.RESET)
    assert server.connections == 1


@pytest.mark.parametrize("pause", [0.0, 0.05])
async def test_leftovers_after_a_response_with_two_lengths_answer_no_other_request(pause: float) -> None:
    """C08."""

    def script(peer: Peer) -> None:
        peer.read_request()
        if peer.number:
            peer.answer(204, b"")
            return
        peer.send(b"HTTP/1.1 500 X\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        peer.pause(pause)
        peer.send(NOTHING)
        peer.wait_for_close()

    with ScriptedServer(script) as server:
        async with sending() as here:
            first = await here.post(server.url(), b"1")
            second = await here.post(server.url(), b"2")
    assert (first.status_code, second.status_code) == (500, 204)
    assert server.connections == 2


async def test_stray_bytes_after_a_response_close_the_connection() -> None:
    """C09."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(NOTHING + b"null")
        assert peer.wait_for_close() == b""

    with ScriptedServer(script) as server:
        async with sending() as here:
            for number in range(10):
                facts = await here.post(server.url(), b"%d" % number)
                assert (facts.status_code, facts.error_class) == (200, None)
    assert server.connections == 10
    assert [each.body for each in server.requests] == [b"%d" % number for number in range(10)]


async def test_stray_bytes_that_come_later_close_the_connection() -> None:
    taken, strayed = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(OK)
        if peer.number == 0:
            taken.wait(5)
            peer.send(b"HTTP/1.1 418 Stray\r\nContent-Length: 0\r\n\r\n")
            strayed.set()
        assert peer.wait_for_close() == b""

    with ScriptedServer(script) as server:
        async with sending() as here:
            assert (await here.post(server.url())).status_code == 200
            taken.set()
            assert strayed.wait(5)
            assert (await here.post(server.url())).status_code == 200
    assert server.connections == 2


async def test_stray_bytes_after_an_answer_that_was_there_at_once_close_the_connection() -> None:
    """libcurl then never waited for the connection to become readable."""
    answered, taken, strayed = threading.Event(), threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        if peer.number == 0:
            peer.send(OK)
            answered.set()
            peer.read_request()
            taken.wait(5)
            peer.send(b"HTTP/1.1 418 Stray\r\nContent-Length: 0\r\n\r\n")
            strayed.set()
        else:
            peer.read_request()
            peer.send(OK)
        peer.wait_for_close()

    with ScriptedServer(script) as server:
        async with sending() as here:
            (first,) = here.begin(request(server.url()))
            assert answered.wait(5), "before the loop has its turn"
            assert (await first).status_code == 200
            taken.set()
            assert strayed.wait(5)
            assert (await here.post(server.url())).status_code == 200
    assert server.connections == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["http://127.0.0.1:{other}/", "//127.0.0.1:{other}/", "/other"])
async def test_a_redirect_is_never_followed(status: int, where: str) -> None:
    """C26. The answer is final, not retried: what a redirect leads to will not change by itself (design, Judge)."""
    with ScriptedServer(answering(OK)) as other:
        location = where.format(other=other.port).encode()
        redirect = b"HTTP/1.1 %d Go\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, location)
        with ScriptedServer(answering(redirect)) as server:
            async with sending() as here:
                facts = await here.post(server.url())
        assert (facts.status_code, facts.error_class) == (status, None)
        assert len(server.requests) == 1
        assert other.connections == 0


@pytest.mark.parametrize("domain", ["example.test", ".example.test", ".test", "b.example.test"])
async def test_a_cookie_is_never_sent_back(domain: str) -> None:
    """C22: with host names, since no client keeps cookies of an address."""
    a, b = "a.example.test", "b.example.test"
    cookies = b"Set-Cookie: sid=evil; Domain=%s; Path=/\r\nSet-Cookie: here=too; Path=/\r\n" % domain.encode()
    with (
        ScriptedServer(answering(b"HTTP/1.1 200 OK\r\n%sContent-Length: 0\r\n\r\n" % cookies)) as server,
        ScriptedDns(lambda _name, _asked: Records(["127.0.0.1"], ttl=60)) as dns,
    ):
        async with sending(dns=dns.address) as here:
            for host in (a, a, b, a, b):
                assert (await here.post(server.url(host=host))).status_code == 200
    assert [each.values("host")[0].partition(":")[0] for each in server.requests] == [a, a, b, a, b]
    assert not any(each.values("cookie") for each in server.requests)


async def test_ten_thousand_cookies_leave_the_memory_as_it_was() -> None:
    """C22: 40 MB of cookies, none of which is the same."""
    numbers = itertools.count()

    def script(peer: Peer) -> None:
        while peer.read_request() is not None:
            value = b"%d" % next(numbers) + b"v" * 4000
            peer.send(b"HTTP/1.1 200 OK\r\nSet-Cookie: n%s=%s\r\nContent-Length: 0\r\n\r\n" % (value[:4], value))

    with (
        ScriptedServer(script) as server,
        ScriptedDns(lambda _name, _asked: Records(["127.0.0.1"], ttl=60)) as dns,
    ):
        async with sending(dns=dns.address) as here:

            async def a_thousand() -> None:
                urls = [server.url(host=f"h{n % 5}.example.test") for n in range(1000)]
                facts = [each async for each in here.in_turn(*map(request, urls), at_once=20)]
                assert {each.status_code for each in facts} == {200}

            await a_thousand()
            before = resident_bytes()
            for _ in range(10):
                await a_thousand()
                server.requests.clear()
            assert next(numbers) >= 11_000
            assert resident_bytes() - before < 16 * 1024 * 1024


async def test_informational_responses_are_passed_over() -> None:
    informed = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nRetry-After: 9\r\n\r\n"
        b"HTTP/1.1 429 Slow\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n"
    )
    with ScriptedServer(answering(informed)) as server:
        async with sending() as here:
            facts = await here.post(server.url())
    assert facts.status_code == 429
    assert facts.headers == (("retry-after", "2"), ("content-length", "0"))


async def test_an_informational_response_alone_is_no_status() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")

    with ScriptedServer(script) as server:
        async with sending() as here:
            facts = await here.post(server.url())
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.RESET)


async def test_an_upgrade_that_nobody_asked_for_is_no_status() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nwhatever")
        peer.wait_for_close()

    with ScriptedServer(script) as server:
        async with sending(limits=SendLimits(silence_seconds=1.0)) as here:
            facts = await here.post(server.url(), seconds=5.0)
    assert facts.status_code is None
    assert facts.error_class is ErrorClass.PROTOCOL


async def test_a_status_stands_although_its_body_is_cut_off() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    with ScriptedServer(script) as server:
        async with sending() as here:
            facts = await here.post(server.url())
    assert (facts.status_code, facts.error_class, facts.snippet) == (200, ErrorClass.RESET, b"half")


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nX-Half", b"HTTP/1.1 200 OK\r\nno colon"]
)
async def test_a_status_whose_head_is_cut_off_does_not_stand(head: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(head)

    with ScriptedServer(script) as server:
        async with sending() as here:
            facts = await here.post(server.url())
    assert facts.status_code is None
    assert facts.error_class is not None


@pytest.mark.parametrize(
    "response",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/0.9 hello\r\n\r\n",
        b"\x00\x01\x02\x03\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    ],
)
async def test_what_is_not_http_is_a_protocol_error(response: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(response)

    with ScriptedServer(script) as server:
        async with sending() as here:
            facts = await here.post(server.url())
    assert (facts.status_code, facts.error_class) in [(None, ErrorClass.PROTOCOL), (200, ErrorClass.PROTOCOL)], facts


async def test_chunks_that_cannot_be_read_keep_the_status() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 201 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nnot hex\r\n")

    with ScriptedServer(script) as server:
        async with sending() as here:
            facts = await here.post(server.url())
    assert facts.status_code == 201
    assert facts.error_class in (ErrorClass.PROTOCOL, ErrorClass.RESET)


@pytest.mark.parametrize(
    "line", [b"X-A: " + b"a" * 1000 + b"\r\n", b"HTTP/1.1 103 Early\r\n\r\n", b"X-A: 1\r\n", b"a" * 4096]
)
async def test_a_head_without_end_is_given_up(line: bytes) -> None:
    sent = 0

    def script(peer: Peer) -> None:
        nonlocal sent
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            peer.send(line)
            sent += len(line)

    with ScriptedServer(script) as server:
        async with sending() as here:
            facts = await here.post(server.url(), seconds=5.0)
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.PROTOCOL), facts
    assert len(facts.headers) <= 64
    assert sent < 16_000_000


def _pieces(size: int) -> Iterator[bytes]:
    piece = b"x" * 65536
    while size > 0:
        yield piece[: min(size, len(piece))]
        size -= len(piece)


async def test_a_body_without_end_is_read_to_the_cap_and_its_connection_dropped() -> None:
    """What the server could send tells what was taken: the cap, and what fits into the receiving kernel's buffer."""
    sent = 0

    def script(peer: Peer) -> None:
        nonlocal sent
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALLEST_BUFFER)
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            sent += peer.socket.send(b"x" * 4096)

    limits = SendLimits(response_cap_bytes=64 * 1024, snippet_bytes=4096)
    with ScriptedServer(script) as server:
        async with sending(limits=limits) as here:
            facts = await here.post(server.url())
            await server.saw(lambda: server.ended == 1)
    assert (facts.status_code, facts.error_class) == (200, None)
    assert facts.snippet == b"x" * 4096
    assert "cap" in facts.detail
    assert limits.response_cap_bytes < sent <= limits.response_cap_bytes + RECEIVE_BUFFER + 3 * SMALLEST_BUFFER


async def test_bodies_without_end_and_bombs_cost_no_memory() -> None:
    """Each of these answers would be 64 MiB if it were read to its end, or unpacked."""
    block = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = block.compress(bytes(64 * 1024 * 1024)) + block.flush()

    def script(peer: Peer) -> None:
        while (received := peer.read_request()) is not None:
            if received.body == b"bomb":
                head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
                peer.send(head % len(packed) + packed)
            else:
                peer.send(b"HTTP/1.1 500 No\r\n\r\n")
                for piece in _pieces(64 * 1024 * 1024):
                    peer.send(piece)

    with ScriptedServer(script) as server:
        async with sending() as here:

            async def fifty() -> None:
                bodies = [b"bomb" if n % 2 else b"endless" for n in range(50)]
                facts = await here.send_all(*[request(server.url(), body) for body in bodies])
                assert [each.status_code for each in facts] == [200 if n % 2 else 500 for n in range(50)]
                assert max(len(each.snippet) for each in facts) <= 4096

            await fifty()
            before = resident_bytes()
            for _ in range(4):
                await fifty()
            # one of the two hundred unpacked, or two read to their ends, would be more
            assert resident_bytes() - before < 48 * 1024 * 1024


async def test_an_announced_giant_keeps_the_head_of_its_body() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 500 No\r\nContent-Length: 99999999999\r\n\r\nTraceback" + b"y" * 100_000)
        peer.wait_for_close()

    with ScriptedServer(script) as server:
        async with sending() as here:
            facts = await here.post(server.url())
            assert (await here.post(server.url())).status_code == 500
    assert (facts.status_code, facts.error_class) == (500, None)
    assert facts.snippet.startswith(b"Traceback")
    assert len(facts.snippet) == 4096
    assert server.connections == 2


async def test_a_body_of_exactly_the_cap_keeps_the_connection() -> None:
    with ScriptedServer(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"z" * 1000)) as server:
        async with sending(limits=replace(SendLimits(), response_cap_bytes=1000)) as here:
            for _ in range(3):
                facts = await here.post(server.url())
                assert (facts.status_code, facts.detail) == (200, "")
    assert server.connections == 1


@pytest.mark.parametrize("charset", [b"utf-8,charset=utf-8", b"\x81UTF-8", b"utf-16"])
@pytest.mark.parametrize("body", [b"\xff\xfe\x00", b"ok\x00", b"\x1f\x8b\x08not really gzip"])
async def test_a_snippet_is_the_bytes_that_came(body: bytes, charset: bytes) -> None:
    """C15; how they become text: `test_attempt`."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=" + charset + b"\r\nContent-Encoding: gzip\r\n"
    response = head + b"Content-Length: %d\r\n\r\n%s"
    with ScriptedServer(answering(response % (len(body), body))) as server:
        async with sending() as here:
            facts = await here.post(server.url())
    assert (facts.status_code, facts.error_class, facts.snippet) == (200, None, body)
    assert server.requests[0].values("accept-encoding") == []


EARLY = 1024 * 1024
"""A body of which a server that reads little has not got the end when it answers."""


@pytest.mark.parametrize("status", [200, 413])
async def test_an_answer_before_the_whole_request_was_read_is_honoured(status: int) -> None:
    """C23."""

    def script(peer: Peer) -> None:
        peer.read_head()
        peer.answer(status, b"early", b"Connection: close")
        with contextlib.suppress(OSError):
            peer.socket.shutdown(socket.SHUT_WR)
            while peer.socket.recv(64 * 1024):
                pass

    with ScriptedServer(script, receive_buffer=4096) as server:
        async with sending() as here:
            for _ in range(10):
                facts = await here.post(server.url(), b"x" * EARLY)
                assert (facts.status_code, facts.error_class) == (status, None)


@pytest.mark.parametrize("status", [200, 413])
async def test_an_early_answer_is_read_before_the_reset_behind_it(status: int) -> None:
    """C23: the server closes over unread bytes, which resets the connection. Both are there when the loop looks."""
    loop = asyncio.get_running_loop()
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert over.wait(DEADLINE_SECONDS)

    def script(peer: Peer) -> None:
        peer.read_head()
        loop.call_soon_threadsafe(hold)
        assert held.wait(DEADLINE_SECONDS)
        peer.answer(status, b"early", b"Connection: close")
        peer.socket.close()
        over.set()

    with ScriptedServer(script, receive_buffer=4096) as server:
        async with sending() as here:
            facts = await here.post(server.url(), b"x" * EARLY)
    assert (facts.status_code, facts.error_class) == (status, None)


@pytest.mark.parametrize("status", [200, 413])
async def test_an_early_answer_that_a_reset_overtakes_is_no_answer(status: int) -> None:
    """C23: as a reset comes while the request is written, the write fails and libcurl reads no more (in three of a
    thousand tries here). RFC 9112, 9.6, has servers read on until the client closes, since no client can be sure."""

    def script(peer: Peer) -> None:
        peer.read_head()
        peer.answer(status, b"early", b"Connection: close")

    with ScriptedServer(script, receive_buffer=4096) as server:
        async with sending() as here:
            for _ in range(30):
                facts = await here.post(server.url(), b"x" * EARLY)
                assert (facts.status_code, facts.error_class) in {(status, None), (None, ErrorClass.RESET)}


async def test_two_requests_at_once_use_two_connections_and_each_gets_its_answer() -> None:
    def script(peer: Peer) -> None:
        while (received := peer.read_request()) is not None:
            peer.answer(200, received.body)

    with ScriptedServer(script) as server:
        async with sending() as here:
            facts = await here.send_all(*[request(server.url(), b"%d" % number) for number in range(40)])
    assert [each.snippet for each in facts] == [b"%d" % number for number in range(40)]
