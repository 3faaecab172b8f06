"""The switches of the broker in memory make the faults that its users are to live with."""

from __future__ import annotations

import asyncio

import pytest

from relay.broker import BrokerUnavailable
from relay.domain.telemetry import Happening
from tests.broker.grounds import deliveries, ids, writes
from tests.support.memory_broker import MemoryBroker, MemoryStream


@pytest.fixture
def stream() -> MemoryStream:
    return MemoryStream(bound_seconds=0.02)


@pytest.fixture
def broker(stream: MemoryStream) -> MemoryBroker:
    told: list[Happening] = []
    return MemoryBroker(stream, consumer="a", emit=told.append)


async def test_what_is_away_raises_and_comes_back_with_what_it_had(stream: MemoryStream, broker: MemoryBroker) -> None:
    await broker.announce([ids(1)])
    stream.is_away = True
    for call in (broker.standing(), broker.receive(count=1, wait_seconds=0), broker.announce([ids(1, first=2)])):
        with pytest.raises(BrokerUnavailable, match="is away"):
            await call
    stream.is_away = False
    assert deliveries(tuple(await broker.receive(count=9, wait_seconds=0))) == ids(1)


async def test_what_is_demoted_answers_what_it_holds_and_takes_no_writes(
    stream: MemoryStream, broker: MemoryBroker
) -> None:
    await broker.announce([ids(1)])
    stream.demote()
    assert (await broker.standing()).unread == 1
    for call in writes(broker):
        with pytest.raises(BrokerUnavailable, match="takes no writes"):
            await call
    stream.promote()
    assert deliveries(tuple(await broker.receive(count=9, wait_seconds=0))) == ids(1)


async def test_what_hangs_raises_after_its_bound(stream: MemoryStream, broker: MemoryBroker) -> None:
    stream.freeze()
    with pytest.raises(BrokerUnavailable, match="did not answer"):
        await broker.standing()
    stream.thaw()
    await broker.standing()


async def test_a_read_that_waits_notices_that_the_broker_goes_away(stream: MemoryStream, broker: MemoryBroker) -> None:
    waiting = asyncio.create_task(broker.receive(count=1, wait_seconds=5))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stream.go_away()
    with pytest.raises(BrokerUnavailable, match="is away"):
        await waiting


async def test_what_was_asked_is_counted(stream: MemoryStream, broker: MemoryBroker) -> None:
    await broker.announce([ids(1)])
    await broker.standing()
    await broker.standing()
    assert stream.calls == {"announce": 1, "standing": 2}
    assert stream.announced == [tuple(ids(1))]
