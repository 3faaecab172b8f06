"""A fleet whose broker and whose dispatchers are lost in the middle of everything loses no delivery."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relay.broker.address import STREAM
from tests.support.accounting import assert_complete
from tests.support.installation import (
    BRIEF_LEASE,
    LOOPBACK,
    Installation,
    Service,
    add_endpoint,
    api,
    cpu_seconds,
    eventually,
    free_port,
    kill,
    metrics,
    replaced,
)
from tests.support.producer import Producer, numbered
from tests.support.receiver import Receiver
from tests.support.stream_server import StreamServer, valkey

EVENTS = 6_000
DEADLINE = 120.0
BUSY_SHARE = 0.3
"""Of a core, and several times what fifty deliveries a second cost on a quiet machine."""

QUICK = {"broker_sweep_secs": "2", "poll_secs": "0.5"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[StreamServer]:
    """A server of this test alone."""
    with StreamServer(valkey(), tmp_path / "broker") as running:
        yield running


@pytest.fixture
def fleet(installation: Installation, broker: StreamServer) -> Installation:
    """An installation whose dispatchers have a broker."""
    installation.environment |= {f"RELAY_{key.upper()}": value for key, value in QUICK.items()}
    installation.environment["RELAY_BROKER_URL"] = broker.url
    return installation


async def in_mode(dispatcher: Service, mode: int) -> None:
    """Return when a dispatcher has its deliveries through the broker (1), or polls for them (0)."""

    async def is_in_it() -> bool:
        return metrics(dispatcher)["relay_broker_mode"] == mode

    await eventually(is_in_it, DEADLINE, f"{dispatcher} is in mode {mode}")


async def emptied(broker: StreamServer) -> None:
    """Return when nothing is in the stream any more, and nothing pending for anybody."""

    async def is_empty() -> bool:
        groups = broker.client.xinfo_groups(STREAM)
        return not broker.client.xlen(STREAM) and not sum(group["pending"] for group in groups)

    await eventually(is_empty, DEADLINE, "the stream and its pending list are empty")


def readiness(dispatcher: Service) -> tuple[int, str]:
    """What a dispatcher says of its broker, beside its metrics."""
    with api(dispatcher) as client:
        answer = client.get("/readyz")
    return answer.status_code, answer.json()["checks"]["broker"]


async def test_a_broker_flushed_three_times_a_dispatcher_killed_and_one_stopped_lose_nothing(
    fleet: Installation, broker: StreamServer, receiver: Receiver
) -> None:
    """C130, and one dispatcher stands still beyond its lease: the one that announces, being the first."""
    gateway = fleet.gateway(workers="2")
    stalled = fleet.dispatcher(**BRIEF_LEASE)
    await in_mode(stalled, 1)
    killed, steady = fleet.dispatcher(**BRIEF_LEASE), fleet.dispatcher(**BRIEF_LEASE)
    for number in range(4):
        add_endpoint(gateway, receiver.url(f"/ok/{number}"), event_types=[f"load.{number}"])
    await fleet.all_answering()
    events = [
        each for number in range(4) for each in numbered(EVENTS // 4, prefix=f"e{number}", event_type=f"load.{number}")
    ]
    producer = Producer([gateway.url], connections=32)
    await asyncio.gather(in_mode(killed, 1), in_mode(steady, 1))
    began = time.monotonic()
    posting = asyncio.create_task(producer.post(events, DEADLINE))

    await producer.has_accepted(EVENTS // 8, DEADLINE)
    broker.client.flushall()
    standing_still = stalled.worker()
    kill(standing_still, signal.SIGSTOP)
    stopped_at = time.monotonic()
    await producer.has_accepted(EVENTS // 3, DEADLINE)
    dead = killed.worker()
    kill(dead, signal.SIGKILL)
    broker.client.flushall()
    await producer.has_accepted(EVENTS * 2 // 3, DEADLINE)
    broker.client.flushall()
    await posting
    took = time.monotonic() - began
    await replaced(killed, dead)

    async def lease_is_over() -> bool:
        return time.monotonic() - stopped_at > float(BRIEF_LEASE["lease_secs"]) + 5

    await eventually(lease_is_over, DEADLINE, "the stopped one has lost its lease")
    kill(standing_still, signal.SIGCONT)
    await fleet.all_closed(EVENTS, DEADLINE)
    arrivals = receiver.received()
    assert_complete(arrivals, producer.accepted, events)
    await emptied(broker)
    doubles = len(arrivals) - EVENTS
    print(f"{EVENTS / took:.0f} events/s accepted, {doubles} sent twice")  # noqa: T201 - to read
    assert await fleet.value("select sum(attempts) from deliveries") >= len(arrivals)
    # what came twice is on record as an attempt that its sender never saw answered
    assert doubles <= await fleet.value("select count(*) from delivery_attempts where error_class is not null")


def restart(broker: StreamServer) -> None:
    """It comes back with nothing of what it had."""
    broker.kill()
    broker.start()


LOSSES: tuple[Callable[[StreamServer], object], ...] = (
    lambda broker: broker.client.flushall(),
    lambda broker: broker.client.xgroup_destroy(STREAM, "dispatchers"),
    lambda broker: broker.client.delete(STREAM),
    restart,
)


async def test_every_way_of_losing_the_stream_is_mended_without_a_restart(
    fleet: Installation, broker: StreamServer, receiver: Receiver
) -> None:
    """C130: five hundred are queued behind a rate; the stream is flushed, its group destroyed, it is deleted, and the
    server comes back empty. Nothing goes round in circles, and the log has a few lines of it."""
    gateway = fleet.gateway()
    dispatchers = [fleet.dispatcher(), fleet.dispatcher()]
    await asyncio.gather(*(in_mode(each, 1) for each in dispatchers))
    add_endpoint(gateway, receiver.url(), rate_per_second=50, burst=20)
    await fleet.all_answering()
    events = numbered(500)
    producer = Producer([gateway.url])
    await producer.post(events, DEADLINE)
    spent = {each: cpu_seconds(each.worker()) for each in dispatchers}
    began = time.monotonic()
    for number, lose in enumerate(LOSSES, 1):
        await receiver.arrive(100 * number, DEADLINE)
        lose(broker)
    await fleet.all_closed(500, DEADLINE)
    passed = time.monotonic() - began
    arrivals = receiver.received()
    assert_complete(arrivals, producer.accepted, events)
    assert len(arrivals) == 500, "double-fed ids are sent once"
    await asyncio.gather(*(in_mode(each, 1) for each in dispatchers))
    await emptied(broker)
    for dispatcher in dispatchers:
        told = [line for line in dispatcher.log.read_text().splitlines() if '"broker_' in line]
        assert 0 < len(told) <= 12, told
        assert (cpu_seconds(dispatcher.worker()) - spent[dispatcher]) / passed < BUSY_SHARE


async def test_a_broker_that_hangs_is_done_without_and_used_again_when_it_answers(
    fleet: Installation, broker: StreamServer, receiver: Receiver
) -> None:
    """C134: the connection stays open and nobody answers, in the middle of a read that waits for nothing."""
    gateway, dispatcher = fleet.gateway(), fleet.dispatcher()
    add_endpoint(gateway, receiver.url())
    await in_mode(dispatcher, 1)
    assert readiness(dispatcher) == (200, "ok")
    broker.freeze()
    await in_mode(dispatcher, 0)
    status, says = readiness(dispatcher)
    assert (status, says.startswith("deliveries are polled for: ")) == (503, True)
    await Producer([gateway.url]).post(numbered(100, prefix="without"), DEADLINE)
    await fleet.all_closed(100, DEADLINE)
    broker.thaw()
    await in_mode(dispatcher, 1)
    await Producer([gateway.url]).post(numbered(100, prefix="with"), DEADLINE)
    await fleet.all_closed(200, DEADLINE)
    assert len(receiver.received()) == 200
    log = dispatcher.log.read_text()
    assert log.count('"broker_mode_changed"') == 3


async def test_a_primary_that_is_demoted_is_done_without_and_used_again_when_it_is_promoted(
    fleet: Installation, broker: StreamServer, receiver: Receiver
) -> None:
    """Failed over by hand, and the url still names it: it answers what it holds, and the log has one line of each."""
    gateway, dispatcher = fleet.gateway(), fleet.dispatcher()
    add_endpoint(gateway, receiver.url())
    await in_mode(dispatcher, 1)
    broker.client.replicaof(LOOPBACK, free_port())
    for number in range(1, 5):
        await Producer([gateway.url]).post(numbered(50, prefix=f"without-{number}"), DEADLINE)
        await fleet.all_closed(50 * number, DEADLINE)
        await in_mode(dispatcher, 0)
    broker.client.replicaof("NO", "ONE")
    await in_mode(dispatcher, 1)
    await Producer([gateway.url]).post(numbered(100, prefix="with"), DEADLINE)
    await fleet.all_closed(300, DEADLINE)
    assert len(receiver.received()) == 300
    assert dispatcher.log.read_text().count('"broker_mode_changed"') == 3


async def test_a_dispatcher_that_is_stopped_returns_what_it_has_read(
    fleet: Installation, broker: StreamServer, receiver: Receiver
) -> None:
    gateway = fleet.gateway()
    first = fleet.dispatcher(**BRIEF_LEASE)
    await in_mode(first, 1)
    add_endpoint(gateway, receiver.url("/slow?ms=200"), max_in_flight=8)
    await Producer([gateway.url]).post(numbered(200), DEADLINE)
    await receiver.arrive(20, DEADLINE)
    fleet.dispatcher(**BRIEF_LEASE)
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    await fleet.all_closed(200, DEADLINE)
    assert len(receiver.received()) == 200
    await emptied(broker)
