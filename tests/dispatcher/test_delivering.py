"""One delivery's way, on a real database and real sockets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.domain.delivery import DeadReason, DeliveryStatus
from relay.domain.egress import EgressPolicy
from relay.domain.endpoint import AckMode, EndpointState, SignatureProfile
from relay.domain.receipt import ReceiptOutcome
from relay.domain.secret import Secret
from relay.domain.telemetry import (
    AttemptsRecorded,
    DeadLettered,
    EndpointDisabled,
    LaneHeld,
    ReceiptsClosed,
    RetriesScheduled,
)
from tests.support.deliveries import PAYLOAD, new_id
from tests.support.dispatching import TENANT, TUNING, House
from tests.support.receiver import Receiver

HASTY = {"max_attempts": 3, "base_seconds": 0.05, "max_seconds": 0.1}


async def test_an_event_reaches_every_endpoint_signed_and_its_receipt_closes(house: House, receiver: Receiver) -> None:
    profiles = [SignatureProfile.RELAY, SignatureProfile.STANDARD, SignatureProfile.STRIPE, SignatureProfile.GITHUB]
    endpoints = [await house.endpoint(receiver.url(f"/verify/{p}"), signature=p) for p in profiles]
    async with house.dispatching():
        receipt = await house.event(*endpoints)
        await house.until(lambda: bool(house.heard(ReceiptsClosed)))
    view = await house.receipt(receipt)
    assert (view.outcome, view.acked, view.expected) == (ReceiptOutcome.DELIVERED, 4, 4)
    assert [arrival.status for arrival in receiver.received()] == [200] * 4
    assert receiver.bodies() == [PAYLOAD] * 4


async def test_a_failed_attempt_is_made_again_with_the_same_delivery_id(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/toggle?every=1"))
    async with house.dispatching():
        receipts = await house.events(2, endpoint)
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == 2)
    assert sum(each.count for each in house.heard(RetriesScheduled)) >= 1
    for receipt in receipts:
        delivery = await house.delivery(receipt)
        attempts = await house.receipts.attempts(delivery)
        assert [attempt.attempt for attempt in attempts] == list(range(1, delivery.attempts + 1))
        assert attempts[-1].status_code == 200
        assert all(attempt.status_code == 500 for attempt in attempts[:-1])
        assert delivery.status is DeliveryStatus.DELIVERED


async def test_an_endpoint_that_never_answers_well_gets_a_dead_letter_after_its_last_attempt(
    house: House, receiver: Receiver
) -> None:
    endpoint = await house.endpoint(receiver.url("/always500"), retry=HASTY)
    async with house.dispatching():
        receipt = await house.event(endpoint)
        await house.until(lambda: bool(house.heard(DeadLettered)))
    delivery = await house.delivery(receipt)
    assert (delivery.status, delivery.dead_reason, delivery.attempts) == (
        DeliveryStatus.DEAD,
        DeadReason.EXHAUSTED,
        3,
    )
    assert (delivery.last_error or "").startswith("500")
    assert (await house.receipt(receipt)).outcome is None


@pytest.mark.parametrize("status", [301, 400, 404, 422])
async def test_a_permanent_answer_ends_a_delivery_at_its_first_attempt(
    house: House, receiver: Receiver, status: int
) -> None:
    endpoint = await house.endpoint(receiver.url(f"/status/{status}"))
    async with house.dispatching():
        receipt = await house.event(endpoint)
        await house.until(lambda: bool(house.heard(DeadLettered)))
    delivery = await house.delivery(receipt)
    assert (delivery.dead_reason, delivery.attempts) == (DeadReason.PERMANENT_FAILURE, 1)


async def test_a_410_disables_its_endpoint_and_holds_what_else_it_is_owed(house: House, receiver: Receiver) -> None:
    gone = await house.endpoint(receiver.url("/status/410"), max_in_flight=1)
    other = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching():
        receipts = await house.events(3, gone)
        await house.until(lambda: bool(house.heard(EndpointDisabled)))
        closed = await house.event(other)
        await house.until(lambda: bool(house.heard(ReceiptsClosed)))
    assert (await house.receipt(closed)).outcome is ReceiptOutcome.DELIVERED
    endpoint = await house.endpoints.get(TENANT, gone)
    assert endpoint is not None
    assert (endpoint.state, endpoint.state_reason) == (EndpointState.DISABLED, "the endpoint answered 410 Gone")
    assert [each.reason for each in house.heard(EndpointDisabled)] == ["410 (gone)"]
    statuses = sorted([(await house.delivery(receipt)).status for receipt in receipts])
    assert statuses == [DeliveryStatus.DEAD, DeliveryStatus.PENDING, DeliveryStatus.PENDING]


async def test_a_429_holds_the_lane_for_as_long_as_it_asks(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/429?retry_after=600"), max_in_flight=1)
    async with house.dispatching():
        receipts = await house.events(3, endpoint)
        await house.until(lambda: bool(house.heard(LaneHeld)))
        # a healthy endpoint's delivery passes meanwhile, so the claimer has been round
        await house.event(await house.endpoint(receiver.url("/ok")))
        await house.until(lambda: bool(house.heard(ReceiptsClosed)))
    assert house.heard(LaneHeld)[0].seconds == 600
    assert len(receiver.received("/429")) == 1
    views = [await house.delivery(receipt) for receipt in receipts]
    assert sorted(view.attempts for view in views) == [0, 0, 1]
    assert {view.held_reason for view in views} == {"retry_after"}


async def test_an_address_that_the_policy_refuses_is_never_dialled(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(policy=EgressPolicy(require_https=False, allowed_ports=None)):
        receipt = await house.event(endpoint)
        await house.until(lambda: bool(house.heard(DeadLettered)))
    assert (await house.delivery(receipt)).dead_reason is DeadReason.REFUSED
    assert receiver.received() == []


async def test_a_payload_over_the_limit_is_dead_lettered_unsent(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(replace(TUNING, max_payload_bytes=10)):
        receipt = await house.event(endpoint)
        await house.until(lambda: bool(house.heard(DeadLettered)))
    assert (await house.delivery(receipt)).dead_reason is DeadReason.TOO_LARGE
    assert receiver.received() == []


async def test_an_explicit_ack_is_awaited_after_the_2xx(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"), ack=AckMode.EXPLICIT)
    async with house.dispatching():
        receipt = await house.event(endpoint)
        await house.until(lambda: bool(house.heard(AttemptsRecorded)))
    delivery = await house.delivery(receipt)
    assert (delivery.status, delivery.awaits_ack, delivery.acked_at) == (DeliveryStatus.IN_FLIGHT, True, None)
    assert (await house.receipt(receipt)).outcome is None


async def test_a_rotated_secret_signs_beside_the_new_one(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/verify"))
    async with house.dispatching():
        await house.event(endpoint)
        await house.until(lambda: len(house.heard(ReceiptsClosed)) == 1)
        new = Secret("whsec_" + "B" * 43 + "=")
        await house.endpoints.rotate_secret(TENANT, endpoint, secret_id=new_id(), secret=new, overlap_seconds=60)
        await house.event(endpoint)
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == 2)
    first, second = receiver.received()
    assert (first.status, second.status) == (200, 200)
    headers = dict(second.headers)
    assert headers["relay-signature"].count("v1=") == 2
