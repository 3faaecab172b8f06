"""Records of attempts that cannot be written, although the endpoint has answered well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.dispatcher import ClaimTuning, reaper
from relay.domain.delivery import DeliveryStatus
from relay.domain.receipt import ReceiptOutcome
from relay.domain.telemetry import DeadLettered, LeasesReaped, Loop, LoopCrashed, LoopHeldUp, ReceiptsClosed
from tests.support.dispatching import TUNING, House
from tests.support.receiver import Receiver
from tests.support.refusing import DISK_FULL, READ_ONLY, accept_records, refuse_records

BRIEF = replace(TUNING, claim=ClaimTuning(batch=100, lease_seconds=1.7, poll_seconds=0.2))


async def test_a_record_that_is_always_refused_is_no_reason_to_deliver_for_ever(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case C97, a unique violation: each round waits for its lease, counts as an attempt, and is told as a crash. The
    generation's attempts bound the requests; the others' records are written meanwhile."""
    monkeypatch.setattr(reaper, "EVERY_SECONDS", 0.2)
    endpoint = await house.endpoint(receiver.url("/ok/refused"), retry={"max_attempts": 2}, timeout_seconds=1.0)
    healthy = await house.endpoint(receiver.url("/ok/healthy"), timeout_seconds=1.0)
    receipt = await house.event(endpoint)
    refused = (await house.delivery(receipt)).id
    await refuse_records(house.database, where=f"new.delivery_id = '{refused}'")
    async with house.dispatching(BRIEF):
        await house.events(5, healthy)
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == 5)
        # two rounds more than there are attempts
        await house.until(lambda: sum(each.count for each in house.heard(LeasesReaped)) >= 4, 30.0)
        assert len(receiver.received("/ok/refused")) == 2
        crashed = {each.loop for each in house.heard(LoopCrashed)}
        assert crashed == {Loop.RECORDER, Loop.REAPER}
        await accept_records(house.database)
        await house.until(lambda: bool(house.heard(DeadLettered)), 30.0)
    delivery = await house.delivery(receipt)
    assert delivery.status is DeliveryStatus.DEAD
    assert len(receiver.received("/ok/refused")) == 2


@pytest.mark.parametrize("code", [READ_ONLY, DISK_FULL])
async def test_what_cannot_be_written_now_is_written_later_and_sent_once(
    house: House, receiver: Receiver, code: str
) -> None:
    """Case C97: a transaction that turned out to be read-only, a disk that is full. The loop is told as held up, and
    tries again later each time."""
    endpoint = await house.endpoint(receiver.url("/ok"))
    await refuse_records(house.database, code=code)
    async with house.dispatching():
        receipt = await house.event(endpoint)
        await house.until(lambda: len(held_up(house)) >= 3)
        waits = [each.restart_seconds for each in held_up(house)]
        assert waits == sorted(set(waits))
        await accept_records(house.database)
        await house.until(lambda: bool(house.heard(ReceiptsClosed)))
    assert (await house.receipt(receipt)).outcome is ReceiptOutcome.DELIVERED
    assert len(await house.receipts.attempts(await house.delivery(receipt))) == 1
    assert len(receiver.received()) == 1


def held_up(house: House) -> list[LoopHeldUp]:
    return [each for each in house.heard(LoopHeldUp) if each.loop is Loop.RECORDER]
