"""Whatever a server loses, reading goes on by itself (C130), on real servers of each kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from relay.broker import LONGEST_WAIT_SECONDS, BrokerUnavailable, RedisStreams, Standing
from relay.broker.redis_streams import GROUP, MOST_REMADE
from relay.domain.telemetry import BrokerEmptied, Happening
from tests.broker.grounds import RedisGround, deliveries, ids
from tests.support.installation import eventually
from tests.support.stream_server import StreamServer

STREAM = "relay.deliveries"


async def blocked(server: StreamServer, count: int = 1) -> None:
    """Return once so many reads wait at the server."""

    async def wait() -> bool:
        return bool(server.client.info("clients")["blocked_clients"] == count)

    await eventually(wait, 10, f"{count} reads wait")


def swap(client: Any) -> None:
    client.swapdb(0, 1)


LOSSES: dict[str, Callable[[Any], object]] = {
    "flushall": lambda client: client.flushall(),
    "flushdb": lambda client: client.flushdb(),
    "del": lambda client: client.delete(STREAM),
    "unlink": lambda client: client.unlink(STREAM),
    "rename": lambda client: client.rename(STREAM, "elsewhere"),
    "swapdb": swap,
    "xgroup destroy": lambda client: client.xgroup_destroy(STREAM, GROUP),
    "expire": lambda client: client.pexpire(STREAM, 0),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_read_that_waits_gets_what_is_announced_after_a_loss(redis_ground: RedisGround, loss: str) -> None:
    """C130."""
    server, reader, announcer = redis_ground.server, redis_ground.consumer("a"), redis_ground.consumer("b")
    await reader.receive(count=1, wait_seconds=0)
    waiting = asyncio.create_task(reader.receive(count=1, wait_seconds=LONGEST_WAIT_SECONDS))
    await blocked(server)
    LOSSES[loss](server.client)
    assert list(await waiting) == []
    await announcer.announce([ids(1)])
    assert deliveries(tuple(await reader.receive(count=1, wait_seconds=LONGEST_WAIT_SECONDS))) == ids(1)
    assert redis_ground.told == [BrokerEmptied()]


async def test_what_was_announced_while_there_was_no_group_is_read(redis_ground: RedisGround) -> None:
    """C130: XADD makes the stream again without its group, which must not begin at the end."""
    broker = redis_ground.consumer()
    await broker.receive(count=1, wait_seconds=0)
    redis_ground.flush()
    await broker.announce([[each] for each in ids(500)])
    assert (await broker.standing()).unread == 0  # nobody is there to read it, so nothing stands in a sweep's way
    assert deliveries(tuple(await broker.receive(count=500, wait_seconds=0))) == ids(500)


async def test_a_destroyed_group_reads_what_is_in_the_stream_again(redis_ground: RedisGround) -> None:
    """C130: what it had read is announced twice rather than lost."""
    broker = redis_ground.consumer()
    await broker.announce([ids(1), ids(1, first=2)])
    await broker.receive(count=1, wait_seconds=0)
    redis_ground.server.client.xgroup_destroy(STREAM, GROUP)
    assert deliveries(tuple(await broker.receive(count=10, wait_seconds=0))) == ids(2)


async def test_a_server_that_was_restarted_empty_is_read_again(
    own_server: Callable[..., StreamServer], connect: Callable[..., RedisStreams]
) -> None:
    """C130: a server without persistence comes back, and nothing of Relay is restarted."""
    server, told = own_server(), list[Happening]()
    broker = connect(server.url, emit=told.append)
    await broker.announce([ids(1)])
    await broker.receive(count=1, wait_seconds=0)
    waiting = asyncio.create_task(broker.receive(count=1, wait_seconds=LONGEST_WAIT_SECONDS))
    await blocked(server)
    server.kill()
    with pytest.raises(BrokerUnavailable, match="cannot be reached"):
        await waiting
    with pytest.raises(BrokerUnavailable, match="cannot be reached"):
        await broker.announce([ids(1)])
    server.start()
    await broker.announce([ids(1, first=2)])
    assert deliveries(tuple(await broker.receive(count=1, wait_seconds=LONGEST_WAIT_SECONDS))) == ids(1, first=2)
    assert told == [BrokerEmptied()]


async def test_a_stream_that_is_evicted_is_made_again(
    own_server: Callable[..., StreamServer], connect: Callable[..., RedisStreams]
) -> None:
    """C130: under an eviction policy, whoever else fills the server evicts the stream."""
    server, told = own_server("--maxmemory-policy", "allkeys-lru"), list[Happening]()
    broker = connect(server.url, emit=told.append)
    await broker.announce([ids(50)])
    await broker.receive(count=1, wait_seconds=0)
    server.client.config_set("maxmemory", server.client.info("memory")["used_memory"] + 4_000_000)

    async def evicted() -> bool:
        for number in range(1_000):
            server.client.set(f"other{number}", b"x" * 10_000)
            server.client.get(f"other{number}")
        return not server.client.exists(STREAM)

    await eventually(evicted, 20, "the stream is evicted")
    server.client.config_set("maxmemory", 0)
    await broker.announce([ids(1, first=7)])
    assert deliveries(tuple(await broker.receive(count=10, wait_seconds=LONGEST_WAIT_SECONDS))) == ids(1, first=7)
    assert told == [BrokerEmptied()]


async def test_a_stream_that_is_lost_all_the_time_is_a_fault_with_its_reason(redis_ground: RedisGround) -> None:
    """C130: NOGROUP comes at once, so whoever reads in a loop would go round and round, a line each time."""
    broker = redis_ground.consumer()
    for _ in range(MOST_REMADE):
        await broker.receive(count=1, wait_seconds=0)
        redis_ground.flush()
    with pytest.raises(BrokerUnavailable, match="maxmemory-policy must be noeviction"):
        await broker.receive(count=1, wait_seconds=0)
    assert redis_ground.told == [BrokerEmptied()] * (MOST_REMADE - 1)


async def test_two_calls_that_find_the_group_gone_make_it_once(redis_ground: RedisGround) -> None:
    """C130: a line per loss, not per task."""
    broker = redis_ground.consumer()
    await broker.receive(count=1, wait_seconds=0)
    waiting = [asyncio.create_task(broker.receive(count=1, wait_seconds=LONGEST_WAIT_SECONDS)) for _ in range(4)]
    await blocked(redis_ground.server, 4)
    redis_ground.flush()
    await asyncio.gather(*waiting, broker.reclaim(idle_seconds=0, count=1))
    assert redis_ground.told == [BrokerEmptied()]


async def test_a_fleet_that_finds_the_group_gone_makes_one(redis_ground: RedisGround) -> None:
    """C130: BUSYGROUP is no fault."""
    fleet = [redis_ground.consumer(name) for name in "abcd"]
    await asyncio.gather(*(each.receive(count=1, wait_seconds=0) for each in fleet))
    redis_ground.flush()
    await fleet[0].announce([[each] for each in ids(8)])
    read = await asyncio.gather(*(each.receive(count=2, wait_seconds=0) for each in fleet))
    assert sorted(deliveries([message for messages in read for message in messages])) == ids(8)


async def test_trimming_by_somebody_else_leaves_nothing_to_trip_over(redis_ground: RedisGround) -> None:
    """Entries that were deleted while pending are dropped by the server, which counts them as pending until then."""
    broker = redis_ground.consumer()
    await broker.announce([[each] for each in ids(10)])
    await broker.receive(count=5, wait_seconds=0)
    redis_ground.server.client.xtrim(STREAM, maxlen=3, approximate=False)
    assert await broker.standing() == Standing(unread=3, pending=5)
    assert list(await broker.reclaim(idle_seconds=0, count=10)) == []
    assert await broker.standing() == Standing(unread=3, pending=0)
    assert deliveries(tuple(await broker.receive(count=10, wait_seconds=0))) == ids(3, first=8)


@pytest.mark.parametrize("moved_to", ["9999999999999-0", "18446744073709551615-18446744073709551615"])
async def test_a_group_that_was_moved_past_the_stream_is_made_anew_by_the_next_look_for_what_stalled(
    redis_ground: RedisGround, moved_to: str
) -> None:
    """It would read nothing for years, and whatever is announced would stay in the stream."""
    reader, announcer = redis_ground.consumer("a"), redis_ground.consumer("b")
    await reader.receive(count=1, wait_seconds=0)
    redis_ground.server.client.xgroup_setid(STREAM, GROUP, moved_to)
    await announcer.announce([[each] for each in ids(3)])
    assert list(await reader.receive(count=10, wait_seconds=0)) == []
    await reader.reclaim(idle_seconds=60, count=1)
    messages = await reader.receive(count=10, wait_seconds=0)
    assert deliveries(tuple(messages)) == ids(3)
    await reader.acknowledge([message.id for message in messages])
    assert (redis_ground.server.client.xlen(STREAM), redis_ground.told) == (0, [BrokerEmptied()])


async def test_a_group_at_the_last_entry_of_an_empty_stream_stays(redis_ground: RedisGround) -> None:
    broker = redis_ground.consumer()
    await broker.announce([ids(1)])
    (message,) = await broker.receive(count=1, wait_seconds=0)
    await broker.reclaim(idle_seconds=60, count=1)
    await broker.acknowledge([message.id])
    await broker.reclaim(idle_seconds=60, count=1)
    await broker.receive(count=1, wait_seconds=0)
    assert redis_ground.told == []
