"""Receivers that would slow, fill or trick a dispatcher: what becomes of their deliveries, and of everybody else's."""

from __future__ import annotations

import socket
from dataclasses import replace
from ipaddress import ip_network
from uuid import UUID

import pytest

from relay.domain.delivery import DeadReason, DeliveryStatus
from relay.domain.egress import EgressPolicy
from relay.domain.telemetry import AttemptsRecorded, DeadLettered, ReceiptsClosed
from relay.sender import ResolverLimits, SendLimits, transfer
from tests.support.dispatching import TUNING, House
from tests.support.forbidden import EMBEDDED, REFUSED_IPV4, REFUSED_IPV6, samples
from tests.support.receiver import Receiver
from tests.support.scripted_dns import Answer, Records, ScriptedDns, Silent
from tests.support.scripted_server import ScriptedServer, answering

STRICT = EgressPolicy(require_https=False, allowed_ports=None)
ROOMY = replace(TUNING, concurrency=256, drain_seconds=0.2)
UNLIMITED = {"rate_per_second": 100_000.0, "burst": 100_000}
DEFAULT_RESOLVER = ResolverLimits()
FAILED = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
PUBLIC = "93.184.215.14"


def asking(dns: ScriptedDns, resolver: ResolverLimits = DEFAULT_RESOLVER) -> SendLimits:
    """Limits of a sender that knows this name server alone."""
    return SendLimits(connect_seconds=20.0, resolver=replace(resolver, servers=(dns.address,)))


def attempts_of(house: House, consumer: str) -> int:
    return sum(each.consumer == consumer for told in house.heard(AttemptsRecorded) for each in told.attempts)


async def lane(house: House, endpoint: UUID) -> tuple[str, int]:
    """What the lane's breaker has learned: its state, and how many failures it counts."""
    async with house.database.connection() as connection:
        row = await connection.fetchrow(
            "select breaker::text, failures from endpoint_state where endpoint_id = $1", endpoint
        )
    assert row is not None
    return row["breaker"], row["failures"]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """Every socket that is opened to send."""
    sockets: list[socket.socket] = []
    real = transfer._Opened

    def opening(family: int, kind: int, protocol: int) -> socket.socket:
        sockets.append(real(family, kind, protocol))
        return sockets[-1]

    monkeypatch.setattr(transfer, "_Opened", opening)
    return sockets


async def test_no_address_of_a_forbidden_range_is_dialled_under_any_name(
    house: House, opened: list[socket.socket]
) -> None:
    """C27, C30 to C32, C41: the first, middle and last address of each range, alone and beside a public one."""
    alone = [ip for network in (*REFUSED_IPV4, *REFUSED_IPV6) for ip in samples(network)] + EMBEDDED
    answers = [[ip] for ip in alone] + [[PUBLIC, ip] for ip in EMBEDDED] + [["10.0.0.1", PUBLIC]]

    def zone(name: str, _asked: int) -> Answer:
        return Records(answers[int(name.partition(".")[0].removeprefix("n"))], ttl=60)

    with ScriptedDns(zone) as dns:
        endpoints = [await house.endpoint(f"http://n{n}.range.test:9/", name=f"n{n}") for n in range(len(answers))]
        async with house.dispatching(policy=STRICT, limits=asking(dns)):
            receipt = await house.event(*endpoints)
            await house.until(lambda: sum(each.count for each in house.heard(DeadLettered)) == len(answers))
    deliveries = (await house.receipt(receipt)).deliveries
    assert {(each.status, each.dead_reason, each.attempts) for each in deliveries} == {
        (DeliveryStatus.DEAD, DeadReason.REFUSED, 1)
    }
    assert {(await house.receipts.attempts(each))[0].error_class for each in deliveries} == {"refused_address"}
    assert opened == []
    assert len(alone) > 3 * 40


async def test_a_name_that_answers_differently_the_second_time_is_judged_the_second_time(house: House) -> None:
    """A name that was fine when its first try was made, and leads inside when it is tried again."""

    def zone(_name: str, asked: int) -> Answer:
        return Records(["127.0.0.2"] if asked == 0 else ["127.0.0.1"], ttl=0)

    policy = replace(STRICT, allow_cidrs=(ip_network("127.0.0.2/32"),))
    with (
        ScriptedServer(answering(FAILED), host="127.0.0.2") as allowed,
        ScriptedServer(answering(FAILED), port=allowed.port) as forbidden,
        ScriptedDns(zone) as dns,
    ):
        endpoint = await house.endpoint(allowed.url(host="rebinding.test"))
        async with house.dispatching(policy=policy, limits=asking(dns, ResolverLimits(shortest_ttl=0.0))):
            receipt = await house.event(endpoint)
            await house.until(lambda: bool(house.heard(DeadLettered)))
        assert (len(allowed.requests), forbidden.connections) == (1, 0)
    delivery = await house.delivery(receipt)
    assert (delivery.dead_reason, delivery.attempts) == (DeadReason.REFUSED, 2)


async def test_ten_dead_names_hold_up_no_living_one(house: House, receiver: Receiver) -> None:
    """C20: everything for the living arrives while nothing has become of the dead yet."""

    def zone(name: str, _asked: int) -> Answer:
        return Silent() if name.startswith("dead") else Records(["127.0.0.1"], ttl=1)

    with ScriptedDns(zone) as dns:
        dead = [await house.endpoint(f"http://dead{n}.test/", name=f"dead{n}", **UNLIMITED) for n in range(10)]
        living = [
            await house.endpoint(f"http://living{n}.test:{receiver.port}/ok", name=f"living{n}", **UNLIMITED)
            for n in range(10)
        ]
        async with house.dispatching(ROOMY, limits=asking(dns, ResolverLimits(answer_seconds=15.0))):
            await house.events(10, *dead)
            await house.events(50, *living)
            await receiver.arrive(500, 14.0)
            assert not any(attempts_of(house, f"dead{n}") for n in range(10))


async def test_a_2xx_whose_body_trickles_is_delivered_and_frees_its_slot_in_time(
    house: House, receiver: Receiver
) -> None:
    """One slot, two deliveries: the second has it once the first one's total time is over."""
    endpoint = await house.endpoint(receiver.url("/trickle?ms=200"), timeout_seconds=1.0, max_in_flight=1, **UNLIMITED)
    async with house.dispatching():
        receipts = await house.events(2, endpoint)
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == 2)
    for receipt in receipts:
        delivery = await house.delivery(receipt)
        (attempt,) = await house.receipts.attempts(delivery)
        assert (delivery.status, attempt.outcome_class) == (DeliveryStatus.DELIVERED, "success")
        assert (attempt.status_code, attempt.error_class) == (200, "total_timeout")
        assert attempt.total_ms is not None
        assert attempt.total_ms > 900
    assert await lane(house, endpoint) == ("closed", 0)


FATES = {
    "/ok": ("success", 200, None),
    "/verify": ("success", 200, None),
    "/always500": ("retryable", 500, None),
    "/status/404": ("permanent", 404, None),
    "/slow?ms=60000": ("retryable", None, "total_timeout"),
    "/flaky?pct=100": ("retryable", 500, None),
    "/429?retry_after=60": ("retryable", 429, None),
    "/bigbody?kb=20480": ("success", 200, None),
    "/bigbody?kb=20480&status=500": ("retryable", 500, None),
    "/trickle?ms=100": ("success", 200, "total_timeout"),
    "/trickle?ms=100&status=503": ("retryable", 503, "total_timeout"),
    "/hang": ("retryable", None, "total_timeout"),
    "/reset": ("success", 200, "reset"),
    "/reset?at=start": ("retryable", None, "reset"),
    "/redirect?to=/ok": ("permanent", 302, None),
    "/gzipbomb?mb=200": ("success", 200, None),
    "/toggle": ("success", 200, None),
}


async def test_each_way_to_fail_has_its_own_outcome(house: House, receiver: Receiver) -> None:
    """Every mode of the receiver that can be met by one request; `/ack-later` has tests of its own."""
    names = {path: f"fate-{number}" for number, path in enumerate(FATES)}
    endpoints = {
        path: await house.endpoint(receiver.url(path), name=name, timeout_seconds=2.0) for path, name in names.items()
    }
    async with house.dispatching(replace(ROOMY, drain_seconds=3.0)):
        receipt = await house.event(*endpoints.values())
        await house.until(lambda: all(attempts_of(house, name) for name in names.values()))
    deliveries = {each.endpoint_id: each for each in (await house.receipt(receipt)).deliveries}
    fates = {}
    for path, endpoint in endpoints.items():
        attempt = (await house.receipts.attempts(deliveries[endpoint]))[0]
        fates[path] = (attempt.outcome_class, attempt.status_code, attempt.error_class)
        assert len(attempt.snippet or "") <= 4096
    assert fates == FATES
    assert {arrival.path.partition("?")[0] for arrival in receiver.received()} == {
        path.partition("?")[0] for path in FATES
    }, "and no redirect was followed"


ODD_BODIES = [
    b"\xff\xfe\x00",
    b"ok\x00",
    b"\x00" * 5000,
    b"x" * 4095 + "\u20ac".encode(),
    b"\xed\xa0\x80",
    bytes(range(256)),
]
ODD_CHARSETS = [b"utf-8,charset=utf-8", b"\x81UTF-8", b"utf-16", b"no-such", b"idna", b"hex"]


async def test_no_body_and_no_charset_keeps_a_delivery_from_being_recorded(house: House) -> None:
    """C15: a 200 stays one, and what is stored of its body is text that the database takes."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=%s\r\nContent-Length: %d\r\n\r\n%s"
    answers = [head % (charset, len(body), body) for body in ODD_BODIES for charset in ODD_CHARSETS]
    with ScriptedServer(answering(*answers)) as server:
        endpoint = await house.endpoint(server.url(), max_in_flight=1, **UNLIMITED)
        async with house.dispatching():
            receipts = await house.events(len(answers), endpoint)
            await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == len(answers))
        assert len(server.requests) == len(answers)
    attempts = [await house.receipts.attempts(await house.delivery(receipt)) for receipt in receipts]
    assert {each.outcome_class for made in attempts for each in made} == {"success"}
    snippets = {each.snippet or "" for made in attempts for each in made}
    assert len(snippets) == len(ODD_BODIES)
    assert not any("\x00" in each for each in snippets)


async def test_an_endpoint_whose_answers_repeat_its_credentials_leaves_none_of_them_behind(house: House) -> None:
    """As error pages do that print the request."""
    token, bearer = "token-in-the-url", "bearer-in-the-header"
    echo = f"Bad request to /hook?token={token} with Authorization: Bearer {bearer}".encode()
    response = b"HTTP/1.1 500 No\r\nContent-Length: %d\r\n\r\n%s" % (len(echo), echo)
    with ScriptedServer(answering(response)) as server:
        url = server.url(f"/hook?token={token}")
        endpoint = await house.endpoint(url, headers={"Authorization": f"Bearer {bearer}"})
        async with house.dispatching():
            receipt = await house.event(endpoint)
            await house.until(lambda: bool(house.heard(AttemptsRecorded)))
        assert server.requests[0].values("authorization") == [f"Bearer {bearer}"]
    delivery = await house.delivery(receipt)
    attempt = (await house.receipts.attempts(delivery))[0]
    assert attempt.snippet == "Bad request to /hook?token=*** with Authorization: ***"
    assert attempt.display_url == server.url("/hook?token=***")
    shown = f"{await house.receipt(receipt)}{attempt}{house.heard(AttemptsRecorded)}"
    assert token not in shown
    assert bearer not in shown
