"""A broker that takes one thing and refuses or loses the next is done without, in a few lines, on a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from math import log2
from pathlib import Path

import pytest

from relay.broker import RedisStreams, read_address
from relay.dispatcher import consumer, mode
from relay.domain.telemetry import AttemptsRecorded, BrokerModeChanged
from tests.support.dispatching import TUNING, House
from tests.support.installation import LOOPBACK
from tests.support.receiver import Receiver
from tests.support.stream_server import StreamServer, valkey

REST, WINDOW = 0.1, 3.0
MOST_LOSSES = 2 + log2(1 + WINDOW / REST)
"""Each rest is twice the one before."""

COMMANDS = ("xreadgroup", "xautoclaim", "xack", "xdel", "xadd", "xrange", "eval")
USER = "relay"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StreamServer]:
    with StreamServer(valkey(), tmp_path) as running:
        running.client.acl_setuser(USER, enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all"])
        yield running


@asynccontextmanager
async def refusing(command: str, server: StreamServer) -> AsyncIterator[None]:
    server.client.execute_command("ACL", "SETUSER", USER, f"-{command}")
    yield
    server.client.execute_command("ACL", "SETUSER", USER, f"+{command}")


@asynccontextmanager
async def full(policy: str, server: StreamServer) -> AsyncIterator[None]:
    server.client.config_set("maxmemory-policy", policy)
    server.client.config_set("maxmemory", 1)
    yield
    server.client.config_set("maxmemory", 0)


@asynccontextmanager
async def flushed(server: StreamServer) -> AsyncIterator[None]:
    over = asyncio.Event()

    async def flush() -> None:
        while not over.is_set():
            server.client.flushall()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await over.wait()

    flushing = asyncio.create_task(flush())
    yield
    over.set()
    await flushing


TRIGGERS: dict[str, Callable[[StreamServer], AbstractAsyncContextManager[None]]] = {
    **{f"without {command}": partial(refusing, command) for command in COMMANDS},
    "full": partial(full, "noeviction"),
    "evicting": partial(full, "allkeys-lru"),
    "flushed": flushed,
}


def modes(house: House) -> list[bool]:
    return [told.active for told in house.heard(BrokerModeChanged)]


def attempted(house: House) -> int:
    return sum(len(told.attempts) for told in house.heard(AttemptsRecorded))


@pytest.mark.parametrize("trigger", TRIGGERS)
async def test_a_broker_that_comes_and_goes_is_left_alone_for_longer_each_time(
    house: House, receiver: Receiver, server: StreamServer, monkeypatch: pytest.MonkeyPatch, trigger: str
) -> None:
    for room, name in ((mode, "REST_SECONDS"), (consumer, "PROBE_SECONDS")):
        monkeypatch.setattr(room, name, REST)
    monkeypatch.setattr(mode, "LONGEST_REST_SECONDS", 2.0)
    monkeypatch.setattr(consumer, "RECLAIM_EVERY_SECONDS", 0.5)
    endpoint = await house.endpoint(receiver.url("/ok"))
    broker = RedisStreams(read_address(f"redis://{USER}:pw@{LOOPBACK}:{server.port}"), consumer="one", emit=house.ear)
    async with house.dispatching(replace(TUNING, sweep_seconds=1.0), broker=broker):
        await house.until(lambda: modes(house) == [True])
        sent = 0
        async with TRIGGERS[trigger](server):
            began = time.monotonic()
            while time.monotonic() - began < WINDOW:
                await house.events(5, endpoint)
                sent += 5
                await house.until(lambda: attempted(house) >= sent)  # noqa: B023 - it is over with this round
        assert modes(house).count(False) <= MOST_LOSSES, modes(house)
        await house.until(lambda: modes(house)[-1])
        await house.events(5, endpoint)
        await house.until(lambda: attempted(house) >= sent + 5)
    if trigger.startswith("without"):
        assert modes(house) == [True, False, True]  # a trial asks for what serving asks for
