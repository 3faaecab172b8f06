"""Claims about Relay as the first process of a container, which the system treats unlike any other.

Signals for which the first process has no handler do not reach it, and the children of whoever dies become its own.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from relay.app.crew import KILLED_SECONDS
from tests.support.installation import (
    LOOPBACK,
    RELAY,
    START_SECONDS,
    STOP_SECONDS,
    TRUSTING_NOBODY,
    Installation,
    children,
    eventually,
    free_port,
    kill,
)

NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def _can_be_first() -> bool:
    if shutil.which(NAMESPACE[0]) is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False, timeout=STOP_SECONDS).returncode == 0


pytestmark = pytest.mark.skipif(not _can_be_first(), reason="this user may make no process namespace here")


class First:
    """A service that is the first process of its namespace, seen from outside; `parent` is that of its workers."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        (self.pid,) = children(process.pid)
        (self.parent,) = children(self.pid)

    def descendants(self) -> set[int]:
        """Everything in the namespace but the first process."""
        found: set[int] = set()
        parents = [self.pid]  # who becomes everybody's parent whose own is gone
        while parents:
            born = children(parents.pop())
            found.update(born)
            parents += born
        return found


def _start(installation: Installation, role: str) -> subprocess.Popen[str]:
    binds = {"RELAY_BIND": f"{LOOPBACK}:{free_port()}", "RELAY_METRICS_BIND": f"{LOOPBACK}:{free_port()}"}
    with (installation.folder / f"{role}.log").open("w") as log:
        return subprocess.Popen(
            [*NAMESPACE, str(RELAY), role],
            env=installation.environment | binds,
            cwd=installation.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


@asynccontextmanager
async def first(installation: Installation, role: str) -> AsyncIterator[First]:
    """A service that runs inside the block as the first process."""
    process = _start(installation, role)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await asyncio.to_thread(process.stdout.readline)
        started = json.loads(line)
        assert started["running"] == role
        yield First(process, started["url"])
    finally:
        process.kill()  # and with it, all that is in the namespace
        process.stdout.close()
        process.wait(KILLED_SECONDS)


each_role = pytest.mark.parametrize("role", ["gateway", "dispatcher"])


@each_role
async def test_the_first_process_stops_in_order_when_it_is_asked_to(installation: Installation, role: str) -> None:
    async with first(installation, role) as service:
        kill(service.pid, signal.SIGTERM)
        assert await asyncio.to_thread(service.process.wait, STOP_SECONDS) == 0


async def test_the_end_of_a_killed_service_is_told_as_a_failure(installation: Installation) -> None:
    async with first(installation, "dispatcher") as service:
        kill(service.parent, signal.SIGKILL)
        assert await asyncio.to_thread(service.process.wait, STOP_SECONDS) == 128 + signal.SIGKILL


@each_role
async def test_no_zombie_is_left_of_a_killed_worker(installation: Installation, role: str) -> None:
    async with first(installation, role) as service:
        await _lose_the_worker(service)


async def test_no_zombie_is_left_of_a_killed_workers_own_children(installation: Installation) -> None:
    async with first(installation, "gateway") as service:
        # its schema is compiled by a process of the worker's own
        async with httpx.AsyncClient(base_url=service.url, verify=TRUSTING_NOBODY, trust_env=False) as client:
            put = await client.put("/v1/schemas/order.paid/v1", json={"type": "object"})
        assert put.status_code == 201, put.text
        assert len(service.descendants()) > 2
        await _lose_the_worker(service)


async def _lose_the_worker(service: First) -> None:
    """Kill it, and return when it has a successor and everything that ended is collected. Raises `NotInTime`."""
    before = service.descendants() - {service.parent}
    for pid in children(service.parent):
        kill(pid, signal.SIGKILL)

    async def succeeded() -> bool:
        now = service.descendants()
        return len(now - before) > 1 and not now & before

    await eventually(succeeded, START_SECONDS, "a successor is there, and nothing of the killed one")
