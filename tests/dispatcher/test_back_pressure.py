"""What cannot be written holds up what is claimed and what is sent, and for no longer than it has to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from relay.dispatcher import ClaimTuning
from relay.domain.attempt import AttemptRecord
from relay.domain.receipt import ReceiptOutcome
from relay.domain.telemetry import DeliveriesClaimed, LaneHeld, LoopCrashed, ReceiptsClosed
from relay.store.faults import StoreRefused, StoreUnavailable
from relay.store.queue import Queue, Recorded
from tests.support.dispatching import RETRY, TUNING, House
from tests.support.gate import Gate
from tests.support.receiver import Receiver

SENDS, AHEAD = 4, 4
SMALL = replace(TUNING, claim=ClaimTuning(batch=AHEAD, lease_seconds=60.0, poll_seconds=0.05), concurrency=SENDS)
EVENTS = 60
DEADLINE = 15.0


class Recording:
    """The store's recording, which fails by `fault` as long as there is one; `failed` counts how often it did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fault: Exception | None = None
        self.failed = 0
        record = Queue.record

        async def recording(queue: Queue, attempts: Sequence[AttemptRecord]) -> Recorded:
            if self.fault is not None:
                self.failed += 1
                raise self.fault
            return await record(queue, attempts)

        monkeypatch.setattr(Queue, "record", recording)


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Recording:
    return Recording(monkeypatch)


def claimed(house: House) -> int:
    return sum(each.count for each in house.heard(DeliveriesClaimed))


def closed(house: House) -> int:
    return sum(each.count for each in house.heard(ReceiptsClosed))


async def test_no_more_is_claimed_than_there_is_room_for_while_outcomes_cannot_be_written(
    house: House, receiver: Receiver, recording: Recording
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    recording.fault = StoreUnavailable("away")
    async with house.dispatching(SMALL):
        receipts = await house.events(EVENTS, endpoint)
        # each round of the recorder waits twice as long: time for many claims, if there were any
        await house.until(lambda: recording.failed >= 5 and len(receiver.received()) >= SENDS)
        assert len(receiver.received()) <= claimed(house) <= SENDS + AHEAD
        recording.fault = None
        await house.until(lambda: closed(house) == EVENTS)
    assert {(await house.receipt(each)).outcome for each in receipts} == {ReceiptOutcome.DELIVERED}
    assert len(receiver.received()) == EVENTS


async def test_a_lane_that_an_answer_closed_stays_shut_while_that_cannot_be_written(
    house: House, receiver: Receiver, recording: Recording
) -> None:
    throttled = await house.endpoint(receiver.url("/429?retry_after=600"), max_in_flight=1)
    recording.fault = StoreUnavailable("away")
    async with house.dispatching():
        await house.events(5, throttled)
        await house.until(lambda: recording.failed > 0)
        await house.event(await house.endpoint(receiver.url("/ok")))
        # the claimer goes round for the others, and passes the lane each time
        await house.until(lambda: recording.failed >= 5 and len(receiver.received("/ok")) == 1)
        assert len(receiver.received("/429")) == 1
        recording.fault = None
        await house.until(lambda: closed(house) == 1 and bool(house.heard(LaneHeld)))
    assert len(receiver.received("/429")) == 1


async def test_a_lane_whose_closing_was_written_opens_when_its_hold_is_over(house: House) -> None:
    async with Gate() as gate:
        endpoint = await house.endpoint(gate.url, max_in_flight=1)
        async with house.dispatching():
            await house.events(2, endpoint)
            (await gate.visit(DEADLINE)).answer(429)
            for _ in range(2):
                (await gate.visit(DEADLINE)).answer(200)
            await house.until(lambda: closed(house) == 2)
    assert [each.seconds for each in house.heard(LaneHeld)] == [RETRY.base_seconds]


async def test_a_lane_whose_closing_the_database_refuses_does_not_stay_shut(house: House, recording: Recording) -> None:
    async with Gate() as gate:
        endpoint = await house.endpoint(gate.url, max_in_flight=1)
        recording.fault = StoreRefused("no such status")
        async with house.dispatching():
            await house.events(2, endpoint)
            (await gate.visit(DEADLINE)).answer(429)
            await house.until(lambda: bool(house.heard(LoopCrashed)))
            recording.fault = None
            (await gate.visit(DEADLINE)).answer(200)
            await house.until(lambda: closed(house) == 1)
    assert [str(each.error) for each in house.heard(LoopCrashed)] == ["no such status"]
