"""What a person has sent again: a real request each time, under numbers of its own."""

from __future__ import annotations

import asyncio
import hashlib
import os
from uuid import UUID

from relay.domain.delivery import DeliveryStatus
from relay.domain.receipt import ReceiptOutcome
from relay.domain.telemetry import AttemptsRecorded
from relay.store.redrive import NotRedrivable, Performed, Redrive, Redrives
from relay.store.request_keys import KeptAnswer, RequestKey
from relay.store.wakeups import WakeupSender
from tests.support.dispatching import TENANT, House
from tests.support.scripted_server import OK, ScriptedServer, answering

NO = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
ONE = {"max_attempts": 1}


async def press(house: House, delivery: UUID, key: str | None = None) -> Performed:
    """Have a delivery sent again, under a name of the request or without one."""

    async def work(redrive: Redrive) -> KeptAnswer:
        await redrive.delivery(delivery)
        return KeptAnswer(202, b"{}")

    redrives = Redrives(house.database, entropy=os.urandom, key_retention_seconds=86_400.0)
    named = RequestKey(key, hashlib.sha256(delivery.bytes).digest()) if key else None
    performed = await redrives.perform(TENANT, named, work)
    await WakeupSender(house.database).send()
    return performed


def made(house: House) -> int:
    """How many attempts were told of so far."""
    return sum(len(each.attempts) for each in house.heard(AttemptsRecorded))


async def tried(house: House, times: int) -> None:
    await house.until(lambda: made(house) >= times)


async def until_status(house: House, receipt: UUID, status: DeliveryStatus) -> None:
    """Return once the delivery stands so, looked at after each attempt."""
    while True:
        so_far = made(house)
        if (await house.delivery(receipt)).status is status:
            return
        await tried(house, so_far + 1)


async def test_each_deliberate_request_makes_one_attempt_and_a_repeated_one_none(house: House) -> None:
    """Case C85: a press on the dead one, a press that works, one after it worked, two under names of their own, and
    both of these once more."""
    with ScriptedServer(answering(NO, NO, OK)) as server:
        endpoint = await house.endpoint(server.url(), retry=ONE)
        async with house.dispatching():
            receipt = await house.event(endpoint)
            await tried(house, 1)
            delivery = (await house.delivery(receipt)).id
            for times, key in enumerate([None, None, None, "first", "second"], start=2):
                assert not (await press(house, delivery, key)).replayed
                await tried(house, times)
                expected = DeliveryStatus.DEAD if times == 2 else DeliveryStatus.DELIVERED
                assert (await house.delivery(receipt)).status is expected
            for key in ("first", "second"):
                assert (await press(house, delivery, key)).replayed
        assert len(server.requests) == 6
        ids = {request.values("Relay-Delivery-Id")[0] for request in server.requests}
        assert ids == {str(delivery)}
    assert (await house.receipt(receipt)).outcome is ReceiptOutcome.DELIVERED_AFTER_REDRIVE
    assert [each.attempt for each in await house.receipts.attempts(await house.delivery(receipt))] == [1, 2, 3, 4, 5, 6]


async def test_manual_attempts_and_scheduled_ones_are_numbered_as_one(house: House) -> None:
    """Case C86: three by the schedule, one by hand, the rest by the schedule, which counts anew from there."""
    rule = {"max_attempts": 4, "base_seconds": 100.0, "max_seconds": 100.0}
    with ScriptedServer(answering(NO)) as server:
        endpoint = await house.endpoint(server.url(), retry=rule)
        async with house.dispatching():
            receipt = await house.event(endpoint)
            for times in (1, 2):
                await tried(house, times)
                await house.pass_time(100.0)
            await tried(house, 3)
            await press(house, (await house.delivery(receipt)).id)
            for times in (4, 5, 6):
                await tried(house, times)
                await house.pass_time(100.0)
            await until_status(house, receipt, DeliveryStatus.DEAD)
        sent = [int(request.values("Relay-Attempt")[0]) for request in server.requests]
    attempts = await house.receipts.attempts(await house.delivery(receipt))
    assert sent == [each.attempt for each in attempts] == [1, 2, 3, 4, 5, 6, 7]
    assert [each.generation for each in attempts] == [0, 0, 0, 1, 1, 1, 1]


async def test_two_manual_requests_at_once_give_no_number_twice(house: House) -> None:
    """Case C86."""
    with ScriptedServer(answering(NO, OK)) as server:
        endpoint = await house.endpoint(server.url(), retry=ONE)
        async with house.dispatching():
            receipt = await house.event(endpoint)
            await tried(house, 1)
            delivery = (await house.delivery(receipt)).id
            pressed = await asyncio.gather(*(press(house, delivery) for _ in range(8)), return_exceptions=True)
            assert all(isinstance(each, Performed | NotRedrivable) for each in pressed)
            await until_status(house, receipt, DeliveryStatus.DELIVERED)
        numbers = [int(request.values("Relay-Attempt")[0]) for request in server.requests]
    view = await house.delivery(receipt)
    recorded = [(each.attempt, each.status_code) for each in await house.receipts.attempts(view)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [number for number, _ in recorded] == numbers
    assert {status for number, status in recorded if number > 1} == {200}
    assert view.status is DeliveryStatus.DELIVERED
