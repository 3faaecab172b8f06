"""What every kind of answer leads to, from the receiver's bytes to the rows that a person is shown."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from uuid import UUID

import pytest

from relay.domain.delivery import DeadReason, DeliveryStatus
from relay.domain.endpoint import EndpointState
from relay.domain.outcome import OutcomeClass
from relay.domain.sending import ErrorClass
from relay.domain.telemetry import AttemptsRecorded, ReceiptsClosed
from relay.sender import SendLimits
from relay.sender.limits import ResolverLimits
from relay.store.receipts import AttemptView, DeliveryView
from tests.sender.authority import Authority
from tests.support.dispatching import PATIENT, House
from tests.support.receiver import Receiver
from tests.support.scripted_dns import Answer, Broken, Missing, Records, ScriptedDns, Silent
from tests.support.scripted_server import OK, Peer, Script, ScriptedServer, answering

SLOW = {"base_seconds": 600.0, "max_seconds": 600.0}
"""A retry that does not come while a test looks."""

ACCEPTED = (200, 201, 202, 204, 206, 207, 226, 299)
REDIRECTED = (300, 301, 304, 307)
REJECTED = (400, 401, 403, 404, 405, 409, 413, 415, 418, 421, 422, 423, 426, 428, 451, 499)
TRIED_AGAIN = (408, 425, 429, 500, 501, 502, 503, 504, 507, 511, 520, 522, 524, 530, 599, 600)


@dataclass(frozen=True, slots=True)
class Seen:
    """One delivery after its first attempt."""

    delivery: DeliveryView
    attempt: AttemptView


async def after_one_attempt(house: House, urls: dict[str, str], limits: SendLimits = PATIENT) -> dict[str, Seen]:
    """Deliver one event to each of the urls, and look once each was tried."""
    endpoints = {name: await house.endpoint(url, retry=SLOW) for name, url in urls.items()}
    async with house.dispatching(limits=limits):
        receipts = {name: await house.event(endpoint) for name, endpoint in endpoints.items()}
        await house.until(lambda: sum(len(each.attempts) for each in house.heard(AttemptsRecorded)) == len(urls), 30.0)
    return {name: await seen(house, receipt) for name, receipt in receipts.items()}


async def seen(house: House, receipt: UUID) -> Seen:
    delivery = await house.delivery(receipt)
    (attempt,) = await house.receipts.attempts(delivery)
    assert (attempt.attempt, delivery.attempts) == (1, 1)
    return Seen(delivery, attempt)


async def test_every_status_leads_to_what_the_table_says(house: House, receiver: Receiver) -> None:
    """Case C93."""
    odd = answering(b"HTTP/1.1 600 Odd\r\nContent-Length: 0\r\n\r\n")
    with ScriptedServer(odd) as server:
        urls = {str(status): receiver.url(f"/status/{status}") for status in (*ACCEPTED, *REDIRECTED, *REJECTED, 410)}
        urls |= {str(status): receiver.url(f"/status/{status}") for status in TRIED_AGAIN if status != 600}
        urls["600"] = server.url()
        found = await after_one_attempt(house, urls)

    became = {
        int(name): (
            each.attempt.status_code,
            each.attempt.outcome_class,
            each.delivery.status,
            each.delivery.dead_reason,
        )
        for name, each in found.items()
    }
    dead = (OutcomeClass.PERMANENT, DeliveryStatus.DEAD, DeadReason.PERMANENT_FAILURE)
    expected: dict[int, tuple[int | None, OutcomeClass, DeliveryStatus, DeadReason | None]] = {
        status: (status, OutcomeClass.SUCCESS, DeliveryStatus.DELIVERED, None) for status in ACCEPTED
    }
    expected |= {status: (status, *dead) for status in (*REDIRECTED, *REJECTED, 410)}
    expected |= {status: (status, OutcomeClass.RETRYABLE, DeliveryStatus.PENDING, None) for status in TRIED_AGAIN}
    assert became == expected
    states = {name: each.delivery.endpoint_state for name, each in found.items()}
    assert {name for name, state in states.items() if state is not EndpointState.ACTIVE} == {"410"}


def answers(status: int, *retry_after: str) -> Script:
    lines = "".join(f"Retry-After: {value}\r\n" for value in retry_after)
    return answering(f"HTTP/1.1 {status} Word\r\n{lines}Content-Length: 0\r\n\r\n".encode())


def in_120_seconds(form: Callable[[datetime], str]) -> str:
    return form(datetime.now(UTC) + timedelta(seconds=120))


FORMS: dict[str, Callable[[datetime], str]] = {
    "IMF-fixdate": lambda at: format_datetime(at, usegmt=True),
    "RFC 850": lambda at: at.strftime("%A, %d-%b-%y %H:%M:%S GMT"),
    "asctime": lambda at: at.strftime("%a %b %e %H:%M:%S %Y"),
    "offset -0000": lambda at: at.strftime("%a, %d %b %Y %H:%M:%S -0000"),
    "naive": lambda at: at.strftime("%a, %d %b %Y %H:%M:%S"),
}
ORDINARY_SECONDS = 5.0
SHORT = {"base_seconds": ORDINARY_SECONDS, "max_seconds": ORDINARY_SECONDS}


async def waits_after(house: House, scripts: dict[str, Script]) -> dict[str, float]:
    """For how many seconds, from the recorded attempt, each delivery waits whose endpoint answers so."""
    with ExitStack() as stack:
        servers = {name: stack.enter_context(ScriptedServer(script)) for name, script in scripts.items()}
        endpoints = {name: await house.endpoint(server.url(), retry=SHORT) for name, server in servers.items()}
        async with house.dispatching():
            receipts = {name: await house.event(endpoint) for name, endpoint in endpoints.items()}
            await house.until(
                lambda: sum(len(each.attempts) for each in house.heard(AttemptsRecorded)) == len(endpoints)
            )
    found = {name: await seen(house, receipt) for name, receipt in receipts.items()}
    assert {each.delivery.status for each in found.values()} == {DeliveryStatus.PENDING}
    assert all(each.delivery.due_at > each.attempt.at for each in found.values())
    return {name: (each.delivery.due_at - each.attempt.at).total_seconds() for name, each in found.items()}


SPREAD = 1.2
"""A wish of the endpoint is spread by up to a fifth, and only upwards."""
LATE_SECONDS = 10.0
"""What a busy machine adds to an attempt."""


@pytest.mark.parametrize("status", [429, 503])
async def test_every_form_of_a_retry_after_moves_the_next_try_to_its_instant(house: House, status: int) -> None:
    """Case C74. An instant of whole seconds is up to one nearer than it was asked for."""
    scripts = {name: answers(status, in_120_seconds(form)) for name, form in FORMS.items()}
    scripts["seconds"] = answers(status, "120")
    for name, seconds in (await waits_after(house, scripts)).items():
        assert 118.0 - LATE_SECONDS <= seconds <= 120.0 * SPREAD + LATE_SECONDS, (name, seconds)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_retry_after_that_says_nothing_leaves_the_ordinary_delay(house: House, status: int) -> None:
    """Cases C72 and C74."""
    texts = ["-5", "-1", "1.5", "soon", "", "Sun, 06 Nov 1994 08:49:37 GMT", "Mon, 31 Nov 2026 08:51:37 GMT", "0"]
    found = await waits_after(house, {text: answers(status, text) for text in texts})
    for text, seconds in found.items():
        assert ORDINARY_SECONDS <= seconds <= ORDINARY_SECONDS + LATE_SECONDS, (text, seconds)


async def test_a_retry_after_is_at_most_an_hour_and_the_longest_of_several_counts(house: House) -> None:
    scripts = {"a day": answers(503, "86400"), "several": answers(503, "60", "600")}
    found = await waits_after(house, scripts)
    assert 3600.0 <= found["a day"] <= 3600.0 * SPREAD + LATE_SECONDS
    assert 600.0 <= found["several"] <= 600.0 * SPREAD + LATE_SECONDS


async def test_a_second_negative_retry_after_waits_the_ordinary_delay_again(house: House) -> None:
    """Case C72: -5, then -1; each of them an attempt."""
    first, second = (f"HTTP/1.1 429 Word\r\nRetry-After: {n}\r\nContent-Length: 0\r\n\r\n".encode() for n in (-5, -1))
    with ScriptedServer(answering(first, second, OK)) as server:
        endpoint = await house.endpoint(server.url(), retry={"base_seconds": 0.2, "max_seconds": 0.4})
        async with house.dispatching():
            receipt = await house.event(endpoint)
            await house.until(lambda: sum(len(each.attempts) for each in house.heard(AttemptsRecorded)) == 3)
    delivery = await house.delivery(receipt)
    tries = await house.receipts.attempts(delivery)
    assert [each.status_code for each in tries] == [429, 429, 200]
    assert tries[1].at - tries[0].at >= timedelta(seconds=0.2)
    assert tries[2].at - tries[1].at >= timedelta(seconds=0.4)


NAMES: dict[str, Answer] = {
    "servfail.test": Broken(),
    "nxdomain.test": Missing(),
    "empty.test": Records([]),
    "silent.test": Silent(),
}
HERE = Records(["127.0.0.1"], ttl=60)


def zone(name: str, _asked: int) -> Answer:
    return NAMES.get(name, HERE)


def resetting(peer: Peer) -> None:
    peer.socket.recv(100)
    peer.reset()


def reset_after_request(peer: Peer) -> None:
    peer.read_request()
    peer.reset()


def tls_faults(authority: Authority) -> dict[str, tuple[ssl.SSLContext | None, ErrorClass]]:
    """Servers whose handshake does not hold, and what each of them is told as."""
    good = authority.issue("here.test")
    old = good.context()
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.maximum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    old.set_ciphers("ALL:@SECLEVEL=0")
    return {
        "expired": (authority.issue("here.test", expired=True).context(), ErrorClass.TLS_CERTIFICATE),
        "wrong host": (authority.issue("other.test").context(), ErrorClass.TLS_CERTIFICATE),
        "self-signed": (authority.sign_itself("here.test").context(), ErrorClass.TLS_CERTIFICATE),
        "unknown authority": (Authority().issue("here.test").context(), ErrorClass.TLS_CERTIFICATE),
        "TLS 1.0 only": (old, ErrorClass.TLS_FAILED),
        "handshake reset": (None, ErrorClass.TLS_FAILED),
    }


async def test_each_failure_on_the_way_has_its_class_and_is_tried_again(house: House, tmp_path: Path) -> None:
    """Case C84. None of them has a status, and none is permanent."""
    authority = Authority()
    faults = tls_faults(authority)
    expected = {name: error for name, (_, error) in faults.items()}
    expected |= dict.fromkeys(("servfail.test", "nxdomain.test", "empty.test"), ErrorClass.DNS_FAILED)
    expected |= {"silent.test": ErrorClass.DNS_TIMEOUT}
    expected |= {"refused": ErrorClass.CONNECT_REFUSED, "reset": ErrorClass.RESET}

    with ExitStack() as stack:
        dns = stack.enter_context(ScriptedDns(zone))
        closed = stack.enter_context(socket.socket())
        closed.bind(("127.0.0.1", 0))
        urls = {name: f"https://{name}/" for name in NAMES}
        urls["refused"] = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        urls["reset"] = stack.enter_context(ScriptedServer(reset_after_request)).url()
        for name, (context, _) in faults.items():
            server = stack.enter_context(ScriptedServer(answering(OK) if context else resetting, tls=context))
            urls[name] = f"https://here.test:{server.port}/"
        limits = SendLimits(
            ca_file=authority.bundle(tmp_path), resolver=ResolverLimits(answer_seconds=1.0, servers=(dns.address,))
        )
        found = await after_one_attempt(house, urls, limits)

    assert {name: each.attempt.error_class for name, each in found.items()} == expected
    assert {each.attempt.status_code for each in found.values()} == {None}
    assert {each.attempt.outcome_class for each in found.values()} == {OutcomeClass.RETRYABLE}
    assert {each.delivery.status for each in found.values()} == {DeliveryStatus.PENDING}
    assert len({each.delivery.last_error for each in found.values()}) == len(found), "a person can tell them apart"
    for name, each in found.items():
        wait = (each.delivery.due_at - each.attempt.at).total_seconds()
        assert 600.0 <= wait <= 600.0 + LATE_SECONDS, name
        assert (each.delivery.last_error or "").startswith(f"{expected[name]}: "), name


@pytest.mark.parametrize("status", [401, 410])
async def test_what_is_turned_away_while_its_endpoint_is_changed_is_sent_again_as_that_is_now(
    house: House, receiver: Receiver, status: int
) -> None:
    """A receiver that went over to a new secret turns away what was signed before; a server that moved is gone."""
    endpoint = await house.endpoint(receiver.url(f"/slow?ms=500&status={status}"))
    async with house.dispatching():
        receipt = await house.event(endpoint)
        await receiver.arrive(1, 15.0)
        await house.execute(
            "update endpoints set url = $2, revision = revision + 1 where id = $1", endpoint, receiver.url("/ok")
        )
        await house.until(lambda: bool(house.heard(ReceiptsClosed)))
    delivery = await house.delivery(receipt)
    assert (delivery.status, delivery.endpoint_state) == (DeliveryStatus.DELIVERED, EndpointState.ACTIVE)
    turned_away, _ = await house.receipts.attempts(delivery)
    assert (turned_away.status_code, turned_away.outcome_class) == (status, OutcomeClass.RETRYABLE)
    assert str(turned_away.reason).endswith("; the endpoint was changed meanwhile")
