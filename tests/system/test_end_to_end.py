"""The example of the end-to-end note, by real processes and the command line, in seconds instead of half an hour.

`invoice.paid` goes to three services of which one is down: the envelope stays as it was, the two others are left alone,
the third has a dead letter that says where and why, and after a re-drive to it alone the receipt closes, 3 of 3.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.installation import Installation, Service, add_endpoint, api, eventually, metrics, post
from tests.support.receiver import Receiver
from tests.support.scripted_server import Peer, Received, ScriptedServer

EVENT = b'{"type": "invoice.paid", "invoice": "in_5521", "amount": 48000.00, "currency": "EUR"}'
EVENT_ID = "evt_7Q2M9KXD"
OTHERS = ("ledger-writer", "analytics-sink")
DOWN = "email-receipts"
ATTEMPTS = 6
HASTE = {"retry_max_attempts": str(ATTEMPTS), "breaker_cooldown_secs": "0.1", "breaker_max_cooldown_secs": "0.3"}
SOON = 60.0


class Mailer:
    """A service that is down until it is up."""

    def __init__(self) -> None:
        self.up = threading.Event()

    def __call__(self, peer: Peer) -> None:
        while peer.read_request() is not None:
            peer.answer(200 if self.up.is_set() else 503)


def relay(installation: Installation, *words: str) -> Any:
    """Run a command that must succeed; answers its JSON."""
    done = installation.run(*words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def envelope(installation: Installation) -> tuple[object, ...]:
    """The event as the journal has it."""
    (row,) = await installation.fetch("select * from journal")
    return tuple(row)


def owed(receipt: Any) -> dict[str, Any]:
    """The deliveries of a receipt by their consumers."""
    return {each["consumer"]: each for each in receipt["deliveries"]}


def story(receipt: Any) -> list[tuple[str, str, str | None]]:
    """What happened behind the routing, in order."""
    steps = [(each["boundary"], each["what"], each["consumer"]) for each in receipt["timeline"]]
    return steps[steps.index(("B3", "routed", None)) + 1 :]


@pytest.fixture
def gateway(installation: Installation) -> Service:
    """A gateway that the commands talk to."""
    started = installation.gateway()
    installation.environment["RELAY_URL"] = started.url
    return started


@pytest.fixture
def mailer() -> Iterator[tuple[Mailer, ScriptedServer]]:
    """The service that is down, and what it got."""
    service = Mailer()
    with ScriptedServer(service) as server:
        yield service, server


async def test_an_event_for_three_of_which_one_is_down_is_proved_in_the_end(
    installation: Installation, gateway: Service, receiver: Receiver, mailer: tuple[Mailer, ScriptedServer]
) -> None:
    installation.dispatcher(**HASTE)
    service, server = mailer
    for name in OTHERS:
        relay(installation, "endpoints", "add", receiver.url(f"/ok/{name}"), "--name", name, "--type", "invoice.*")
    relay(installation, "endpoints", "add", server.url(), "--name", DOWN, "--type", "invoice.paid")
    accepted = post(gateway, EVENT, idempotency_key=EVENT_ID).json()
    receipt_id = accepted["receipt_id"]
    journaled = await envelope(installation)

    watched = installation.run("receipt", receipt_id, "--watch", "--json")
    assert watched.returncode == 1, "only a person can help it on"
    receipt = json.loads(watched.stdout)
    delivery = owed(receipt)[DOWN]
    assert (receipt["state"], receipt["event_id"], receipt["outcome"]) == ("open", EVENT_ID, None)
    assert (delivery["status"], delivery["reason"], delivery["boundary"]) == ("dead", "exhausted", "B3")
    assert (delivery["attempts"], delivery["last_error"][:3]) == (ATTEMPTS, "503")
    assert {(owed(receipt)[name]["status"], owed(receipt)[name]["attempts"]) for name in OTHERS} == {("delivered", 1)}
    (letter,) = relay(installation, "dlq", "list")
    assert (letter["consumer"], letter["boundary"], letter["attempts"]) == (DOWN, "B3", ATTEMPTS)
    assert letter["receipt_id"] == receipt_id
    assert letter["last_error"] == delivery["last_error"]

    service.up.set()
    again = relay(installation, "redrive", receipt_id, "--consumer", DOWN)
    assert [(each["consumer"], each["id"], each["generation"]) for each in again["redriven"]] == [
        (DOWN, delivery["id"], 1)
    ]
    receipt = relay(installation, "receipt", receipt_id, "--watch")
    assert (receipt["state"], receipt["outcome"]) == ("closed", "delivered_after_redrive")
    assert [each["status"] for each in receipt["deliveries"]] == ["delivered"] * 3

    assert await envelope(installation) == journaled
    assert relay(installation, "dlq", "list") == []
    assert {len(receiver.received(f"/ok/{name}")) for name in OTHERS} == {1}
    assert [request.body for request in server.requests] == [EVENT] * (ATTEMPTS + 1)
    assert {values(server, "Relay-Delivery-Id"), values(server, "Relay-Receipt-Id")} == {
        (delivery["id"],) * (ATTEMPTS + 1),
        (receipt_id,) * (ATTEMPTS + 1),
    }
    assert values(server, "Relay-Generation") == ("0",) * ATTEMPTS + ("1",)
    assert receipt["payload_sha256"] == hashlib.sha256(EVENT).hexdigest()


async def test_the_receipt_tells_where_the_event_was_when(
    installation: Installation, gateway: Service, receiver: Receiver, mailer: tuple[Mailer, ScriptedServer]
) -> None:
    dispatcher = installation.dispatcher(**HASTE)
    service, server = mailer
    add_endpoint(gateway, receiver.url(), name=OTHERS[0])
    add_endpoint(gateway, server.url(), name=DOWN)
    receipt_id = post(gateway, EVENT).json()["receipt_id"]
    assert installation.run("receipt", receipt_id, "--watch").returncode == 1
    service.up.set()
    relay(installation, "redrive", receipt_id)
    receipt = relay(installation, "receipt", receipt_id, "--watch")
    assert story(receipt) == [
        ("B4", "acked", OTHERS[0]),
        ("B3", "dead_lettered", DOWN),
        ("B4", "redriven", DOWN),
        ("B4", "acked", DOWN),
        ("B4", "closed", None),
    ]
    times = [each["at_ms"] for each in receipt["timeline"]]
    assert times == sorted(times)
    with api(gateway) as client:
        attempts = client.get(f"/v1/deliveries/{owed(receipt)[DOWN]['id']}").json()["attempts"]
    made = [each for each in attempts if each["outcome_class"] != "deferred"]
    assert [(each["attempt"], each["generation"]) for each in made] == [
        *((number, 0) for number in range(1, ATTEMPTS + 1)),
        (ATTEMPTS + 1, 1),
    ]
    phases = ("wait_ms", "connect_ms", "send_ms", "first_byte_ms", "total_ms")
    assert all(each[phase] >= 0 for each in made for phase in phases)
    closed = 'receipts_closed_total{outcome="delivered_after_redrive"}'

    async def counted() -> bool:
        return metrics(dispatcher)[closed] == 1

    await eventually(counted, SOON, "the closing is counted once")
    assert metrics(gateway)["receipts_redriven_total"] == 1


async def test_an_endpoint_that_acks_by_a_call_closes_the_receipt_with_it(
    installation: Installation, gateway: Service
) -> None:
    installation.dispatcher()
    with Receiver(relay_url=gateway.url) as receiver:
        add_endpoint(gateway, receiver.url("/ack-later?ms=300"), name="slow-worker", ack="explicit")
        receipt_id = post(gateway, EVENT).json()["receipt_id"]

        receipt = relay(installation, "receipt", receipt_id, "--watch")
    assert receipt["outcome"] == "delivered"
    (attempt,) = await installation.fetch("select status_code, late from delivery_attempts")
    assert tuple(attempt) == (202, False)
    assert len(receiver.received()) == 1
    closed = 'receipts_closed_total{outcome="delivered"}'
    assert metrics(gateway)[closed] == 1
    assert metrics(gateway)["relay_delivery_seconds_count"] == 1


async def test_an_ack_that_got_lost_is_asked_for_again_of_that_endpoint_alone(
    installation: Installation, gateway: Service, receiver: Receiver
) -> None:
    dispatcher = installation.dispatcher(receipt_deadline_secs="1")
    add_endpoint(gateway, receiver.url("/ok/proved"), name="proved")
    add_endpoint(gateway, receiver.url("/ok/silent"), name="silent", ack="explicit")
    receipt_id = post(gateway, EVENT).json()["receipt_id"]
    await receiver.arrive(1, SOON, "/ok/silent")

    async def awaited() -> bool:
        return bool(owed(relay(installation, "receipt", receipt_id))["silent"]["waiting_for"] == "ack")

    await eventually(awaited, SOON, "the receipt says that it waits for an ack")
    await receiver.arrive(2, SOON, "/ok/silent")
    with api(gateway) as client:
        answer = client.post(f"/v1/receipts/{receipt_id}/acks", json={"consumer": "silent"})
    assert (answer.status_code, answer.json()["outcome"]) == (200, "delivered_after_redrive")
    assert len(receiver.received("/ok/proved")) == 1

    async def counted() -> bool:
        return metrics(dispatcher)["receipts_redriven_total"] >= 1

    await eventually(counted, SOON, "the reconciler's re-drive is counted")


def values(server: ScriptedServer, name: str) -> tuple[str, ...]:
    """What a header said, request by request."""
    return tuple(value for request in server.requests for value in Received.values(request, name))
