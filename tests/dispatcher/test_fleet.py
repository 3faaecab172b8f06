"""Deliveries through a broker: what is announced, who claims it, and that nothing is lost or doubled by it.

The broker is the one in memory, which passes the suite that Redis passes; the database is real.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest

from relay.domain.telemetry import AttemptsRecorded, BrokerModeChanged, LoopCrashed
from tests.support.dispatching import TUNING, House
from tests.support.memory_broker import MemoryBroker, MemoryStream
from tests.support.receiver import Receiver

QUICK = replace(TUNING, sweep_seconds=1.0)


@pytest.fixture
def stream() -> MemoryStream:
    return MemoryStream()


def consumer(house: House, stream: MemoryStream, name: str = "one") -> MemoryBroker:
    return MemoryBroker(stream, consumer=name, emit=house.ear)


def attempted(house: House) -> Counter[UUID]:
    """How often each delivery was attempted, as recorded."""
    return Counter(fact.delivery_id for told in house.heard(AttemptsRecorded) for fact in told.attempts)


def modes(house: House) -> list[bool]:
    return [told.active for told in house.heard(BrokerModeChanged)]


async def test_what_is_accepted_is_announced_claimed_by_its_id_and_delivered_once(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(broker=consumer(house, stream)):
        await house.until(lambda: modes(house) == [True])
        await house.events(200, endpoint)
        await house.until(lambda: len(attempted(house)) == 200)
    assert (set(attempted(house).values()), stream.calls["announce"] > 0) == ({1}, True)
    assert not house.heard(LoopCrashed)


async def test_every_message_is_acknowledged(house: House, receiver: Receiver, stream: MemoryStream) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    broker = consumer(house, stream)
    async with house.dispatching(broker=broker):
        await house.until(lambda: modes(house) == [True])
        await house.events(100, endpoint)
        await house.until(lambda: len(attempted(house)) == 100)
    standing = await broker.standing()
    assert (standing.unread, standing.pending) == (0, 0)


async def test_two_dispatchers_share_what_is_announced_and_send_nothing_twice(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with (
        house.dispatching(broker=consumer(house, stream, "one")),
        house.dispatching(broker=consumer(house, stream, "two")),
    ):
        await house.until(lambda: modes(house) == [True, True])
        await house.events(500, endpoint)
        await house.until(lambda: len(attempted(house)) == 500)
    assert set(attempted(house).values()) == {1}


async def test_what_the_broker_loses_is_announced_again(house: House, receiver: Receiver, stream: MemoryStream) -> None:
    """C130: the stream is emptied while everything in it waits for a lane that is full."""
    endpoint = await house.endpoint(receiver.url("/slow?ms=30"))
    async with house.dispatching(QUICK, broker=consumer(house, stream)):
        await house.until(lambda: modes(house) == [True])
        await house.events(100, endpoint)
        await house.until(lambda: len(attempted(house)) >= 10)
        stream.flush()
        await house.until(lambda: len(attempted(house)) == 100)
    assert set(attempted(house).values()) == {1}


async def test_without_the_broker_deliveries_are_polled_for_and_with_it_announced_again(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    endpoint = await house.endpoint(receiver.url("/ok"))
    async with house.dispatching(QUICK, broker=consumer(house, stream)):
        await house.until(lambda: modes(house) == [True])
        stream.is_away = True
        await house.events(50, endpoint)
        await house.until(lambda: len(attempted(house)) == 50)
        assert modes(house) == [True, False]
        stream.is_away = False
        await house.until(lambda: modes(house) == [True, False, True])
        await house.events(50, endpoint)
        await house.until(lambda: len(attempted(house)) == 100)
    assert set(attempted(house).values()) == {1}
