"""Behind real Sentinels: whichever server is the primary is found, and found again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from relay.broker import LONGEST_WAIT_SECONDS, BrokerUnavailable, RedisStreams
from tests.broker.grounds import deliveries, ids
from tests.broker.test_losses import blocked
from tests.support.installation import LOOPBACK, eventually, free_port
from tests.support.stream_server import StreamServer

FAILOVER_SECONDS = 40.0
Connect = Callable[..., RedisStreams]


@dataclass(frozen=True, slots=True)
class Watched:
    """A primary with its replica, and the url of those who watch them: a Sentinel that is away, and one that is not."""

    primary: StreamServer
    replica: StreamServer
    sentinel: StreamServer

    @property
    def url(self) -> str:
        return f"redis+sentinel://{LOOPBACK}:{free_port()},{LOOPBACK}:{self.sentinel.port}/mymaster"

    def replicate(self) -> None:
        """Return once the replica has all that was written so far: the server waits for what this client wrote."""
        self.primary.client.set("mark", "")
        assert self.primary.client.wait(1, 10_000) == 1

    async def settled(self) -> None:
        """Return once the Sentinel would promote the replica."""

        async def known() -> bool:
            replicas = self.sentinel.client.execute_command("SENTINEL", "REPLICAS", "mymaster")
            facts = [dict(zip(each[::2], each[1::2], strict=True)) for each in replicas]
            return [each[b"master-link-status"] for each in facts] == [b"ok"]

        await eventually(known, FAILOVER_SECONDS, "the Sentinel knows the replica")


@pytest.fixture
async def watched(own_server: Callable[..., StreamServer]) -> Watched:
    primary = own_server("--repl-diskless-sync-delay", "0")
    replica = own_server("--replicaof", f"{LOOPBACK} {primary.port}")
    lines = (
        f"sentinel monitor mymaster {LOOPBACK} {primary.port} 1",
        "sentinel down-after-milliseconds mymaster 500",
        "sentinel failover-timeout mymaster 5000",
    )
    made = Watched(primary, replica, own_server(*lines, sentinel=True))
    await made.settled()
    return made


async def works_again(broker: RedisStreams) -> None:
    async def announces() -> bool:
        with suppress(BrokerUnavailable):
            await broker.announce([ids(1, first=99)])
            return True
        return False

    await eventually(announces, FAILOVER_SECONDS, "something can be announced")


async def test_the_primary_is_found_though_a_sentinel_is_away(watched: Watched, connect: Connect) -> None:
    broker = connect(watched.url)
    await broker.announce([ids(1)])
    assert deliveries(tuple(await broker.receive(count=1, wait_seconds=1))) == ids(1)
    assert watched.primary.client.exists("relay.deliveries")


async def test_a_primary_that_dies_is_left_for_its_successor(watched: Watched, connect: Connect) -> None:
    broker = connect(watched.url)
    await broker.announce([ids(1)])
    (message,) = await broker.receive(count=1, wait_seconds=1)
    waiting = asyncio.create_task(broker.receive(count=1, wait_seconds=LONGEST_WAIT_SECONDS))
    await blocked(watched.primary)
    watched.replicate()
    watched.primary.kill()
    with pytest.raises(BrokerUnavailable):
        await waiting
    await works_again(broker)
    assert ids(1, first=99)[0] in deliveries(tuple(await broker.receive(count=9, wait_seconds=1)))
    assert message in await broker.reclaim(idle_seconds=0, count=9)  # the successor knows what was pending


async def test_a_primary_that_hangs_is_left_for_its_successor(watched: Watched, connect: Connect) -> None:
    """C134: its connections stay open and say nothing."""
    broker = connect(watched.url)
    await broker.announce([ids(1)])
    await broker.receive(count=1, wait_seconds=1)
    waiting = asyncio.create_task(broker.receive(count=1, wait_seconds=1))
    await blocked(watched.primary)
    watched.primary.freeze()
    with pytest.raises(BrokerUnavailable):
        await waiting
    await works_again(broker)
    assert ids(1, first=99)[0] in deliveries(tuple(await broker.receive(count=9, wait_seconds=1)))
    assert watched.replica.client.info("replication")["role"] == "master"


async def test_a_primary_that_is_demoted_is_left_for_its_successor(watched: Watched, connect: Connect) -> None:
    """It still answers, with READONLY."""
    broker = connect(watched.url)
    await broker.announce([ids(1)])
    watched.replicate()
    watched.sentinel.client.execute_command("SENTINEL", "FAILOVER", "mymaster")

    async def demoted() -> bool:
        return bool(watched.primary.client.info("replication")["role"] == "slave")

    await eventually(demoted, FAILOVER_SECONDS, "the primary is demoted")
    await works_again(broker)
    assert deliveries(tuple(await broker.receive(count=9, wait_seconds=1)))[:1] == ids(1)
    assert watched.replica.client.info("replication")["role"] == "master"


async def test_a_name_that_no_sentinel_knows_is_told(watched: Watched, connect: Connect) -> None:
    with pytest.raises(BrokerUnavailable, match=r"no Sentinel answers, or takes .*, or knows a primary of this name"):
        await connect(f"redis+sentinel://{LOOPBACK}:{watched.sentinel.port}/other").standing()


async def test_a_server_that_is_taken_for_a_sentinel_is_told(watched: Watched, connect: Connect) -> None:
    with pytest.raises(BrokerUnavailable, match="is no Sentinel: write redis://"):
        await connect(f"redis+sentinel://{LOOPBACK}:{watched.primary.port}/mymaster").standing()


async def test_a_sentinel_that_is_taken_for_a_server_is_told(watched: Watched, connect: Connect) -> None:
    broker = connect(watched.sentinel.url)
    for call in (broker.announce([ids(1)]), broker.receive(count=1, wait_seconds=0), broker.standing()):
        with pytest.raises(BrokerUnavailable, match=r"knows no streams: if it is a Sentinel, write redis\+sentinel://"):
            await call


async def test_sentinels_that_are_all_away_are_told(connect: Connect) -> None:
    with pytest.raises(BrokerUnavailable, match="no Sentinel answers"):
        await connect(f"redis+sentinel://{LOOPBACK}:{free_port()},{LOOPBACK}:{free_port()}/mymaster").standing()
