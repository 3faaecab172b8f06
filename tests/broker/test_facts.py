"""What a server says of itself, read without leaving a trace, on real servers of each kind."""

from __future__ import annotations

from collections.abc import Callable

from relay.broker import RedisStreams, ServerFacts
from tests.support.installation import LOOPBACK, free_port
from tests.support.stream_server import StreamServer


async def test_a_server_tells_what_it_is_and_when_it_evicts(
    own_server: Callable[..., StreamServer], connect: Callable[..., RedisStreams]
) -> None:
    server = own_server("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
    facts = await connect(server.url).facts()
    name, _, version = facts.server.partition(" ")
    assert server.client.info("server")[f"{name.lower()}_version"] == version
    assert facts == ServerFacts(facts.server, is_replica=False, eviction="allkeys-lru", memory_bound=64 << 20)


async def test_a_replica_says_so(own_server: Callable[..., StreamServer], connect: Callable[..., RedisStreams]) -> None:
    server = own_server("--replicaof", f"{LOOPBACK} {free_port()}")
    assert (await connect(server.url).facts()).is_replica


async def test_who_asks_for_facts_makes_nothing(
    own_server: Callable[..., StreamServer], connect: Callable[..., RedisStreams]
) -> None:
    server = own_server()
    broker = connect(server.url)
    await broker.facts()
    await broker.standing()
    await broker.close()
    assert server.client.keys() == []
