"""Explicit acks: a 2xx is no proof, and what is never acked is asked for again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.dispatcher import reconciler
from relay.domain.delivery import DeadReason, DeliveryStatus
from relay.domain.endpoint import AckMode
from relay.domain.receipt import ReceiptOutcome
from relay.domain.telemetry import AttemptsRecorded, DeadLettered, LeasesLost, Loop, LoopSucceeded, ReceiptsRedriven
from relay.store.acks import Acks, AckWanted
from relay.store.health import Promises
from tests.support.dispatching import TENANT, TUNING, House
from tests.support.receiver import Receiver

PATIENT = replace(TUNING, promises=Promises(ack_seconds=3600.0))
HASTY = replace(TUNING, promises=Promises(ack_seconds=0.001))


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reconciler looks often."""
    monkeypatch.setattr(reconciler, "LEAST_SECONDS", 0.02)


async def test_a_2xx_of_an_endpoint_that_acks_itself_is_no_ack(house: House, receiver: Receiver) -> None:
    receipt = await house.event(await house.endpoint(receiver.url(), ack=AckMode.EXPLICIT))
    async with house.dispatching(PATIENT):
        await house.until(lambda: bool(house.heard(AttemptsRecorded)))
    delivery = await house.delivery(receipt)
    assert (delivery.status, delivery.awaits_ack) == (DeliveryStatus.IN_FLIGHT, True)
    assert (await house.receipt(receipt)).outcome is None
    taken = await Acks(house.database).acknowledge([AckWanted(TENANT, receipt, delivery.id)])
    assert taken[0] is not None
    assert taken[0].outcome is ReceiptOutcome.DELIVERED


async def test_what_nobody_acks_is_sent_again_to_it_alone_and_dead_after_twelve_generations(
    house: House, receiver: Receiver
) -> None:
    silent = await house.endpoint(receiver.url(), ack=AckMode.EXPLICIT)
    receipt = await house.event(silent, await house.endpoint(receiver.url()))
    async with house.dispatching(HASTY):
        await house.until(lambda: bool(house.heard(DeadLettered)))
    (told,) = house.heard(DeadLettered)
    assert sum(each.count for each in house.heard(ReceiptsRedriven)) == reconciler.MOST_GENERATIONS - 1
    owed = {each.endpoint_id: each for each in (await house.receipt(receipt)).deliveries}
    dead, acked = owed.pop(silent), owed.popitem()[1]
    assert (dead.status, dead.attempts, dead.generation) == (DeliveryStatus.DEAD, 12, 11)
    assert (told.reason, told.delivery_ids) == (DeadReason.EXHAUSTED, (dead.id,))
    assert (acked.status, acked.attempts) == (DeliveryStatus.DELIVERED, 1)
    arrived = receiver.received()
    assert (len(arrived), len({arrival.delivery_id for arrival in arrived})) == (13, 2)


async def test_the_reconciler_tells_that_it_is_there(house: House) -> None:
    async with house.dispatching(PATIENT):
        await house.until(lambda: any(each.loop is Loop.RECONCILER for each in house.heard(LoopSucceeded)))


async def test_an_endpoint_that_acks_before_it_answers_loses_nobody_a_lease(house: House, receiver: Receiver) -> None:
    url = receiver.url("/slow?ms=500")
    async with house.dispatching(PATIENT):
        receipt = await house.event(await house.endpoint(url, ack=AckMode.EXPLICIT))
        await receiver.arrive(1, 15.0)
        delivery = await house.delivery(receipt)
        await Acks(house.database).acknowledge([AckWanted(TENANT, receipt, delivery.id)])
        await house.until(lambda: bool(house.heard(AttemptsRecorded)))
    assert house.heard(LeasesLost) == []
    assert (await house.receipt(receipt)).outcome is ReceiptOutcome.DELIVERED
    (attempt,) = await house.receipts.attempts(await house.delivery(receipt))
    assert attempt.status_code == 200
