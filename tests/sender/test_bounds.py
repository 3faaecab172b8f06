"""Bounds and endings: descriptors, places on the wire, and what a closed sender leaves behind."""

import asyncio
import json
import logging
import os
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import pycurl
import pytest

from relay.domain.egress import EgressPolicy
from relay.domain.sending import ErrorClass, SendFacts
from relay.sender import HttpSender, ResolverLimits, SendLimits
from relay.sender.wire import ACTIONS
from tests.sender.conftest import DESCRIPTORS, OPEN, open_descriptors, request, sending
from tests.support.certificates import issue
from tests.support.scripted_dns import Missing, Records, ScriptedDns
from tests.support.scripted_server import OK, Peer, ScriptedServer, answering, never_accepting

STANDARD_STREAMS = 3


@contextmanager
def only_descriptors(free: int) -> Iterator[None]:
    """Leave this process so many descriptors to open; with none, the numbers that are given back are no use either."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = max(int(each.name) for each in DESCRIPTORS.iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1 + free if free else STANDARD_STREAMS, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for fd in taken[len(taken) - free :]:
            os.close(fd)
        del taken[len(taken) - free :]
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


async def test_failed_sends_leave_their_places_free() -> None:
    """C18."""
    names = ResolverLimits(answer_seconds=10.0)
    limits = replace(SendLimits(), connections=10, connections_per_host=10, resolver=names)
    with socket.socket() as closed, ScriptedDns(lambda _name, _asked: Missing()) as dns:
        closed.bind(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        with ScriptedServer(answering(OK)) as server, never_accepting() as dead:
            async with sending(limits=limits, dns=dns.address) as here:
                hopeless = [refused, "http://missing.test:81/", "http://169.254.169.254/", "ftp://x/", dead]
                facts = await here.send_all(*[request(hopeless[n % 5], seconds=0.2) for n in range(1000)])
                # a machine that is short of time may find no name's absence in time either
                assert {each.error_class for each in facts} - {ErrorClass.DNS_TIMEOUT} == {
                    ErrorClass.CONNECT_REFUSED,
                    ErrorClass.DNS_FAILED,
                    ErrorClass.REFUSED_ADDRESS,
                    ErrorClass.REFUSED_URL,
                    ErrorClass.TOTAL_TIMEOUT,
                    ErrorClass.LOCAL,  # those that found no place while the dead one had them all
                }
                assert (await here.post(server.url())).status_code == 200
                assert here.sender.in_flight == 0


async def test_requests_beyond_the_places_wait_and_are_sent() -> None:
    limits = replace(SendLimits(), connections=4, connections_per_host=4)
    with ScriptedServer(answering(OK)) as server:
        async with sending(limits=limits) as here:
            facts = await here.send_all(*[request(server.url(), b"%d" % n) for n in range(100)])
    assert {each.status_code for each in facts} == {200}
    assert server.connections <= 4
    assert sorted(int(each.body) for each in server.requests) == list(range(100))


async def test_a_full_host_does_not_hold_up_another() -> None:
    def slow(peer: Peer) -> None:
        peer.read_request()
        peer.wait_for_close()

    limits = replace(SendLimits(), connections=8, connections_per_host=4)
    with ScriptedServer(slow) as full, ScriptedServer(answering(OK)) as other:
        async with sending(limits=limits, close_within=0.0) as here:
            waiting = here.begin(*[request(full.url()) for _ in range(20)])
            facts = await here.send_all(*[request(other.url()) for _ in range(20)])
            assert {each.status_code for each in facts} == {200}
            await full.saw(lambda: len(full.requests) == 4)
            assert not any(each.done() for each in waiting)
        assert full.connections == 4


async def test_a_place_that_never_came_free_is_no_fault_of_the_endpoint() -> None:
    """C18."""

    def slow(peer: Peer) -> None:
        peer.read_request()
        peer.wait_for_close()

    limits = replace(SendLimits(), connections=2, connections_per_host=2)
    with ScriptedServer(slow) as server:
        async with sending(limits=limits) as here:
            facts = await here.send_all(*[request(server.url(), seconds=1.0) for _ in range(4)])
    assert sorted(str(each.error_class) for each in facts) == ["local", "local", "total_timeout", "total_timeout"]
    assert server.connections == 2


async def test_a_place_that_a_silent_endpoint_is_made_to_leave_goes_to_whoever_waits(quick: SendLimits) -> None:
    def silent(peer: Peer) -> None:
        peer.read_request()
        peer.wait_for_close()

    limits = replace(quick, connections=1, connections_per_host=1)
    with ScriptedServer(silent) as server, ScriptedServer(answering(OK)) as other:
        async with sending(limits=limits) as here:
            first, second = await here.send_all(request(server.url()), request(other.url(), seconds=30.0))
    assert (first.error_class, second.status_code) == (ErrorClass.SILENCE_TIMEOUT, 200)


async def test_kept_connections_to_many_hosts_stay_within_the_bound() -> None:
    limits = replace(SendLimits(), connections=16, connections_per_host=4)
    with ScriptedServer(answering(OK), host="0.0.0.0") as server:
        async with sending(limits=limits) as here:
            await here.post(server.url(host="127.0.1.1"))
            before = open_descriptors()
            for block in range(10):
                urls = [server.url(host=f"127.0.{2 + block}.{n}") for n in range(1, 31)]
                facts = await here.send_all(*[request(url) for url in urls])
                assert {each.status_code for each in facts} == {200}
            # both ends of each connection are in this process, and the server's threads may lag behind
            await server.saw(lambda: open_descriptors() <= before + 2 * 16 + 8)


async def test_odd_endings_leak_no_descriptor() -> None:
    def odd(peer: Peer) -> None:
        received = peer.read_request()
        kind = int(received.body) % 5 if received else 0
        if kind == 0:
            peer.reset()
        elif kind == 1:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        elif kind == 2:
            peer.send(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 200_000)
        elif kind == 3:
            peer.send(OK + b"stray")
            peer.wait_for_close()
        else:
            peer.send(b"nonsense\r\n\r\n")

    with ScriptedServer(odd) as server:
        async with sending() as here:
            await here.send_all(*[request(server.url(), b"%d" % n) for n in range(50)])
            before = open_descriptors()
            for _ in range(5):
                await here.send_all(*[request(server.url(), b"%d" % n) for n in range(50)])
            await server.saw(lambda: open_descriptors() <= before + 20)


HOSTS = 5_000
FEW_DESCRIPTORS = 256


@contextmanager
def odd_server(folder: Path) -> Iterator[tuple[dict[str, int], Path]]:
    """The ports of a server of odd endings, and the authority by which it speaks TLS."""
    issued = issue(folder, "*.example.test")
    command = [sys.executable, str(Path(__file__).with_name("odd_server.py")), str(issued.certificate), str(issued.key)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline()), issued.authority


def address_of(name: str, _asked: int) -> Records:
    """Each of the hosts has an address of loopback of its own."""
    number = int(name.partition(".")[0].removeprefix("h"))
    return Records([f"127.1.{number // 250}.{number % 250 + 1}"], ttl=60)


async def test_thousands_of_odd_hosts_take_no_more_descriptors_than_there_are_places(tmp_path: Path) -> None:
    """C17: 5,000 hosts that never end TLS, are left with an unread body, hang in the handshake, reset, or are well."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with odd_server(tmp_path) as (ports, authority), ScriptedDns(address_of) as dns:
        reset, unread, well = ("http", "plain", "reset"), ("http", "plain", "unread"), ("http", "plain", "ok")
        never, over_tls = ("https", "mute", "never"), ("https", "tls", "ok")
        ways = [reset, unread, over_tls, well, reset, unread, over_tls, well, never, well]
        limits = SendLimits(connect_seconds=1.0, connections=96, connections_per_host=32, ca_file=authority)
        async with sending(limits=limits, dns=dns.address) as here:
            before, most = open_descriptors(), 0
            resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_DESCRIPTORS, hard))
            try:
                ends: Counter[tuple[str, object]] = Counter()
                for start in range(0, HOSTS, 250):
                    batch = [(n, ways[n % 10]) for n in range(start, start + 250)]
                    urls = [f"{s}://h{n}.example.test:{ports[p]}/{way}" for n, (s, p, way) in batch]
                    for (_, (_, _, way)), facts in zip(
                        batch, await here.send_all(*[request(url, seconds=20.0) for url in urls]), strict=True
                    ):
                        ends[way, facts.error_class or facts.status_code] += 1
                    most = max(most, open_descriptors())
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert ends.total() == HOSTS
    # on a machine that is short of time some end by that, which is told apart from what the hosts did
    short = {ErrorClass.LOCAL, ErrorClass.CUT_SHORT, ErrorClass.DNS_TIMEOUT, ErrorClass.CONNECT_TIMEOUT}
    short |= {ErrorClass.TOTAL_TIMEOUT}
    right = {("reset", ErrorClass.RESET), ("unread", 200), ("never", ErrorClass.CONNECT_TIMEOUT), ("ok", 200)}
    assert {end for end in ends if end[1] not in short} == {end for end in right if end[1] not in short}
    assert all(ends[end] > sum(ends[way, why] for way, why in ends if way == end[0]) / 2 for end in right)
    assert most <= before + 96 + 8


@pytest.mark.parametrize("free", [0, 1])
async def test_running_out_of_descriptors_is_local_and_passes(free: int) -> None:
    """C17."""
    with ScriptedServer(answering(OK)) as server:
        async with sending() as here:
            assert (await here.post(server.url())).status_code == 200
            with only_descriptors(free):
                facts = await here.send_all(*[request(server.url()) for _ in range(5)])
            # one of them went over the kept connection
            assert sorted(str(each.error_class) for each in facts) == ["None", "local", "local", "local", "local"]
            assert (await here.post(server.url())).status_code == 200
            facts = await here.send_all(*[request(server.url()) for _ in range(5)])
            assert {each.status_code for each in facts} == {200}


async def test_closing_waits_for_what_is_in_flight() -> None:
    def slow(peer: Peer) -> None:
        peer.read_request()
        peer.pause(0.3)
        peer.answer()

    with ScriptedServer(slow) as server:
        async with sending(close_within=10.0) as here:
            (future,) = here.begin(request(server.url()))
        assert future.result().status_code == 200


async def test_closing_reports_what_did_not_end() -> None:
    def silent(peer: Peer) -> None:
        peer.read_request()
        peer.wait_for_close()

    with ScriptedServer(silent) as server, ScriptedDns(lambda _name, _asked: Missing()) as dns:
        before = open_descriptors()
        limits = replace(SendLimits(), connections=2)
        async with sending(limits=limits, dns=dns.address, close_within=0.1) as here:
            futures = here.begin(*[request(server.url()) for _ in range(4)])
            await server.saw(lambda: len(server.requests) == 2)
        # had it waited for their end, that would have been a timeout
        on_wire, queued = [ErrorClass.CUT_SHORT] * 2, [ErrorClass.LOCAL] * 2
        assert [each.result().error_class for each in futures] == on_wire + queued
        await server.saw(lambda: open_descriptors() <= before + 6)


async def test_a_closed_sender_takes_nothing() -> None:
    async with sending() as here:
        pass
    with pytest.raises(RuntimeError):
        here.sender.submit([(1, request("http://127.0.0.1/"))])


async def test_a_fault_in_delivering_is_told_and_the_next_are_delivered(caplog: pytest.LogCaptureFixture) -> None:
    delivered: list[SendFacts] = []
    done = asyncio.Event()

    def deliver(batch: list[tuple[int, SendFacts]]) -> None:
        done.set()
        for number, facts in batch:
            if number == 0:
                raise ValueError("a bug")
            delivered.append(facts)

    caplog.set_level(logging.ERROR)
    sender: HttpSender[int] = HttpSender(policy=OPEN, limits=SendLimits(), clock=time.monotonic, deliver=deliver)
    await sender.start()
    with ScriptedServer(answering(OK)) as server:
        for number in range(2):
            sender.submit([(number, request(server.url()))])
            await asyncio.wait_for(done.wait(), 10)
            done.clear()
        await sender.close(1.0)
    assert [each.status_code for each in delivered] == [200]
    assert "facts could not be delivered" in caplog.text


async def test_facts_never_come_from_inside_submit() -> None:
    inside = False

    def deliver(batch: list[tuple[int, SendFacts]]) -> None:
        assert not inside
        done.set()

    done = asyncio.Event()
    policy = EgressPolicy()
    sender: HttpSender[int] = HttpSender(policy=policy, limits=SendLimits(), clock=time.monotonic, deliver=deliver)
    await sender.start()
    inside = True
    sender.submit([(0, request("http://10.0.0.1/"))])
    inside = False
    await asyncio.wait_for(done.wait(), 10)
    await sender.close(1.0)


async def test_a_socket_that_fell_out_of_the_epoll_set_is_put_back() -> None:
    """It must not happen. If it did, the request would hang, and its endpoint be blamed."""
    go = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        go.wait(10)
        peer.answer()

    with ScriptedServer(script) as server:
        async with sending() as here:
            (future,) = here.begin(request(server.url(), seconds=30.0))
            await server.saw(lambda: len(server.requests) == 1)
            wire = here.sender._wire
            for fd in list(wire._watched):
                wire._epoll.unregister(fd)
            go.set()
            facts = await future
    assert facts.status_code == 200


async def test_connections_that_come_and_go_lose_no_answer() -> None:
    """Descriptors are used again and again here: one taken for another would be an answer that nobody hears."""

    def script(peer: Peer) -> None:
        for number in range(peer.number % 4 + 1):
            received = peer.read_request()
            if received is None:
                return
            stray = b"stray" if peer.number % 7 == 0 and number == 1 else b""
            size = len(received.body)
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s%s" % (size, received.body, stray))

    limits = replace(SendLimits(), connections=12, connections_per_host=12)
    with ScriptedServer(script, host="0.0.0.0") as server:
        async with sending(limits=limits) as here:
            for block in range(20):
                requests = [request(server.url(host=f"127.0.0.{n % 5 + 1}"), b"%d.%d" % (block, n)) for n in range(40)]
                facts = await here.send_all(*requests)
                assert [each for each, asked in zip(facts, requests, strict=True) if each.snippet != asked.body] == []


def test_whatever_epoll_reports_there_is_something_to_tell_libcurl() -> None:
    every = (select.EPOLLIN, select.EPOLLPRI, select.EPOLLOUT, select.EPOLLERR, select.EPOLLHUP)
    assert sum(every) == 31
    for bits in product((False, True), repeat=len(every)):
        events = sum(event for event, there in zip(every, bits, strict=True) if there)
        action = ACTIONS[events]
        assert bool(action & pycurl.CSELECT_IN) is bool(events & select.EPOLLIN)
        assert bool(action & pycurl.CSELECT_OUT) is bool(events & select.EPOLLOUT)
        assert bool(action & pycurl.CSELECT_ERR) is bool(events & (select.EPOLLERR | select.EPOLLHUP))
