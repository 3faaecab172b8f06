"""Several Relay processes on one folder."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from relay.embedded import EmbeddedServer, ServerInUse, running_dsn
from tests.embedded.conftest import HOLDER, READY_SECONDS, holder, rows


def test_of_several_starts_at_once_one_wins_and_the_others_are_told_who(data: Path) -> None:
    data.mkdir()
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        # A loser ends by itself; the winner goes on until its input ends.
        first_lines = [start.stdout.readline() for start in starts if start.stdout is not None]
        (winner,) = [start for start, line in zip(starts, first_lines, strict=True) if line.startswith("up ")]
        losers = [start for start in starts if start is not winner]
        told = [start.communicate(timeout=READY_SECONDS)[1] for start in losers]
        assert [start.returncode for start in losers] == [1, 1]
        assert all(re.match(rf"ServerInUse: .*another Relay, process {winner.pid};", line) for line in told)
        winner.communicate(timeout=READY_SECONDS)
        assert winner.returncode == 0
    finally:
        for start in starts:
            with start:
                start.kill()


def test_a_start_beside_a_running_relay_leaves_that_alone(used: Path) -> None:
    with holder(used) as relay:
        address = running_dsn(used)
        assert address is not None
        with pytest.raises(ServerInUse, match=rf"already in the hands of another Relay, process {relay.pid}"):
            EmbeddedServer(used).start()
        assert rows(address, "SELECT 1") == [(1,)]
        relay.communicate(timeout=READY_SECONDS)
        assert relay.returncode == 0


def test_two_servers_in_one_process_need_two_folders(used: Path, make_server: Callable[..., EmbeddedServer]) -> None:
    make_server(used).start()
    with pytest.raises(ServerInUse):
        make_server(used).start()


def test_a_stopped_server_can_be_started_by_someone_else(
    used: Path, make_server: Callable[..., EmbeddedServer]
) -> None:
    server = make_server(used)
    server.start()
    server.stop()
    with holder(used):
        assert running_dsn(used) is not None


def test_the_server_does_not_keep_the_lock_of_a_killed_relay(
    used: Path, make_server: Callable[..., EmbeddedServer]
) -> None:
    with holder(used) as relay:
        relay.kill()
        relay.wait()
    assert running_dsn(used) is not None
    make_server(used).start()
