"""Names: looked up once at a time, judged as a whole, pinned, and never a reason for others to wait."""

import errno
import itertools
import socket
from dataclasses import replace
from typing import Any

import pytest

from relay.domain.egress import EgressPolicy
from relay.domain.sending import ErrorClass
from relay.sender import HttpSender, ResolverLimits, SendLimits, transfer
from relay.sender.resolver import Resolver
from tests.sender.conftest import request, sending
from tests.support.scripted_dns import AAAA, A, Answer, Broken, Missing, Records, ScriptedDns, Silent, Zone
from tests.support.scripted_server import OK, Peer, ScriptedServer, answering


def always(answer: Answer) -> Zone:
    return lambda _name, _asked: answer


QUICK = SendLimits(
    connect_seconds=20.0,
    resolver=ResolverLimits(answer_seconds=10.0, second_family_seconds=0.1, failure_seconds=0.3),
)


def answered_within(seconds: float) -> SendLimits:
    return replace(QUICK, resolver=replace(QUICK.resolver, answer_seconds=seconds))


async def test_dead_names_do_not_hold_up_a_living_one() -> None:
    """C20: 40 names whose server never answers, each asked for several times, and one that is well."""

    def zone(name: str, _asked: int) -> Answer:
        return Silent() if name.startswith("dead") else Records(["127.0.0.1"], ttl=60)

    with ScriptedServer(answering(OK)) as server, ScriptedDns(zone) as dns:
        async with sending(limits=answered_within(3.0), dns=dns.address) as here:
            dead = here.begin(*[request(server.url(host=f"dead{n % 40}.test"), seconds=60.0) for n in range(120)])
            for _ in range(20):
                facts = await here.post(server.url(host="living.test"))
                assert facts.status_code == 200
            assert not any(each.done() for each in dead)
            results = [await each for each in dead]
    assert {each.error_class for each in results} == {ErrorClass.DNS_TIMEOUT}
    assert all(each.phases.connect_ms is None for each in results)


async def test_names_that_could_not_be_looked_up_for_want_of_room_are_not_refused() -> None:
    """C20: waiting for a lookup is neither the endpoint's fault nor the policy's."""
    limits = replace(QUICK, resolver=replace(QUICK.resolver, lookups=10, answer_seconds=1.0))
    with ScriptedDns(always(Silent())) as dns:
        async with sending(limits=limits, dns=dns.address) as here:
            facts = await here.send_all(*[request(f"http://dead{n}.test/") for n in range(40)])
    classes = [each.error_class for each in facts]
    assert (classes.count(ErrorClass.DNS_TIMEOUT), classes.count(ErrorClass.LOCAL)) == (10, 30)


async def test_a_lookup_counts_as_part_of_connecting() -> None:
    """C20."""
    with ScriptedDns(always(Silent())) as dns:
        limits = replace(answered_within(30.0), connect_seconds=0.4)
        async with sending(limits=limits, dns=dns.address) as here:
            facts = await here.post("http://dead.test/", seconds=30.0)
    assert facts.error_class is ErrorClass.DNS_TIMEOUT
    assert 350 < facts.phases.total_ms < 20_000


async def test_a_lookup_lasts_no_longer_than_the_request() -> None:
    with ScriptedDns(always(Silent())) as dns:
        limits = replace(answered_within(30.0), connect_seconds=30.0)
        async with sending(limits=limits, dns=dns.address) as here:
            facts = await here.post("http://dead.test/", seconds=0.2)
    assert facts.phases.total_ms < 20_000


async def test_many_requests_for_one_name_ask_once() -> None:
    with ScriptedServer(answering(OK)) as server, ScriptedDns(always(Records(["127.0.0.1"], ttl=60))) as dns:
        async with sending(limits=QUICK, dns=dns.address) as here:
            for _ in range(3):
                facts = await here.send_all(*[request(server.url(host="one.test")) for _ in range(30)])
                assert {each.status_code for each in facts} == {200}
    assert dns.asked == {("one.test", A): 1, ("one.test", AAAA): 1}


@pytest.mark.parametrize("answer", [Missing(), Broken(), Records([])])
async def test_a_name_without_address_fails_and_is_not_asked_for_again_at_once(answer: Answer) -> None:
    with ScriptedDns(always(answer)) as dns:
        async with sending(limits=replace(QUICK, resolver=ResolverLimits()), dns=dns.address) as here:
            facts = await here.post("http://gone.test/")
            assert (facts.status_code, facts.error_class) == (None, ErrorClass.DNS_FAILED)
            assert facts.detail.startswith("the name")
            asked = dns.asked["gone.test", A]
            assert asked > 0
            for _ in range(5):
                assert (await here.post("http://gone.test/")).error_class is ErrorClass.DNS_FAILED
            assert dns.asked["gone.test", A] == asked


async def test_a_server_that_never_answers_for_ipv6_costs_little() -> None:
    with (
        ScriptedServer(answering(OK)) as server,
        ScriptedDns(always(Silent(only_ipv6=True, addresses=["127.0.0.1"]))) as dns,
    ):
        async with sending(limits=QUICK, dns=dns.address) as here:
            facts = await here.post(server.url(host="half.test"))
    assert facts.status_code == 200
    assert facts.phases.connect_ms is not None
    assert facts.phases.connect_ms < QUICK.resolver.answer_seconds * 1000


async def test_a_name_that_moves_is_followed_and_its_old_connection_left() -> None:
    def zone(_name: str, asked: int) -> Answer:
        return Records(["127.0.0.1"] if asked == 0 else ["127.0.0.2"], ttl=0)

    resolver = replace(QUICK.resolver, shortest_ttl=0.0)
    with (
        ScriptedServer(answering(OK)) as first,
        ScriptedServer(answering(OK), host="127.0.0.2", port=first.port) as second,
        ScriptedDns(zone) as dns,
    ):
        async with sending(limits=replace(QUICK, resolver=resolver), dns=dns.address) as here:
            for _ in range(4):
                assert (await here.post(first.url(host="moving.test"))).status_code == 200
        assert (len(first.requests), len(second.requests)) == (1, 3)
        assert second.connections == 1


async def test_a_name_that_moves_to_a_refused_address_is_refused_although_a_connection_is_kept() -> None:
    def zone(_name: str, asked: int) -> Answer:
        return Records(["127.0.0.1"] if asked == 0 else ["169.254.169.254"], ttl=0)

    resolver = replace(QUICK.resolver, shortest_ttl=0.0)
    with ScriptedServer(answering(OK)) as server, ScriptedDns(zone) as dns:
        async with sending(limits=replace(QUICK, resolver=resolver), dns=dns.address) as here:
            assert (await here.post(server.url(host="rebinding.test"))).status_code == 200
            facts = await here.post(server.url(host="rebinding.test"))
    assert (facts.status_code, facts.error_class) == (None, ErrorClass.REFUSED_ADDRESS)
    assert len(server.requests) == 1


async def test_one_refused_address_among_several_refuses_the_name() -> None:
    with (
        ScriptedServer(answering(OK)) as server,
        ScriptedDns(always(Records(["127.0.0.1", "169.254.169.254"], ttl=60))) as dns,
    ):
        async with sending(limits=QUICK, dns=dns.address) as here:
            facts = await here.post(server.url(host="mixed.test"))
    assert facts.error_class is ErrorClass.REFUSED_ADDRESS
    assert server.connections == 0


async def test_a_private_address_behind_a_name_is_refused_by_default() -> None:
    with ScriptedServer(answering(OK)) as server, ScriptedDns(always(Records(["127.0.0.1", "::1"], ttl=60))) as dns:
        policy = EgressPolicy(require_https=False, allowed_ports=None)
        async with sending(policy=policy, limits=QUICK, dns=dns.address) as here:
            facts = await here.post(server.url(host="inside.test"))
    assert facts.error_class is ErrorClass.REFUSED_ADDRESS
    assert server.connections == 0


async def test_the_next_address_is_tried_when_the_first_refuses_the_connection() -> None:
    with (
        ScriptedServer(answering(OK), host="127.0.0.3") as server,
        ScriptedDns(always(Records(["127.0.0.2", "127.0.0.3"], ttl=60))) as dns,
    ):
        async with sending(limits=QUICK, dns=dns.address) as here:
            for _ in range(3):
                facts = await here.post(server.url(host="several.test"))
                assert facts.status_code == 200
    assert server.connections == 1
    assert server.requests[0].values("host") == [f"several.test:{server.port}"]


@pytest.fixture
def without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has no socket for IPv6."""

    opened = transfer._Opened

    def opening(family: int, kind: int, protocol: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return opened(family, kind, protocol)

    monkeypatch.setattr(transfer, "_Opened", opening)


@pytest.mark.usefixtures("without_ipv6")
@pytest.mark.parametrize(
    ("sent", "fate"),
    [
        (OK, None),
        (b"", ErrorClass.RESET),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", ErrorClass.RESET),
        (b"220 mail.test ESMTP\r\n", ErrorClass.PROTOCOL),
        (None, ErrorClass.TOTAL_TIMEOUT),
    ],
)
async def test_an_address_that_this_machine_cannot_dial_says_nothing_about_the_one_that_it_reached(
    sent: bytes | None, fate: ErrorClass | None
) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        if sent is None:
            peer.wait_for_close()
        else:
            peer.send(sent)

    with ScriptedServer(script) as server, ScriptedDns(always(Records(["127.0.0.1", "::1"], ttl=60))) as dns:
        async with sending(limits=QUICK, dns=dns.address) as here:
            facts = await here.post(server.url(host="both.test"), seconds=1.5 if sent is None else 10.0)
    assert facts.error_class is fate


@pytest.mark.usefixtures("without_ipv6")
@pytest.mark.parametrize(
    ("addresses", "fate"), [(["127.0.0.1", "::1"], ErrorClass.CONNECT_REFUSED), (["::1"], ErrorClass.LOCAL)]
)
async def test_only_what_no_address_was_asked_for_is_trouble_of_this_machine(
    addresses: list[str], fate: ErrorClass
) -> None:
    with ScriptedDns(always(Records(addresses, ttl=60))) as dns:
        async with sending(limits=QUICK, dns=dns.address) as here:
            facts = await here.post("http://several.test:1/")
    assert facts.error_class is fate


async def test_both_families_of_a_name_are_one_target() -> None:
    with (
        ScriptedServer(answering(OK), host="::1") as server,
        ScriptedDns(always(Records(["127.0.0.2", "::1"], ttl=60))) as dns,
    ):
        async with sending(limits=QUICK, dns=dns.address) as here:
            facts = await here.post(server.url(host="both.test"))
    assert facts.status_code == 200
    assert server.connections == 1


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """libcurl forgets the addresses that it was told after a second, the shortest that it can be set to."""
    monkeypatch.setattr(transfer, "PINNED_SECONDS", 1)


BOTH = always(Records(["127.0.0.2", "127.0.0.3"], ttl=60))


@pytest.mark.usefixtures("forgetful")
async def test_a_name_with_several_addresses_is_reached_again_after_libcurl_forgot_them() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.pause(1.2)
        peer.answer(200, b"ok", b"Connection: close")

    with ScriptedServer(script, host="127.0.0.3") as server, ScriptedDns(BOTH) as dns:
        async with sending(limits=QUICK, dns=dns.address) as here:
            facts = [await here.post(server.url(host="several.test")) for _ in range(3)]
    assert [(each.status_code, each.error_class, each.detail) for each in facts] == [(200, None, "")] * 3


@pytest.mark.usefixtures("forgetful")
async def test_a_kept_connection_that_dies_after_libcurl_forgot_the_addresses_costs_no_attempt() -> None:
    def script(peer: Peer) -> None:
        while peer.read_request() is not None:
            if peer.number == 0 and len(peer.server.requests) == 2:
                peer.pause(1.2)
                return
            peer.send(OK)

    with ScriptedServer(script, host="127.0.0.3") as server, ScriptedDns(BOTH) as dns:
        async with sending(limits=QUICK, dns=dns.address) as here:
            facts = [await here.post(server.url(host="several.test")) for _ in range(2)]
    assert [(each.status_code, each.error_class, each.detail) for each in facts] == [(200, None, "")] * 2
    assert server.connections == 2


async def test_a_name_that_libcurl_does_not_remember_is_not_looked_up_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PINNED_SECONDS", 0)
    with ScriptedServer(answering(OK), host="127.0.0.3") as server, ScriptedDns(BOTH) as dns:
        async with sending(limits=QUICK, dns=dns.address) as here:
            facts = await here.post(server.url(host="several.test"))
            ((sentence, fault),) = here.faults
            here.faults.clear()
    assert (facts.error_class, facts.detail) == (ErrorClass.LOCAL, "the address was not at hand")
    assert sentence == "libcurl looked for an address itself"
    assert str(fault).startswith("Error 42 resolving"), "it was stopped before it asked the system"


async def test_the_name_behind_the_pin_never_shows() -> None:
    with ScriptedDns(always(Records(["127.0.0.2", "127.0.0.3"], ttl=60))) as dns:
        async with sending(limits=QUICK, dns=dns.address) as here:
            facts = await here.post("http://several.test:1/")
    assert facts.error_class is ErrorClass.CONNECT_REFUSED
    assert "pinned" not in facts.detail
    assert "several.test" in facts.detail


async def test_localhost_and_the_hosts_file_need_no_server() -> None:
    with ScriptedServer(answering(OK)) as server, ScriptedDns(always(Missing())) as dns:
        async with sending(limits=QUICK, dns=dns.address) as here:
            facts = await here.post(server.url(host="localhost"))
    assert facts.status_code == 200
    assert dns.asked["localhost", A] == 0


def breaking(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, *, at: int) -> None:
    """Make a method fail the `at`th time that it is called, counted from 0."""
    method = getattr(owner, name)
    calls = itertools.count()

    def failing(*given: Any, **named: Any) -> Any:
        if next(calls) == at:
            raise TypeError("a bug")
        return method(*given, **named)

    monkeypatch.setattr(owner, name, failing)


LOOKUP_STEPS = [
    (Resolver, "_ask", 0),
    (Resolver, "_ask", 1),
    (Resolver, "_take_nodes", 0),
    (Resolver, "_conclude", 0),
    (HttpSender, "_resolved", 0),
]


@pytest.mark.parametrize(("owner", "name", "at"), LOOKUP_STEPS)
async def test_a_bug_in_a_lookup_ends_with_it(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, at: int) -> None:
    breaking(monkeypatch, owner, name, at=at)
    resolver = replace(QUICK.resolver, failure_seconds=0.0)
    with ScriptedServer(answering(OK)) as server, ScriptedDns(always(Records(["127.0.0.1"], ttl=60))) as dns:
        async with sending(limits=replace(QUICK, resolver=resolver), dns=dns.address) as here:
            facts = await here.post(server.url(host="broken.test"))
            again = await here.send_all(*[request(server.url(host="broken.test")) for _ in range(3)])
            assert [str(fault) for _, fault in here.faults] == ["a bug"]
            here.faults.clear()
    assert facts.error_class is ErrorClass.LOCAL
    assert [each.status_code for each in again] == [200] * 3


@pytest.mark.parametrize(("owner", "name", "at"), LOOKUP_STEPS)
async def test_what_is_left_of_a_broken_lookup_does_not_touch_the_next_request(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, at: int
) -> None:
    breaking(monkeypatch, owner, name, at=at)
    limits = answered_within(1.5)

    def slow(peer: Peer) -> None:
        peer.read_request()
        peer.pause(limits.resolver.answer_seconds + 0.2)
        peer.send(OK)

    with ScriptedServer(slow) as server, ScriptedDns(always(Records(["127.0.0.1"], ttl=60))) as dns:
        async with sending(limits=limits, dns=dns.address) as here:
            assert (await here.post(server.url(host="broken.test"))).error_class is ErrorClass.LOCAL
            facts = await here.post(server.url())
            here.faults.clear()
    assert (facts.status_code, facts.error_class) == (200, None)


async def test_who_waits_for_a_name_does_not_suffer_from_another_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    breaking(monkeypatch, HttpSender, "_resolved_later", at=1)
    with ScriptedServer(answering(OK)) as server, ScriptedDns(always(Records(["127.0.0.1"], ttl=60))) as dns:
        async with sending(limits=QUICK, dns=dns.address, close_within=0.0) as here:
            first, _, third = here.begin(*[request(server.url(host="one.test")) for _ in range(3)])
            assert {(await each).status_code for each in (first, third)} == {200}
            assert [str(fault) for _, fault in here.faults] == ["a bug"]
            here.faults.clear()


async def test_a_late_answer_serves_the_next_attempt() -> None:
    def zone(_name: str, asked: int) -> Answer:
        return Silent() if asked == 0 else Records(["127.0.0.1"], ttl=60)

    with ScriptedServer(answering(OK)) as server, ScriptedDns(zone) as dns:
        async with sending(limits=answered_within(0.3), dns=dns.address) as here:
            facts = await here.post(server.url(host="late.test"))
            assert facts.error_class is ErrorClass.DNS_TIMEOUT
            for _ in range(100):
                facts = await here.post(server.url(host="late.test"))
                if facts.status_code is not None:
                    break
    assert facts.status_code == 200
