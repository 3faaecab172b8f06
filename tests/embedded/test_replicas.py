"""Three servers that hold one database: they follow one another, and are one address."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from relay.embedded import EmbeddedReplicas, ServerInUse, running_dsn
from relay.embedded.layout import Layout
from relay.embedded.postmaster import Postmaster, look_up, pid_path
from relay.embedded.programs import environment, find_programs
from tests.embedded.conftest import READY_SECONDS, data_folder, rows

STREAMING = """
    SELECT application_name, sync_state FROM pg_stat_replication WHERE state = 'streaming' ORDER BY application_name
"""


@pytest.fixture(scope="module")
def three() -> Iterator[Path]:
    """The folder of three running servers, for tests that only look at them or write a little."""
    with data_folder() as folder:
        servers = EmbeddedReplicas(folder, 3, quorum=2)
        servers.start()
        try:
            yield folder
        finally:
            servers.stop()


def dsn_of(folder: Path) -> str:
    address = running_dsn(folder)
    assert address is not None
    return address


def pid_of(folder: Path, name: str) -> int:
    running = Postmaster.running(Layout(folder, name).cluster)
    assert running is not None
    return running.pid


def test_two_servers_follow_the_first_and_either_makes_the_quorum(three: Path) -> None:
    assert rows(dsn_of(three), STREAMING) == [("r2", "quorum"), ("r3", "quorum")]


async def test_a_commit_waits_for_one_of_the_two(three: Path) -> None:
    connection = await asyncpg.connect(dsn_of(three))
    try:
        await connection.execute("CREATE TABLE waited (n int)")
        with frozen_receivers(three, "r2", "r3"), pytest.raises(TimeoutError):
            await connection.execute("INSERT INTO waited VALUES (1)", timeout=0.5)
        with frozen_receivers(three, "r2"):
            await connection.execute("INSERT INTO waited VALUES (2)", timeout=READY_SECONDS)
    finally:
        await connection.close()


@contextlib.contextmanager
def frozen_receivers(folder: Path, *names: str) -> Iterator[None]:
    """Have these standbys hear nothing and say nothing; shorter than the primary's patience with them."""
    pids = [receiver_of(pid_of(folder, name)) for name in names]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def receiver_of(postmaster: int) -> int:
    processes = [look_up(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    (found,) = [
        process.pid
        for process in processes
        if process is not None and process.parent == postmaster and ": walreceiver" in process.words[0]
    ]
    return found


def test_the_address_is_of_whichever_takes_writes(three: Path) -> None:
    address = dsn_of(three)
    backwards = re.sub(r"host=([^&]*)", lambda found: "host=" + ",".join(reversed(found[1].split(","))), address)
    assert rows(backwards, "SELECT pg_is_in_recovery()") == [(False,)]


def test_the_address_is_understood_by_postgresql_s_own_programs(three: Path) -> None:
    command = [find_programs().path("psql"), "-XAtc", "SELECT pg_is_in_recovery()", dsn_of(three)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=30.0)
    assert done.stdout == "f\n"


def test_no_password_is_on_a_command_line_in_a_log_or_in_a_file_for_others(three: Path) -> None:
    passwords = re.findall(rb"[0-9a-f]{48}", (three / "pg" / "credentials.json").read_bytes())
    assert len(passwords) == 2
    lines = [content(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
    logs = [content(path) for path in (three / "pg").glob("r*.log")]
    assert not any(password in text for password in passwords for text in (*lines, *logs))
    files = [path for path in three.rglob("*") if any(password in content(path) for password in passwords)]
    assert {path.name for path in files} == {"credentials.json", "replication.pass"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended or went meanwhile, or is a folder or a socket
        return b""


def test_a_second_relay_on_the_folder_is_refused(three: Path) -> None:
    with pytest.raises(ServerInUse, match=rf"{re.escape(str(three / 'pg'))} is already in the hands of another Relay"):
        EmbeddedReplicas(three).start()


def test_a_start_tells_who_is_what_and_the_stop_leaves_nothing() -> None:
    with data_folder() as folder:
        told: list[str] = []
        servers = EmbeddedReplicas(folder, 3, quorum=2)
        servers.start(told.append)
        before = running_dsn(folder)
        servers.stop()
        assert told[-1] == "r1 is the primary; its standbys that stream: r2, r3"
        assert running_dsn(folder) is None
        assert [Postmaster.running(Layout(folder, name).cluster) for name in ("r1", "r2", "r3")] == [None] * 3
        servers.start()
        assert running_dsn(folder) == before
        servers.stop()


def test_servers_that_somebody_has_frozen_are_stopped_in_order_all_the_same() -> None:
    with data_folder() as folder:
        servers = EmbeddedReplicas(folder, 3, quorum=2)
        servers.start()
        try:
            for name in ("r2", "r3"):
                for pid in (pid_of(folder, name), *children_of(pid_of(folder, name))):
                    os.kill(pid, signal.SIGSTOP)
        finally:
            servers.stop()
        for name in ("r1", "r2", "r3"):
            assert "immediate shutdown" not in Layout(folder, name).log.read_text(encoding="utf-8")
            assert not pid_path(Layout(folder, name).cluster).exists()


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in listed.split()]
