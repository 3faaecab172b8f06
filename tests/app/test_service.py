"""Claims about what a parent process does before its crews start, and what it watches afterwards."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from relay.app.crew import _signal
from relay.app.faults import CannotRun
from relay.app.roles import Role
from relay.app.service import _shared_numbers, sockets_of
from relay.app.up import Site
from relay.settings import read
from tests.support.installation import LOOPBACK, free_port

LIMIT_SECONDS = 10.0


def test_every_address_that_is_in_use_is_told_at_once_and_none_stays_bound() -> None:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server((LOOPBACK, 0))).getsockname()[1] for _ in range(2)]
        free = free_port()
        settings = read(
            {
                "RELAY_BIND": f"{LOOPBACK}:{taken[0]}",
                "RELAY_METRICS_BIND": f"{LOOPBACK}:{free}",
                "RELAY_TESTKIT_BIND": f"{LOOPBACK}:{taken[1]}",
            }
        )
        with pytest.raises(CannotRun) as refused:
            sockets_of([Role.RECEIVER, Role.DISPATCHER, Role.GATEWAY], settings)
        told = str(refused.value).splitlines()
        assert [f":{taken[1]} is in use" in told[0], f":{taken[0]} is in use" in told[1]] == [True, True]
        stack.enter_context(socket.create_server((LOOPBACK, free)))


def test_no_room_for_the_shared_numbers_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(CannotRun, match=r"nowhere.*TMPDIR"), _shared_numbers(Role.GATEWAY):
        pass


async def test_a_keeper_of_the_database_that_dies_of_a_bug_is_noticed() -> None:
    async def die() -> None:
        raise LookupError("a bug")

    site = Site("", "", None, None, crews=(), asks_for_keys=False, keeper=asyncio.create_task(die()))
    async with asyncio.timeout(LIMIT_SECONDS):
        with pytest.raises(LookupError):
            await site.watch()


async def test_whoever_stops_watching_leaves_the_keeper_at_work() -> None:
    keeper = asyncio.create_task(asyncio.Event().wait())
    site = Site("", "", None, None, asks_for_keys=False, crews=(), keeper=keeper)  # type: ignore[arg-type] # of a task, its end is all that counts
    watching = asyncio.create_task(site.watch())
    await asyncio.sleep(0)
    watching.cancel()
    await asyncio.wait([watching])
    assert not keeper.done()
    keeper.cancel()
    await asyncio.wait([keeper])


async def test_a_worker_that_is_told_twice_to_end_keeps_its_exit_status(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(10):
        process = await asyncio.create_subprocess_exec("sleep", "60")
        for _ in range(20):
            _signal(process, signal.SIGTERM)
        assert await process.wait() == -signal.SIGTERM
        _signal(process, signal.SIGTERM)
    assert caplog.records == []
