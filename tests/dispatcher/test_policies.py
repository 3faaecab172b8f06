"""When a delivery is tried again, and when no more: the endpoint's own rule, the preset, and the window, end to end.

Hours pass by moving a delivery's instants into the past; what the dispatcher plans from them is then looked at.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from itertools import pairwise
from uuid import UUID

import pytest

from relay.domain.backoff import DEFAULT, PATIENT
from relay.domain.delivery import DeadReason, DeliveryStatus
from relay.domain.endpoint import EndpointState
from relay.domain.telemetry import AttemptsRecorded, DeadLettered
from relay.store.wakeups import WakeupSender
from tests.support.dispatching import TENANT, House
from tests.support.receiver import Receiver
from tests.support.scripted_server import OK, Peer, ScriptedServer, answering

LATE_SECONDS = 10.0
"""What a busy machine adds."""

PATIENT_SECONDS = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""The schedule of Standard Webhooks: 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h."""

NO = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"


async def tried(house: House, times: int) -> None:
    await house.until(lambda: sum(len(each.attempts) for each in house.heard(AttemptsRecorded)) >= times)


async def wait_of(house: House, receipt: UUID) -> float:
    """For how many seconds after its last attempt the delivery waits."""
    delivery = await house.delivery(receipt)
    last = (await house.receipts.attempts(delivery))[-1]
    return (delivery.due_at - last.at).total_seconds()


async def test_the_patient_preset_is_followed_over_three_days_and_then_ends(house: House, receiver: Receiver) -> None:
    endpoint = await house.endpoint(receiver.url("/always500"), retry={"preset": "patient"})
    waits = []
    async with house.dispatching(retry=DEFAULT):
        receipt = await house.event(endpoint)
        for made in range(1, 10):
            await tried(house, made)
            waits.append(await wait_of(house, receipt))
            await house.pass_time(waits[-1])
        await house.until(lambda: bool(house.heard(DeadLettered)))
    for wait, planned in zip(waits, PATIENT_SECONDS, strict=True):
        assert planned * (1 - PATIENT.jitter) <= wait <= planned * (1 + PATIENT.jitter) + LATE_SECONDS
    delivery = await house.delivery(receipt)
    assert (delivery.status, delivery.dead_reason, delivery.attempts) == (DeliveryStatus.DEAD, DeadReason.EXHAUSTED, 10)
    assert len(receiver.received()) == 10


async def test_an_endpoints_own_numbers_are_followed_in_real_time(house: House, receiver: Receiver) -> None:
    own = {"max_attempts": 4, "base_seconds": 0.3, "max_seconds": 0.6, "window_seconds": 60.0}
    endpoint = await house.endpoint(receiver.url("/always500"), retry=own)
    async with house.dispatching(retry=DEFAULT):
        receipt = await house.event(endpoint)
        await house.until(lambda: bool(house.heard(DeadLettered)))
    tries = [each.at for each in await house.receipts.attempts(await house.delivery(receipt))]
    gaps = [(after - before).total_seconds() for before, after in pairwise(tries)]
    assert len(gaps) == 3
    for gap, planned in zip(gaps, (0.3, 0.6, 0.6), strict=True):
        assert planned * (1 - DEFAULT.jitter) <= gap <= planned * (1 + DEFAULT.jitter) + LATE_SECONDS


async def test_a_retry_that_would_end_past_the_window_is_not_scheduled(house: House, receiver: Receiver) -> None:
    own = {"base_seconds": 100.0, "max_seconds": 100.0, "window_seconds": 250.0}
    endpoint = await house.endpoint(receiver.url("/always500"), retry=own)
    async with house.dispatching():
        receipt = await house.event(endpoint)
        for made in (1, 2):
            await tried(house, made)
            await house.pass_time(100.0)
        await house.until(lambda: bool(house.heard(DeadLettered)))
    delivery = await house.delivery(receipt)
    assert (delivery.dead_reason, delivery.attempts) == (DeadReason.EXHAUSTED, 3)


@pytest.mark.parametrize(("last_answer", "becomes"), [(NO, DeliveryStatus.DEAD), (OK, DeliveryStatus.DELIVERED)])
async def test_time_behind_a_closed_lane_does_not_kill_and_one_last_attempt_is_made_past_the_window(
    house: House, last_answer: bytes, becomes: DeliveryStatus
) -> None:
    own = {"base_seconds": 100.0, "max_seconds": 100.0, "window_seconds": 1000.0}
    with ScriptedServer(answering(NO, last_answer)) as server:
        endpoint = await house.endpoint(server.url(), retry=own)
        async with house.dispatching():
            receipt = await house.event(endpoint)
            await tried(house, 1)
            await house.endpoints.set_state(TENANT, endpoint, EndpointState.PAUSED)
            await house.pass_time(86_400.0)
            await otherwise_busy(house)
            waiting = await house.delivery(receipt)
            assert (waiting.status, waiting.attempts) == (DeliveryStatus.PENDING, 1)
            await house.endpoints.set_state(TENANT, endpoint, EndpointState.ACTIVE)
            await WakeupSender(house.database).send()
            await tried(house, 3)
        assert len(server.requests) == 2
    delivery = await house.delivery(receipt)
    assert (delivery.status, delivery.attempts) == (becomes, 2)


async def otherwise_busy(house: House) -> None:
    """Deliver an event elsewhere: the claimer has then been round."""
    with ScriptedServer(answering(OK)) as server:
        made = sum(len(each.attempts) for each in house.heard(AttemptsRecorded))
        await house.event(await house.endpoint(server.url()))
        await tried(house, made + 1)


def fourth_is_good(peer: Peer) -> None:
    """Answer the fourth request of all well, whichever connection it comes on."""
    while peer.read_request() is not None:
        peer.send(OK if len(peer.server.requests) == 4 else NO)


async def test_what_waits_for_hours_is_sent_once_when_it_is_due_whoever_is_there(house: House) -> None:
    """Case C126: delayed work waits in the database, in nobody's memory; here for eight dispatchers, with steps of
    2 h, 6 h and 12 h, and a day's pause at the end."""
    with ScriptedServer(fourth_is_good) as server:
        own = {"base_seconds": 7200.0, "max_seconds": 43_200.0, "window_seconds": 864_000.0}
        endpoint = await house.endpoint(server.url(), retry=own)
        async with AsyncExitStack() as stack:
            for _ in range(8):
                await stack.enter_async_context(house.dispatching())
            receipt = await house.event(endpoint)
            for made in (1, 2):
                await tried(house, made)
                await house.pass_time(43_200.0)
            await tried(house, 3)
            await house.endpoints.set_state(TENANT, endpoint, EndpointState.PAUSED)
            await house.pass_time(86_400.0)
            await house.endpoints.set_state(TENANT, endpoint, EndpointState.ACTIVE)
            await WakeupSender(house.database).send()
            await tried(house, 4)
        assert len(server.requests) == 4
    delivery = await house.delivery(receipt)
    assert (delivery.status, delivery.attempts) == (DeliveryStatus.DELIVERED, 4)
