"""Claims about a parent and its workers, with real processes."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import httpx
import pytest

from tests.support.database import Server
from tests.support.installation import (
    GONE_SECONDS,
    LOOPBACK,
    START_SECONDS,
    Installation,
    Service,
    eventually,
    free_port,
    kill,
)


def successor_of(service: Service, pid: int) -> Callable[[], Awaitable[int]]:
    async def ask() -> int:
        now = service.workers().get(0, pid)
        return 0 if now == pid else now

    return ask


def answers(url: str) -> Callable[[], Awaitable[bool]]:
    async def ask() -> bool:
        async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
            try:
                return (await client.get(url)).is_success
            except httpx.TransportError:
                return False

    return ask


async def test_a_killed_worker_is_replaced_and_its_port_never_refuses(testkit: Service) -> None:
    pid = testkit.worker()

    kill(pid, signal.SIGKILL)
    async with httpx.AsyncClient(trust_env=False, timeout=START_SECONDS) as client:
        # nobody listens at this moment, but the socket is the parent's: the connection waits for the successor
        assert (await client.get(f"{testkit.url}/received")).is_success

    assert await successor_of(testkit, pid)()


async def test_a_worker_that_somebody_stops_is_replaced_too(testkit: Service) -> None:
    pid = testkit.worker()
    kill(pid, signal.SIGTERM)
    assert await eventually(successor_of(testkit, pid), START_SECONDS, "a successor")


async def test_the_end_of_a_worker_is_told_with_its_cause(testkit: Service) -> None:
    pid = testkit.worker()
    kill(pid, signal.SIGKILL)
    await eventually(successor_of(testkit, pid), START_SECONDS, "a successor")
    assert "receiver was ended by signal SIGKILL; the next one starts in 0.2 s" in testkit.log.read_text()


async def test_workers_do_not_outlive_a_killed_parent(alone: Installation, testkit: Service) -> None:
    testkit.signal(signal.SIGKILL)
    testkit.wait()
    await alone.no_strays()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
async def test_a_signal_stops_parent_and_worker_with_status_0(
    alone: Installation, testkit: Service, number: signal.Signals
) -> None:
    testkit.signal(number)
    assert testkit.wait() == 0
    assert alone.processes() == []


async def test_a_worker_that_cannot_stop_is_killed_by_a_second_signal(alone: Installation, testkit: Service) -> None:
    kill(testkit.worker(), signal.SIGSTOP)
    testkit.signal(signal.SIGINT)

    async def closed() -> bool:
        return not await answers(testkit.url)()

    await eventually(closed, GONE_SECONDS, "the socket is closed")

    # a signal that comes at once is taken for the first one; so this one is sent until it is heeded
    async def ended() -> bool:
        if testkit.is_running():
            testkit.signal(signal.SIGINT)
        return not testkit.is_running()

    await eventually(ended, GONE_SECONDS, "the service has ended")
    assert testkit.wait() == 0
    assert alone.processes() == []
    assert "did not stop in time and is killed" in testkit.log.read_text()


async def test_a_start_that_is_refused_is_told_once_and_leaves_no_worker(
    database_server: Server, alone: Installation
) -> None:
    await database_server.run("create database relay_never_migrated")
    try:
        environment = alone.environment | {
            "DATABASE_URL": database_server.dsn("relay_never_migrated"),
            "RELAY_SECRET_KEYS": "kfZbZCwrqZg0cxyVZxVGmOn9KdVsz8jzbz8BPzrWmv8=",
            "RELAY_METRICS_BIND": f"{LOOPBACK}:{free_port()}",
            "RELAY_WORKERS": "3",
        }
        service = Service("dispatcher", ("dispatcher",), environment, alone.folder / "dispatcher.log")
        alone.services.append(service)
        service.start()

        assert service.wait(START_SECONDS) == 1
        lines = service.log.read_text().splitlines()
        assert [line for line in lines if "relay migrate" in line] == lines
        assert len(lines) == 1
        assert alone.processes() == []
    finally:
        await database_server.run("drop database relay_never_migrated with (force)")
