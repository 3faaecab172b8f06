"""Starts after something was killed at a bad moment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from relay.embedded import EmbeddedServer, ServerInUse, StartFailed, postmaster, running_dsn
from relay.embedded.log import LogFile, Trimmer
from relay.embedded.postmaster import look_up, orphans, wait_until
from relay.embedded.programs import find_programs
from tests.embedded.conftest import READY_SECONDS, fetch, holder, rows
from tests.support.said import said

Make = Callable[..., EmbeddedServer]
ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000000000)"


@contextlib.contextmanager
def stranger(cluster: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Some other process of the same user as the server's."""
    owner = cluster.stat()
    process = subprocess.Popen(
        ["sleep", "600"], user=owner.st_uid, group=owner.st_gid, extra_groups=[] if os.geteuid() == 0 else None
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def kill(server: EmbeddedServer) -> None:
    """Kill the server and let go of it, as a Relay process does that is killed with it."""
    os.kill(server.pid, signal.SIGKILL)
    assert wait_until(lambda: look_up(server.pid) is None, READY_SECONDS)
    server.stop()


async def test_after_kill_9_what_was_committed_is_there_and_the_rest_is_not(used: Path, make_server: Make) -> None:
    server = make_server(used)
    server.start()
    await fetch(server.dsn, "CREATE TABLE events AS SELECT 'committed' AS what")
    client = await asyncpg.connect(server.dsn)
    await client.execute("BEGIN")
    await client.execute("INSERT INTO events VALUES ('not committed')")
    kill(server)
    client.terminate()
    server.start()
    assert await fetch(server.dsn, "SELECT what FROM events") == [("committed",)]


async def test_a_recovery_is_reported_while_it_goes_on(used: Path, make_server: Make) -> None:
    server = make_server(used)
    server.start()
    await fetch(server.dsn, "CREATE TABLE events AS SELECT generate_series(1, 100000) AS n")
    kill(server)
    lines: list[str] = []
    server.start(lines.append)
    assert any(line.startswith("recovering: database system was interrupted") for line in lines)
    assert any(line.startswith("recovering: redo starts at") for line in lines)


@pytest.mark.parametrize("again", ["server", "socket"])
def test_the_number_of_a_killed_server_may_belong_to_another_process(used: Path, make_server: Make, again: str) -> None:
    cluster, sockets = used / "pg" / "r1", used / "pg" / "r1.run"
    with stranger(cluster) as other:
        leftover = f"{other.pid}\n{cluster}\n1700000000\n5432\n{sockets}\n\n  5432001 1\nready   \n"
        if again == "server":
            (cluster / "postmaster.pid").write_text(leftover)
            os.chown(cluster / "postmaster.pid", cluster.stat().st_uid, -1)
        else:
            sockets.mkdir()
            (sockets / ".s.PGSQL.5432.lock").write_text(leftover)
        assert running_dsn(used) is None
        make_server(used).start()
        assert other.poll() is None


def test_a_killed_server_that_nobody_collected_does_not_keep_the_next_from_starting(
    used: Path, make_server: Make
) -> None:
    cluster = used / "pg" / "r1"
    with stranger(cluster) as other:
        other.kill()
        assert wait_until(lambda: look_up(other.pid) is None, READY_SECONDS)
        (cluster / "postmaster.pid").write_text(f"{other.pid}\n{cluster}\n")
        make_server(used).start()


def test_half_a_process_number_file_does_not_keep_the_server_from_starting(used: Path, make_server: Make) -> None:
    (used / "pg" / "r1" / "postmaster.pid").write_text("")
    make_server(used).start()


def test_children_that_outlive_a_killed_server_are_ended(
    used: Path, make_server: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.embedded.launching.ORPHAN_SECONDS", 0.3)
    server = make_server(used)
    server.start()
    ((name,),) = rows(server.dsn, "SHOW cluster_name")
    with subprocess.Popen([find_programs().path("psql"), server.dsn, "-c", ENDLESS], stderr=subprocess.PIPE) as client:
        busy = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%generate_series%' AND pid <> pg_backend_pid()"
        assert wait_until(lambda: len(rows(server.dsn, busy)) == 1, READY_SECONDS)
        ((child,),) = rows(server.dsn, busy)
        assert isinstance(child, int)
        assert orphans(str(name)) == []
        kill(server)
        assert wait_until(lambda: orphans(str(name)) == [child], READY_SECONDS)
        server.start()
        assert look_up(child) is None
        client.communicate(timeout=READY_SECONDS)
        assert client.returncode != 0


async def test_a_server_whose_relay_was_killed_is_taken_over(used: Path, make_server: Make) -> None:
    with holder(used) as relay:
        address = running_dsn(used)
        assert address is not None
        relay.kill()
        relay.wait()
    (before,) = await fetch(address, "SELECT pg_postmaster_start_time()")
    server = make_server(used)
    server.start()
    assert server.dsn == address
    assert await fetch(server.dsn, "SELECT pg_postmaster_start_time()") == [before]
    pid = server.pid
    server.stop()
    assert look_up(pid) is None


async def test_a_server_left_running_with_other_settings_is_started_anew(used: Path, make_server: Make) -> None:
    with holder(used) as relay:
        relay.kill()
        relay.wait()
    server = make_server(used, settings={"work_mem": "9MB"})
    server.start()
    assert await fetch(server.dsn, "SHOW work_mem") == [("9MB",)]


async def test_a_server_that_stops_while_relay_starts_is_waited_for(used: Path, make_server: Make) -> None:
    with holder(used) as relay:
        address = running_dsn(used)
        assert address is not None
        relay.kill()
        relay.wait()
    client = await asyncpg.connect(address)
    pid = int((used / "pg" / "r1" / "postmaster.pid").read_text().splitlines()[0])
    os.kill(pid, signal.SIGTERM)  # it waits for the client, and takes no new ones meanwhile
    assert wait_until(lambda: "stopping" in (used / "pg" / "r1" / "postmaster.pid").read_text(), READY_SECONDS)
    server = make_server(used)
    server.start()
    assert server.pid != pid
    assert await fetch(server.dsn, "SELECT 1") == [(1,)]
    client.terminate()


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from relay.embedded import EmbeddedServer, cluster

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(cluster, sys.argv[2], killed)
EmbeddedServer(Path(sys.argv[1])).start()
"""


@pytest.mark.parametrize("step", ["initialise", "create_roles", "publish"])
def test_a_database_whose_making_was_interrupted_is_made_anew(data: Path, make_server: Make, step: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, str(data), step], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (data / "pg" / "r1").exists()
    server = make_server(data)
    server.start()
    assert rows(server.dsn, "SELECT 1") == [(1,)]
    assert sorted(path.name for path in (data / "pg").iterdir() if path.is_dir()) == ["r1", "r1.run"]


def test_an_initdb_that_fails_leaves_nothing_half_made(
    data: Path, make_server: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.embedded.cluster.INITDB_SECONDS", 0.01)
    with pytest.raises(StartFailed, match="initdb took longer"):
        make_server(data).start()
    assert [path.name for path in (data / "pg").iterdir() if path.is_dir()] == ["r1.run"]


def test_a_server_that_says_nothing_is_given_up_with_the_end_of_its_log(
    used: Path, make_server: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.embedded.launching.SILENCE_SECONDS", -1.0)
    with pytest.raises(StartFailed, match=r"said nothing for .*r1\.log ends with:"):
        make_server(used).start()
    assert running_dsn(used) is None


def test_a_start_that_takes_too_long_for_somebody_can_be_given_up(used: Path, make_server: Make) -> None:
    patience = threading.Event()

    def lose_it(line: str) -> None:
        if line.startswith("starting"):
            patience.set()

    with pytest.raises(StartFailed, match="given up"):
        make_server(used).start(lose_it, give_up=patience)
    assert running_dsn(used) is None


def test_the_making_of_a_database_can_be_given_up_and_leaves_nothing(data: Path, make_server: Make) -> None:
    patience = threading.Event()

    def lose_it(line: str) -> None:
        if line.startswith("creating"):
            patience.set()

    with pytest.raises(StartFailed, match="initdb was given up"):
        make_server(data).start(lose_it, give_up=patience)
    assert [path.name for path in (data / "pg").iterdir() if path.is_dir()] == ["r1.run"]


@contextlib.contextmanager
def server_started_by_hand(cluster: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like a server without a folder among its words, and whose number the folder's file has."""
    owner = cluster.stat()
    process = subprocess.Popen(["postgres", "600"], executable="sleep", cwd="/", user=owner.st_uid, group=owner.st_gid)
    with process:
        try:
            (cluster / "postmaster.pid").write_text(f"{process.pid}\n{cluster}\n1700000000\n5432\n/\n\n1 1\nready\n")
            os.chown(cluster / "postmaster.pid", owner.st_uid, -1)
            yield process
        finally:
            process.kill()


def test_a_server_that_works_in_another_folder_is_left_alone(used: Path, make_server: Make) -> None:
    with server_started_by_hand(used / "pg" / "r1") as other:
        make_server(used).start()
        assert other.poll() is None


def test_a_server_whose_folder_is_hidden_is_neither_signalled_nor_run_beside(
    used: Path, make_server: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postmaster, "_working_folder", lambda _: None)
    with server_started_by_hand(used / "pg" / "r1") as other:
        with pytest.raises(ServerInUse, match=str(other.pid)):
            EmbeddedServer(used, settings={"work_mem": "5MB"}).start()
        assert other.poll() is None


def test_a_log_that_cannot_be_cut_now_is_cut_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries, cut = iter([OSError("no room"), None]), threading.Event()

    def trim(_: LogFile) -> None:
        fault = next(tries, None)
        if fault is not None:
            raise fault
        cut.set()

    monkeypatch.setattr("relay.embedded.log.TRIM_SECONDS", 0.01)
    monkeypatch.setattr(LogFile, "trim", trim)
    trimmer = Trimmer(LogFile(tmp_path / "r1.log"))
    assert cut.wait(READY_SECONDS)
    trimmer.stop()
    assert "no room" in said(caplog)


def test_a_start_that_is_interrupted_leaves_no_server(used: Path, make_server: Make) -> None:
    def interrupt(line: str) -> None:
        if line.startswith("recovering"):
            raise KeyboardInterrupt

    server = make_server(used)
    server.start()
    kill(server)
    with pytest.raises(KeyboardInterrupt):
        server.start(interrupt)
    assert running_dsn(used) is None
    server.start()


def test_a_recovery_has_an_end(used: Path, make_server: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.embedded.launching.RECOVERY_SECONDS", -1.0)
    with pytest.raises(StartFailed, match="did not come up in"):
        make_server(used).start()
    assert running_dsn(used) is None
