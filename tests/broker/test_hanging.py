"""A server that says nothing, and one that has nothing to say: the first is a fault within seconds, the second none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from relay.broker import LONGEST_WAIT_SECONDS, Broker, BrokerUnavailable, RedisStreams
from relay.broker.client import ANSWER_SECONDS, MOST_CONNECTIONS
from tests.broker.grounds import RedisGround, deliveries, ids
from tests.broker.test_losses import blocked
from tests.support.link import Link
from tests.support.stream_server import StreamServer

LEEWAY_SECONDS = 2.0
"""A busy machine's."""

CALLS: dict[str, Callable[[Broker], Awaitable[object]]] = {
    "announce": lambda broker: broker.announce([ids(1)]),
    "receive": lambda broker: broker.receive(count=1, wait_seconds=0),
    "reclaim": lambda broker: broker.reclaim(idle_seconds=0, count=1),
    "acknowledge": lambda broker: broker.acknowledge(["1-0"]),
    "standing": lambda broker: broker.standing(),
}


async def test_a_server_that_hangs_under_a_waiting_read_is_noticed_and_found_again(
    own_server: Callable[..., StreamServer], connect: Callable[..., RedisStreams]
) -> None:
    """C134: a half-open connection raises nothing by itself."""
    server = own_server()
    broker, announcer = connect(server.url), connect(server.url, "b")
    await broker.receive(count=1, wait_seconds=0)
    waiting = asyncio.create_task(broker.receive(count=1, wait_seconds=1.0))
    await blocked(server)
    server.freeze()
    async with asyncio.timeout(1.0 + ANSWER_SECONDS + LEEWAY_SECONDS):
        with pytest.raises(BrokerUnavailable, match="did not answer within 4 s"):
            await waiting
    server.thaw()
    await announcer.announce([ids(1)])
    found = [*await broker.receive(count=1, wait_seconds=1.0), *await broker.reclaim(idle_seconds=0, count=1)]
    assert set(deliveries(found)) == set(ids(1))  # by the read that went on at the server, or by this one


@pytest.mark.parametrize("server", ["valkey"], indirect=True)
async def test_every_call_on_a_half_open_connection_ends_within_its_bound(server: StreamServer) -> None:
    """C134: those that had a connection, and those that have to make one."""
    async with Link(server.url) as link:
        ground = RedisGround(server, link.dsn)
        broker = ground.consumer()
        await broker.receive(count=1, wait_seconds=0)
        link.freeze()
        async with asyncio.timeout(ANSWER_SECONDS + 1.0 + LEEWAY_SECONDS):
            ended = await asyncio.gather(*(call(broker) for call in CALLS.values()), return_exceptions=True)
        assert [type(each) for each in ended] == [BrokerUnavailable] * len(CALLS)
        link.thaw()
        await asyncio.gather(*(call(broker) for call in CALLS.values()))
        await ground.close()


@pytest.mark.parametrize("server", ["valkey"], indirect=True)
async def test_closing_a_half_open_connection_ends_within_its_bound(server: StreamServer) -> None:
    """C134: a process stops though its broker hangs."""
    async with Link(server.url) as link:
        broker = RedisGround(server, link.dsn).consumer()
        await broker.receive(count=1, wait_seconds=0)
        link.freeze()
        async with asyncio.timeout(2 * ANSWER_SECONDS + 1.0 + LEEWAY_SECONDS):
            await broker.close()


@pytest.mark.parametrize("call", CALLS)
async def test_a_connection_that_was_cut_is_made_anew(redis_ground: RedisGround, call: str) -> None:
    """The server, or what stands in between, closes what is idle; the next call must not pay for it."""
    broker = redis_ground.consumer()
    await broker.receive(count=1, wait_seconds=0)
    redis_ground.server.client.client_kill_filter(_type="normal", skipme=True)
    await CALLS[call](broker)


async def test_an_idle_read_is_no_fault_and_keeps_its_connection(redis_ground: RedisGround) -> None:
    """C135: for as long as a read may wait, which is more than the client library's own default."""
    broker = redis_ground.consumer()
    await broker.receive(count=1, wait_seconds=0)
    before = redis_ground.server.client.info("stats")["total_connections_received"]
    assert list(await broker.receive(count=1, wait_seconds=3600)) == []
    assert redis_ground.server.client.info("stats")["total_connections_received"] == before


async def test_more_calls_at_once_than_connections_take_turns(redis_ground: RedisGround) -> None:
    broker = redis_ground.consumer()
    await asyncio.gather(*(broker.announce([ids(1)]) for _ in range(2 * MOST_CONNECTIONS)))
    assert len(await broker.receive(count=1_000, wait_seconds=0)) == 2 * MOST_CONNECTIONS


async def test_a_read_that_may_not_wait_does_not_wait_for_ever(redis_ground: RedisGround) -> None:
    """BLOCK 0 is for ever."""
    async with asyncio.timeout(LONGEST_WAIT_SECONDS / 2):
        for seconds in (0.0, 0.0001, -1.0):
            assert list(await redis_ground.consumer().receive(count=1, wait_seconds=seconds)) == []
