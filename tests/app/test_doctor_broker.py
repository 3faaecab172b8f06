"""Claims about what `relay doctor` says of the broker, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from relay.app.doctor.broker import examine_broker, examine_strangers
from relay.app.doctor.findings import Level
from relay.broker import RedisStreams, read_address
from relay.settings import read
from relay.store.database import Database
from tests.support.dispatching import House
from tests.support.installation import LOOPBACK, free_port
from tests.support.stream_server import StreamServer, valkey


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StreamServer]:
    with StreamServer(valkey(), tmp_path) as running:
        yield running


async def examined(url: str) -> tuple[Level, str]:
    (finding,) = await examine_broker(read({"RELAY_BROKER_URL": url}))
    assert finding.check == "broker"
    return finding.level, finding.text


async def test_without_a_broker_there_is_nothing_to_examine() -> None:
    assert await examine_broker(read({})) == ()


async def test_a_broker_that_answers_is_told_with_what_it_holds(server: StreamServer) -> None:
    broker = RedisStreams(read_address(server.url), consumer="a", emit=lambda _: None)
    await broker.receive(count=1, wait_seconds=0)
    await broker.announce([[UUID(int=1)], [UUID(int=2)]])
    await broker.receive(count=1, wait_seconds=0)
    level, text = await examined(server.url)
    assert (level, text.partition(" at ")[2]) == (Level.OK, f"{server.url}: 1 unread and 1 pending messages")
    assert text.startswith("Valkey ")
    await broker.close()


async def test_the_examination_leaves_nothing_there(server: StreamServer) -> None:
    await examined(server.url)
    assert server.client.keys() == []


async def test_a_broker_that_is_away_is_a_fault_without_its_password() -> None:
    level, text = await examined(f"redis://:hunter2@{LOOPBACK}:{free_port()}")
    assert level is Level.FAULT
    assert "cannot be reached" in text
    assert text.endswith("deliveries are polled for meanwhile")
    assert "hunter2" not in text


async def test_a_broker_that_hangs_is_a_fault_within_the_check(server: StreamServer) -> None:
    server.freeze()
    level, text = await examined(server.url)
    assert (level, "did not answer within 3 s" in text) == (Level.FAULT, True)


async def test_a_broker_that_evicts_is_a_warning_with_what_to_set(server: StreamServer) -> None:
    server.client.config_set("maxmemory-policy", "allkeys-lfu")
    assert (await examined(server.url))[0] is Level.OK  # nothing is evicted without a bound
    server.client.config_set("maxmemory", "64mb")
    level, text = await examined(server.url)
    assert (level, "(allkeys-lfu): set maxmemory-policy noeviction" in text) == (Level.WARNING, True)


async def test_a_replica_is_a_fault(server: StreamServer) -> None:
    server.client.replicaof(LOOPBACK, free_port())
    level, text = await examined(server.url)
    assert (level, "is a replica" in text) == (Level.FAULT, True)


async def test_a_server_that_is_asked_for_tls_and_speaks_none_says_what_to_look_at(server: StreamServer) -> None:
    """It waits for the end of a command that never comes, as one behind a firewall does."""
    level, text = await examined(server.url.replace("redis://", "rediss://"))
    assert (level, "did not answer within 3 s; RELAY_BROKER_URL asks for TLS" in text) == (Level.FAULT, True)


async def test_a_stream_that_another_installation_uses_too_is_a_warning(
    server: StreamServer, database_dsn: str, database: Database
) -> None:
    house, settings = House(database_dsn, database), read({"RELAY_BROKER_URL": server.url})
    broker = RedisStreams(read_address(server.url), consumer="a", emit=lambda _: None)
    assert await examine_strangers(settings, database) == ()
    await house.events(2, await house.endpoint("https://receiver.invalid/"))
    async with database.connection() as connection:
        ours = [row[0] for row in await connection.fetch("select id from deliveries")]
    await broker.announce([ours])
    assert await examine_strangers(settings, database) == ()
    await broker.announce([[UUID(int=1)]])
    await broker.receive(count=9, wait_seconds=0)
    (finding,) = await examine_strangers(settings, database)
    assert (finding.check, finding.level) == ("broker", Level.WARNING)
    assert finding.text.startswith(f"1 of 3 deliveries that {server.url} names are not in this database: another")
    await broker.close()
