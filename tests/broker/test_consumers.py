"""Consumers come and go, and what they held stays (C128), on real servers of each kind."""

from __future__ import annotations

import asyncio

import pytest

from relay.broker import redis_streams
from tests.broker.grounds import RedisGround, deliveries, ids


@pytest.fixture
def gone_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds nothing counts as gone, however lately it asked."""
    monkeypatch.setattr(redis_streams, "GONE_SECONDS", 0.0)


async def test_a_killed_consumer_that_holds_nothing_is_forgotten(gone_at_once: None, redis_ground: RedisGround) -> None:
    killed, alive = redis_ground.consumer("killed"), redis_ground.consumer("alive")
    await killed.announce([ids(1)])
    (message,) = await killed.receive(count=1, wait_seconds=0)
    await killed.acknowledge([message.id])
    await alive.reclaim(idle_seconds=60, count=1)
    assert "killed" not in redis_ground.consumers()


async def test_a_consumer_that_has_just_asked_is_not_forgotten(redis_ground: RedisGround) -> None:
    away, alive = redis_ground.consumer("away"), redis_ground.consumer("alive")
    await away.announce([ids(1)])
    (message,) = await away.receive(count=1, wait_seconds=0)
    await away.acknowledge([message.id])
    await alive.reclaim(idle_seconds=0, count=1)
    assert "away" in redis_ground.consumers()


async def test_a_killed_consumer_is_kept_until_all_that_it_held_is_taken_over(
    gone_at_once: None, redis_ground: RedisGround
) -> None:
    """C128: a clean-up after one claim would lose the other nine."""
    killed, heir = redis_ground.consumer("killed"), redis_ground.consumer("heir")
    await killed.announce([[each] for each in ids(10)])
    await killed.receive(count=10, wait_seconds=0)
    taken = list(await heir.reclaim(idle_seconds=0, count=1))
    assert "killed" in redis_ground.consumers()
    while len(taken) < 10:
        taken += await heir.reclaim(idle_seconds=0, count=3)
    assert set(deliveries(taken)) == set(ids(10))
    await heir.acknowledge([message.id for message in taken])
    await heir.reclaim(idle_seconds=60, count=1)
    assert redis_ground.consumers() == set()


async def test_a_forgotten_consumer_reads_on(gone_at_once: None, redis_ground: RedisGround) -> None:
    away, alive = redis_ground.consumer("away"), redis_ground.consumer("alive")
    await away.receive(count=1, wait_seconds=0)
    await alive.reclaim(idle_seconds=0, count=1)
    await alive.announce([ids(1)])
    assert deliveries(tuple(await away.receive(count=1, wait_seconds=0))) == ids(1)


async def test_nothing_is_lost_between_reading_and_forgetting(gone_at_once: None, redis_ground: RedisGround) -> None:
    """C128: that a consumer holds nothing is looked at in the step that removes it."""
    reader, cleaner, heir = (redis_ground.consumer(name) for name in ("reader", "cleaner", "heir"))
    await reader.announce([[each] for each in ids(200)])

    async def read() -> None:
        for _ in range(200):
            await reader.receive(count=1, wait_seconds=0)

    async def clean() -> None:
        for _ in range(200):
            await cleaner.reclaim(idle_seconds=3600, count=1)

    await asyncio.gather(read(), clean())
    assert deliveries(tuple(await heir.reclaim(idle_seconds=0, count=200))) == ids(200)


async def test_a_long_pending_list_is_looked_through_in_turns(redis_ground: RedisGround) -> None:
    """A server looks at ten times as many as are asked for; the next call goes on behind them."""
    holder, heir = redis_ground.consumer("holder"), redis_ground.consumer("heir")
    await holder.announce([[each] for each in ids(100)])
    await holder.receive(count=100, wait_seconds=0)
    taken = [message for _ in range(25) for message in await heir.reclaim(idle_seconds=0, count=4)]
    assert deliveries(taken) == ids(100)
