"""Order: Relay promises none, holds nothing up for it, and tells receivers enough to find it themselves."""

from __future__ import annotations

import pytest

from tests.support.gate import Gate
from tests.support.installation import Installation, add_endpoint
from tests.support.producer import Event, Producer
from tests.support.receiver import Receiver

DEADLINE = 60.0


@pytest.mark.usefixtures("patient")
async def test_an_event_does_not_wait_for_the_retry_of_an_earlier_one_and_both_say_which_came_first(
    installation: Installation,
) -> None:
    """Case C119, unordered: the second event's attempt comes although the first one's answer is still owed."""
    async with Gate() as gate:
        gateway = installation.gateway()
        installation.dispatcher(retry_base_secs="1", retry_max_secs="1")
        add_endpoint(gateway, gate.url)
        producer = Producer([gateway.url], connections=1)
        await producer.post([Event("first", b'{"state": "old"}')], DEADLINE)
        failed = await gate.visit(DEADLINE)
        failed.answer(500)
        await producer.post([Event("second", b'{"state": "new"}')], DEADLINE)
        overtaking = await gate.visit(DEADLINE)
        overtaking.answer(200)
        retried = await gate.visit(DEADLINE)
        retried.answer(200)
        await installation.all_closed(2, DEADLINE)

    assert [visit.headers["relay-event-id"] for visit in (failed, overtaking, retried)] == ["first", "second", "first"]
    came = sorted((retried, overtaking), key=lambda visit: _number(visit.headers["relay-journal-position"]))
    assert [visit.headers["relay-event-id"] for visit in came] == ["first", "second"]
    assert retried.headers["relay-received-at"] <= overtaking.headers["relay-received-at"]


@pytest.mark.usefixtures("patient")
async def test_a_burst_to_a_slow_endpoint_is_not_slowed_down_further(
    installation: Installation, receiver: Receiver
) -> None:
    """Case C119: a hundred events in a burst, each sent once: none was failed or put off to keep an order."""
    gateway = installation.gateway()
    installation.dispatcher()
    add_endpoint(gateway, receiver.url("/slow?ms=50"), max_in_flight=8)
    await Producer([gateway.url]).post([Event(f"burst-{number}", b"{}") for number in range(100)], DEADLINE)
    await installation.all_closed(100, DEADLINE)
    assert len(receiver.received()) == 100
    assert await installation.value("select bool_and(attempts = 1) from deliveries")


def _number(position: str) -> int:
    return int(position.rpartition(":")[2])
