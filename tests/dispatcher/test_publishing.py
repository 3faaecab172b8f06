"""What one dispatcher announces for a fleet: what is due and open, boundedly, once, and again what was lost.

Nobody reads what is announced here, but for the tests that say so.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest

from relay.dispatcher import publisher, surplus
from relay.dispatcher.alarm import Alarm
from relay.dispatcher.mode import Mode
from relay.dispatcher.publisher import Publisher, Publishing
from relay.domain.ambient import Ambient
from relay.domain.telemetry import AttemptsRecorded, BrokerModeChanged, LaneFoundClosed, Loop, LoopSucceeded
from relay.store.announcing import SILENT_SECONDS, Announcing, Leadership, Look
from relay.store.database import Database
from tests.support.dispatching import TUNING, House
from tests.support.memory_broker import MemoryBroker, MemoryStream
from tests.support.receiver import Receiver
from tests.support.world import real_ambient

SWEEP_SECONDS = 0.3
NOWHERE = "http://127.0.0.1:9/never"


async def tell_nobody(_: UUID) -> None:
    """Of closed lanes nobody is told here."""


@pytest.fixture
def stream() -> MemoryStream:
    return MemoryStream()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is asked for what it holds more often than once a second."""
    monkeypatch.setattr(publisher, "STANDING_SECONDS", 0.05)


@asynccontextmanager
async def publishing(
    house: House,
    stream: MemoryStream,
    *,
    stands_down: bool = True,
    most: int = 1000,
    sweep: float = SWEEP_SECONDS,
    mode: Mode | None = None,
    world: Ambient | None = None,
    alarm: Alarm | None = None,
) -> AsyncIterator[None]:
    """A publisher that runs inside the block, with nobody who reads."""
    world = world or real_ambient()
    alarm = alarm or Alarm(world.monotonic)
    announces = await Database.connect(house.dsn, name="announces", size=1)
    running = Publisher(
        store=Announcing(announces),
        broker=MemoryBroker(stream, consumer="publishes", emit=house.ear),
        mark_closed=tell_nobody,
        mode=mode or Mode(alarm=alarm, clock=time.monotonic, emit=house.ear),
        alarm=alarm,
        tuning=Publishing(poll_seconds=0.1, sweep_seconds=sweep, stands_down=stands_down, most=most),
        ambient=world,
        emit=house.ear,
    )
    task = asyncio.create_task(running.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        await announces.close()


def unread(stream: MemoryStream) -> Counter[UUID]:
    """How often each delivery stands in the stream."""
    return Counter(delivery for message in stream.announced for delivery in message)


def rounds(house: House, loop: Loop = Loop.PUBLISHER) -> int:
    return sum(each.loop is loop for each in house.heard(LoopSucceeded))


async def more_rounds(house: House, number: int, loop: Loop = Loop.PUBLISHER) -> None:
    """Return after so many more rounds."""
    before = rounds(house, loop)
    await house.until(lambda: rounds(house, loop) >= before + number)


async def test_what_is_due_is_announced_once(house: House, stream: MemoryStream) -> None:
    await house.events(120, await house.endpoint(NOWHERE, max_in_flight=200))
    async with publishing(house, stream):
        await house.until(lambda: len(unread(stream)) == 120)
        await more_rounds(house, 5)
    assert set(unread(stream).values()) == {1}
    assert max(map(len, stream.announced)) <= 50


async def test_what_is_delayed_is_not_in_the_broker(house: House, stream: MemoryStream) -> None:
    """C126: a retry in two hours, however long the broker's patience is."""
    await house.events(5, await house.endpoint(NOWHERE))
    await house.execute("update deliveries set due_at = now() + interval '2 hours'")
    async with publishing(house, stream):
        await more_rounds(house, 5)
        assert stream.announced == []
        await house.pass_time(7_300)
        await house.until(lambda: len(unread(stream)) == 5)


async def test_a_closed_lane_is_not_announced_and_is_when_it_opens(house: House, stream: MemoryStream) -> None:
    await house.events(5, await house.endpoint(NOWHERE))
    await house.execute("update endpoints set status = 'paused'")
    async with publishing(house, stream):
        await more_rounds(house, 5)
        assert stream.announced == []
        await house.execute("update endpoints set status = 'active', revision = revision + 1")
        await house.until(lambda: len(unread(stream)) == 5)


async def test_a_lane_with_a_rate_and_a_deep_backlog_does_not_flood_the_stream(
    house: House, stream: MemoryStream
) -> None:
    slow = await house.endpoint(NOWHERE, rate_per_second=0.01, burst=7)
    await house.events(500, slow)
    async with publishing(house, stream):
        await house.until(lambda: len(unread(stream)) == 7)
        await more_rounds(house, 10)
    assert len(unread(stream)) == 7


async def test_what_is_announced_and_not_claimed_is_bounded(house: House, stream: MemoryStream) -> None:
    for _ in range(3):
        await house.events(200, await house.endpoint(NOWHERE, max_in_flight=200))
    async with publishing(house, stream, most=100):
        await more_rounds(house, 20)
    announced = sum(unread(stream).values())
    assert 25 <= announced <= 100, "each of the three has a share, and the shares are within the bound"


async def test_the_sweep_stands_down_while_something_is_unread(house: House, stream: MemoryStream) -> None:
    await house.events(60, await house.endpoint(NOWHERE))
    async with publishing(house, stream):
        await house.until(lambda: len(unread(stream)) == 60)
        await more_rounds(house, 10, Loop.SWEEP)
    assert sum(unread(stream).values()) == 60


async def test_without_that_rule_the_sweep_feeds_itself(house: House, stream: MemoryStream) -> None:
    """The loop that the rule prevents: nobody has read any of it, and yet it is announced again and again."""
    await house.events(60, await house.endpoint(NOWHERE))
    async with publishing(house, stream, stands_down=False):
        await house.until(lambda: sum(unread(stream).values()) >= 240)


async def test_what_was_read_and_not_claimed_is_announced_again_after_the_sweeps_time(
    house: House, stream: MemoryStream
) -> None:
    await house.events(10, await house.endpoint(NOWHERE))
    reader = MemoryBroker(stream, consumer="reads", emit=house.ear)
    async with publishing(house, stream):
        await house.until(lambda: len(unread(stream)) == 10)
        assert len(await reader.receive(count=10, wait_seconds=0)) == 1
        await house.until(lambda: len(unread(stream)) == 10)


async def test_what_was_read_and_dropped_is_announced_again_while_something_younger_is_unread(
    house: House, stream: MemoryStream
) -> None:
    """A fleet that is saturated always has something unread."""
    reader = MemoryBroker(stream, consumer="reads", emit=house.ear)
    async with publishing(house, stream):
        await house.events(1, await house.endpoint(NOWHERE))
        await house.until(lambda: len(stream.announced) == 1)
        await house.events(1, await house.endpoint(NOWHERE))
        await house.until(lambda: len(stream.announced) == 2)
        (dropped,) = await reader.receive(count=1, wait_seconds=0)
        since = time.monotonic()
        await house.until(lambda: time.monotonic() > since + 2 * SWEEP_SECONDS)
        await house.events(1, await house.endpoint(NOWHERE))
        await house.until(lambda: len(stream.announced) == 2)
        (younger,) = stream.announced[1]
        await reader.receive(count=1, wait_seconds=0)
        await house.until(lambda: dropped.deliveries[0] in unread(stream))
    assert unread(stream)[younger] == 1


async def test_a_server_whose_clock_was_put_back_is_told_nothing_again(house: House, stream: MemoryStream) -> None:
    await house.events(10, await house.endpoint(NOWHERE))
    async with publishing(house, stream):
        await house.until(lambda: len(unread(stream)) == 10)
        stream.put_back(3_600.0)
        await more_rounds(house, 10, Loop.SWEEP)
    assert sum(unread(stream).values()) == 10


async def test_what_an_empty_broker_has_lost_is_announced_again_without_waiting_for_the_sweep(
    house: House, stream: MemoryStream
) -> None:
    """C130."""
    await house.events(10, await house.endpoint(NOWHERE))
    async with publishing(house, stream, sweep=3_600.0):
        await house.until(lambda: len(unread(stream)) == 10)
        stream.flush()
        await house.until(lambda: len(unread(stream)) == 10)


async def test_a_new_leader_announces_nothing_before_all_is_read(house: House, stream: MemoryStream) -> None:
    await house.events(10, await house.endpoint(NOWHERE))
    async with publishing(house, stream):
        await house.until(lambda: len(unread(stream)) == 10)
    reader = MemoryBroker(stream, consumer="reads", emit=house.ear)
    async with publishing(house, stream):
        await more_rounds(house, 3, Loop.SWEEP)
        assert sum(unread(stream).values()) == 10
        await reader.receive(count=10, wait_seconds=0)
        await house.until(lambda: len(unread(stream)) == 10)


async def test_a_publisher_whose_broker_is_away_leaves_the_lock_to_another_one(
    house: House, stream: MemoryStream
) -> None:
    away = MemoryStream()
    away.is_away = True
    await house.events(10, await house.endpoint(NOWHERE))
    async with publishing(house, away):
        await house.until(lambda: bool(house.heard(BrokerModeChanged)))
        async with publishing(house, stream):
            await house.until(lambda: len(unread(stream)) == 10)


@pytest.fixture
def reads(house: House) -> Mode:
    """The mode of a process that reads its broker, whatever its publisher does."""
    mode = Mode(alarm=Alarm(time.monotonic), clock=time.monotonic, emit=house.ear)
    mode.served(Loop.CLAIMER)
    return mode


def modes(house: House) -> list[bool]:
    return [told.active for told in house.heard(BrokerModeChanged)]


async def test_a_broker_that_takes_no_announcement_is_told_of_once(
    house: House, stream: MemoryStream, reads: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers what it holds all the while, and there is something to announce all the while."""
    monkeypatch.setattr(publisher, "RETRY_SECONDS", 0.01)
    await house.events(10, await house.endpoint(NOWHERE))
    stream.demote()
    async with publishing(house, stream, mode=reads):
        await house.until(lambda: stream.calls.get("announce", 0) >= 10)
        assert modes(house) == [True, False]
        stream.promote()
        await house.until(lambda: modes(house) == [True, False, True])
        reader = MemoryBroker(stream, consumer="reads", emit=house.ear)
        assert len(await reader.receive(count=10, wait_seconds=0)) == 1, "the trial"
        await house.until(lambda: len(unread(stream)) == 10)


async def test_a_broker_that_comes_back_with_something_unread_serves_at_once(
    house: House, stream: MemoryStream, reads: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody else reads, nobody would read it before that."""
    monkeypatch.setattr(publisher, "RETRY_SECONDS", 0.01)
    await house.events(10, await house.endpoint(NOWHERE))
    async with publishing(house, stream, mode=reads):
        await house.until(lambda: len(unread(stream)) == 10)
        stream.go_away()
        await house.until(lambda: modes(house) == [True, False])
        stream.come_back()
        await house.until(lambda: modes(house) == [True, False, True])
    assert len(unread(stream)) == 10


class Rests(Alarm):
    """Notes for how long somebody would rest, who does not."""

    def __init__(self) -> None:
        super().__init__(time.monotonic)
        self.asked: list[float] = []

    async def wait(self, limit: float) -> None:
        self.asked.append(limit)
        await super().wait(min(limit, 0.01))


@pytest.mark.parametrize("seconds", [0.1, 1.4, 60.0])
async def test_a_leader_whose_looks_are_slow_rests_no_longer_than_it_may_be_silent(
    house: House, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    passed, look = 0.0, Leadership.look

    async def slow(lead: Leadership, *, after: UUID, most_of_a_lane: int) -> Look:
        nonlocal passed
        passed += seconds
        return await look(lead, after=after, most_of_a_lane=most_of_a_lane)

    monkeypatch.setattr(Leadership, "look", slow)
    world, rests = replace(real_ambient(), monotonic=lambda: time.monotonic() + passed), Rests()
    await house.events(3, await house.endpoint(NOWHERE))
    async with publishing(house, stream, world=world, alarm=rests, sweep=3_600.0):
        await house.until(lambda: len(rests.asked) >= 5)
    assert publisher.LONGEST_PAUSE_SECONDS < max(rests.asked) <= publisher.SPEAKS_SECONDS < SILENT_SECONDS / 2


async def test_an_idle_publisher_asks_the_broker_nothing(house: House, stream: MemoryStream) -> None:
    async with publishing(house, stream):
        await more_rounds(house, 10)
    assert stream.calls == {"standing": 1}


class Counting(MemoryBroker):
    """Counts what is announced through it."""

    told: Counter[UUID]

    async def announce(self, batches: Sequence[Sequence[UUID]]) -> None:
        self.told.update(delivery for batch in batches for delivery in batch)
        await super().announce(batches)


async def test_of_two_dispatchers_one_announces_and_the_other_one_after_it(
    house: House, receiver: Receiver, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surplus, "KEPT_WINDOWS", 1_000)  # nothing is passed on, which is announced as well
    brokers = [Counting(stream, consumer=str(number), emit=house.ear) for number in range(2)]
    for broker in brokers:
        broker.told = Counter()
    endpoint = await house.endpoint(receiver.url("/ok"))
    first, second = brokers
    async with house.dispatching(TUNING, broker=first) as leader:
        await house.until(lambda: first.told.total() == 0 and bool(house.heard(BrokerModeChanged)))
        await house.events(50, endpoint)
        await house.until(lambda: sum(len(each.attempts) for each in house.heard(AttemptsRecorded)) == 50)
        async with house.dispatching(TUNING, broker=second):
            await house.events(50, endpoint)
            await house.until(lambda: sum(len(each.attempts) for each in house.heard(AttemptsRecorded)) == 100)
            assert (first.told.total(), second.told.total()) == (100, 0)
            leader.stop.set()
            await leader.task
            await house.events(50, endpoint)
            await house.until(lambda: sum(len(each.attempts) for each in house.heard(AttemptsRecorded)) == 150)
            assert second.told.total() == 50


async def test_a_lane_that_is_closed_is_told_of_as_without_a_broker(
    house: House, receiver: Receiver, stream: MemoryStream
) -> None:
    await house.event(await house.endpoint(receiver.url("/ok")))
    await house.execute("update endpoints set status = 'paused'")
    broker = MemoryBroker(stream, consumer="one", emit=house.ear)
    async with house.dispatching(replace(TUNING, sweep_seconds=60.0), broker=broker):
        await house.until(lambda: bool(house.heard(LaneFoundClosed)))
