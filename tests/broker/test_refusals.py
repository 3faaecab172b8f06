"""What a server refuses is told in words that say what to do, and is over as soon as it is over."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress

import pytest
import redis

from relay.broker import BrokerUnavailable, RedisStreams
from relay.broker.faults import unavailable
from tests.broker.grounds import deliveries, ids, writes
from tests.support.installation import LOOPBACK, eventually, free_port
from tests.support.stream_server import StreamServer

STREAM = "relay.deliveries"
OwnServer = Callable[..., StreamServer]
Connect = Callable[..., RedisStreams]


async def refuses(broker: RedisStreams, words: str) -> None:
    """Announcing fails with these words, and none of the ids."""
    with pytest.raises(BrokerUnavailable, match=words) as refused:
        await broker.announce([ids(1)])
    assert "XADD" not in str(refused.value)
    assert "\n" not in str(refused.value)


async def works(broker: RedisStreams) -> None:
    await broker.announce([ids(1)])
    (message,) = await broker.receive(count=1, wait_seconds=1)
    await broker.acknowledge([message.id])
    await broker.reclaim(idle_seconds=0, count=1)
    await broker.standing()


async def test_a_server_that_is_not_there_is_named(connect: Connect) -> None:
    port = free_port()
    await refuses(connect(f"redis://user:hunter2@{LOOPBACK}:{port}/1"), rf"^the broker at redis://{LOOPBACK}:{port}/1 ")


async def test_a_host_that_does_not_exist_is_named(connect: Connect) -> None:
    await refuses(connect("redis://nowhere.invalid"), "nowhere.invalid cannot be reached")


async def test_a_replica_takes_nothing_until_it_is_promoted(own_server: OwnServer, connect: Connect) -> None:
    server = own_server()
    broker = connect(server.url)
    await works(broker)
    server.client.replicaof(LOOPBACK, free_port())
    await refuses(broker, "is a replica, which takes no writes: RELAY_BROKER_URL must name the primary")
    with pytest.raises(BrokerUnavailable, match="is a replica"):
        await broker.receive(count=1, wait_seconds=0)
    server.client.replicaof("NO", "ONE")
    await works(broker)


async def test_a_server_that_takes_no_writes_answers_what_it_holds_and_nothing_else(
    own_server: OwnServer, connect: Connect
) -> None:
    """What `standing` answers is no sign that the broker serves."""
    server = own_server()
    broker = connect(server.url)
    await broker.announce([ids(1)])
    await broker.receive(count=1, wait_seconds=0)
    server.client.config_set("min-replicas-to-write", 1)
    assert (await broker.standing()).pending == 1
    for call in writes(broker):
        with pytest.raises(BrokerUnavailable, match="min-replicas-to-write"):
            await call
    server.client.config_set("min-replicas-to-write", 0)
    server.client.replicaof(LOOPBACK, free_port())
    assert (await broker.standing()).pending == 1
    for call in writes(broker):
        with pytest.raises(BrokerUnavailable, match="is a replica"):
            await call


async def test_a_read_that_waits_on_a_primary_that_is_demoted_ends(own_server: OwnServer, connect: Connect) -> None:
    server = own_server()
    broker = connect(server.url)
    await broker.receive(count=1, wait_seconds=0)
    waiting = asyncio.create_task(broker.receive(count=1, wait_seconds=5))

    async def waits() -> bool:
        return bool(server.client.info("clients")["blocked_clients"])

    await eventually(waits, 10, "the read waits")
    server.client.replicaof(LOOPBACK, free_port())
    with pytest.raises(BrokerUnavailable, match="is a replica"):
        await waiting


async def test_a_server_that_cannot_save_says_where_to_look(own_server: OwnServer, connect: Connect) -> None:
    server = own_server("--dbfilename", "occupied.rdb")
    broker = connect(server.url)
    await works(broker)
    folder = server.client.config_get("dir")["dir"]
    occupied = server.folder / "occupied.rdb"
    assert str(server.folder) == folder
    occupied.mkdir()
    server.client.config_set("save", "3600 1")
    server.client.bgsave()

    async def failed() -> bool:
        return bool(server.client.info("persistence")["rdb_last_bgsave_status"] == "err")

    await eventually(failed, 10, "the snapshot failed")
    await refuses(broker, "cannot save its snapshots: look at its disk")
    with pytest.raises(BrokerUnavailable, match="cannot save"):
        await broker.acknowledge(["1-0"])
    server.client.config_set("save", "")
    await works(broker)


async def test_a_full_server_says_so(own_server: OwnServer, connect: Connect) -> None:
    server = own_server()
    broker = connect(server.url)
    await broker.announce([ids(2)])
    server.client.config_set("maxmemory", 1)
    await refuses(broker, "is at its maxmemory")
    assert (await broker.standing()).unread == 0
    server.client.config_set("maxmemory", 0)
    await works(broker)


async def test_a_full_server_still_gives_what_it_has(own_server: OwnServer, connect: Connect) -> None:
    server = own_server()
    broker = connect(server.url)
    await broker.receive(count=1, wait_seconds=0)
    await broker.announce([ids(2)])
    server.client.config_set("maxmemory", 1)
    (message,) = await broker.receive(count=1, wait_seconds=0)
    await broker.acknowledge([message.id])
    assert message.deliveries == tuple(ids(2))


async def test_a_server_that_loads_is_waited_for(own_server: OwnServer, connect: Connect) -> None:
    server = own_server()
    broker = connect(server.url)
    await broker.announce([[each] for each in ids(3)])
    await broker.receive(count=0, wait_seconds=0)
    for number in range(200):
        server.client.set(f"k{number}", b"x" * 2000)
    server.client.save()
    server.kill()
    server.start("--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024", wait=False)

    async def loads() -> bool:
        try:
            await broker.announce([ids(1)])
        except BrokerUnavailable as refused:
            return "still loads its data from disk" in str(refused)
        raise AssertionError("it was too quick")

    await eventually(loads, 10, "it says that it loads")

    async def loaded() -> bool:
        with suppress(BrokerUnavailable):
            return bool(await broker.receive(count=3, wait_seconds=0))
        return False

    await eventually(loaded, 30, "it has loaded, with what it had")


async def test_a_password_that_is_missing_or_wrong_is_told_apart(own_server: OwnServer, connect: Connect) -> None:
    port = own_server("--requirepass", "hunter2").port
    await refuses(connect(f"redis://{LOOPBACK}:{port}"), "wants a password: put it into RELAY_BROKER_URL")
    await refuses(connect(f"redis://:wrong@{LOOPBACK}:{port}"), "does not take the user and password")
    await works(connect(f"redis://:hunter2@{LOOPBACK}:{port}"))


@pytest.mark.parametrize("database", [0, 1])
async def test_a_user_with_the_rights_that_are_asked_for_suffices(
    own_server: OwnServer, connect: Connect, database: int
) -> None:
    server = own_server()
    server.client.execute_command("ACL", "SETUSER", "relay", "on", ">pw", f"~{STREAM}", "+info")
    broker = connect(f"redis://relay:pw@{LOOPBACK}:{server.port}/{database}")
    with pytest.raises(BrokerUnavailable, match="does not let this user") as refused:
        await broker.announce([ids(1)])
    rights = re.findall(r"[~+]@?\w+(?:\.\w+)?", str(refused.value))
    server.client.execute_command("ACL", "SETUSER", "relay", *rights)
    await works(broker)
    await broker.close()
    server.client.select(database)
    assert server.client.xinfo_consumers(STREAM, "dispatchers") == []


async def test_a_key_that_holds_something_else_is_named(own_server: OwnServer, connect: Connect) -> None:
    server = own_server()
    broker = connect(server.url)
    server.client.set(STREAM, "hello")
    for call in (broker.announce([ids(1)]), broker.receive(count=1, wait_seconds=0), broker.standing()):
        with pytest.raises(BrokerUnavailable, match=f"keeps something else under the key {STREAM}"):
            await call
    await works(connect(f"{server.url}?stream=relay.second"))


async def test_a_stream_that_has_come_to_the_last_id_is_to_be_removed(own_server: OwnServer, connect: Connect) -> None:
    server = own_server()
    broker = connect(server.url)
    await works(broker)
    last = 2**64 - 1
    server.client.xadd(STREAM, {"a": "b"}, id=f"{last}-{last}")
    await broker.receive(count=1, wait_seconds=0)
    for call in (broker.announce([ids(1)]), broker.standing()):
        with pytest.raises(BrokerUnavailable, match=f"remove that key .DEL {STREAM}."):
            await call
    server.client.delete(STREAM)
    await works(broker)


async def test_two_streams_on_one_server_know_nothing_of_each_other(own_server: OwnServer, connect: Connect) -> None:
    server = own_server()
    first, second = connect(server.url), connect(f"{server.url}?stream=relay.second")
    other_database = connect(f"{server.url}/1")
    await first.announce([ids(1)])
    assert list(await second.receive(count=1, wait_seconds=0)) == []
    assert list(await other_database.receive(count=1, wait_seconds=0)) == []
    assert deliveries(tuple(await first.receive(count=1, wait_seconds=0))) == ids(1)


async def test_a_cluster_is_refused_with_what_to_use_instead(own_server: OwnServer, connect: Connect) -> None:
    server = own_server("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    await refuses(connect(server.url), "is a Redis Cluster, which Relay does not use")


async def test_no_room_for_a_connection_is_told(own_server: OwnServer, connect: Connect) -> None:
    server = own_server("--maxclients", "1")
    server.client.ping()
    await refuses(connect(server.url), "max number of clients reached")


@pytest.mark.parametrize("version", ["6.2.14", "5.0.7"])
async def test_an_old_server_is_refused_with_its_version(connect: Connect, version: str) -> None:
    facts = f"# Server\r\nredis_version:{version}\r\n".encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"server\r\n")
        writer.write(b"$%d\r\n%b\r\n" % (len(facts), facts))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        broker = connect(f"redis://{LOOPBACK}:{port}")
        await refuses(broker, rf"is Redis {version}, and Relay needs Redis 7\.0 or newer, or Valkey")
        await broker.close()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"E"])
async def test_what_was_reached_and_is_something_else_is_not_said_to_be_out_of_reach(
    connect: Connect, answer: bytes
) -> None:
    """A web server, or PostgreSQL, which hangs up; or what waits for a handshake of TLS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, LOOPBACK, 0) as server:
        broker = connect(f"redis://{LOOPBACK}:{server.sockets[0].getsockname()[1]}")
        await refuses(broker, "does not answer as Redis and Valkey do: something else is at that address, or it speaks")
        await broker.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"-ERR no thanks\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"$much\r\n",
        b":\xff\r\n",
        b"*x\r\n",
        b"*-7\r\n",
        b"+OK\r\n",
        b":7\r\n",
        b"-\xff\xfe\r\n",
    ],
)
async def test_a_server_that_is_no_redis_is_a_fault_and_no_bug(connect: Connect, answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        broker = connect(f"redis://{LOOPBACK}:{port}")
        await refuses(broker, "refused|cannot be reached|something else is at that address")
        await broker.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (redis.ResponseError("NOREPLICAS Not enough good replicas to write."), "min-replicas-to-write"),
        (redis.ResponseError("BUSY Redis is busy running a script."), "SCRIPT KILL"),
        (redis.exceptions.MovedError("1234 127.0.0.1:7001", status_code="MOVED"), "is a Redis Cluster"),
        (redis.exceptions.MasterDownError("Link with MASTER is down"), "MASTER is down"),
        (redis.ResponseError("ERR new\nwords"), "refused: ERR new words"),
        (redis.ConnectionError(), "cannot be reached: ConnectionError"),
        (redis.TimeoutError("Timeout connecting to server"), "did not answer within 3 s"),
    ],
)
def test_what_a_test_cannot_bring_about_has_its_words(error: Exception, words: str) -> None:
    told = unavailable(error, shown="redis://cache", stream=STREAM, bound=3.0)
    assert words in str(told)
