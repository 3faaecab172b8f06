"""From nothing to a server that answers, and back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from relay.embedded import EmbeddedFault, EmbeddedServer, running_dsn
from relay.embedded.postmaster import Postmaster, wait_until
from tests.embedded.conftest import READY_SECONDS, fetch, rows

Make = Callable[..., EmbeddedServer]


async def test_a_missing_folder_becomes_a_database_that_answers_its_owner(data: Path, make_server: Make) -> None:
    server = make_server(data)
    server.start()
    assert await fetch(server.dsn, "SELECT current_user, current_database()") == [("relay", "relay")]


async def test_what_was_committed_is_there_after_a_restart(used: Path, make_server: Make) -> None:
    server = make_server(used)
    server.start()
    before = server.dsn
    await fetch(before, "CREATE TABLE kept AS SELECT 1 AS n")
    server.stop()
    server.start()
    assert server.dsn == before
    assert await fetch(before, "SELECT n FROM kept") == [(1,)]


def test_a_stopped_server_leaves_no_process_and_no_address(used: Path, make_server: Make) -> None:
    server = make_server(used)
    server.start()
    pid = server.pid
    server.stop()
    assert running_dsn(used) is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(EmbeddedFault, match="not started"):
        assert server.dsn


def test_start_and_stop_may_be_repeated(used: Path, make_server: Make) -> None:
    server = make_server(used)
    server.stop()
    server.start()
    pid = server.pid
    server.start()
    assert server.pid == pid
    server.stop()
    server.stop()


def test_the_person_who_waits_is_told_what_takes_time(data: Path, make_server: Make) -> None:
    lines: list[str] = []
    make_server(data).start(lines.append)
    told = "\n".join(lines)
    assert "creating a database in" in told
    assert "starting PostgreSQL 18" in told
    assert lines[-1].endswith(f"is ready in {data / 'pg' / 'r1'}")


def test_a_server_that_dies_is_noticed_and_can_be_started_again(used: Path, make_server: Make) -> None:
    server = make_server(used)
    assert not server.alive()
    server.start()
    assert server.alive()
    address = server.dsn
    os.kill(server.pid, signal.SIGKILL)
    assert wait_until(lambda: not server.alive(), READY_SECONDS)
    server.stop()
    server.start()
    assert server.alive()
    assert server.dsn == address


def test_another_process_finds_the_running_server(shared: EmbeddedServer) -> None:
    assert running_dsn(data_dir_of(shared)) == shared.dsn


def test_a_folder_without_a_server_has_no_address(data: Path) -> None:
    assert running_dsn(data) is None


def test_a_signal_from_the_terminal_does_not_reach_the_server(shared: EmbeddedServer) -> None:
    # Ctrl-C goes to the foreground process group of the terminal's session.
    assert os.getsid(shared.pid) == shared.pid
    assert os.getpgid(shared.pid) == shared.pid


async def test_a_database_can_be_made_in_a_folder_with_an_odd_name(data: Path, make_server: Make) -> None:
    server = make_server(data / "it's größe, 50% #1")
    server.start()
    assert await fetch(server.dsn, "SELECT 1") == [(1,)]


@pytest.mark.parametrize("name", ["with space", "größe", "it's", "50% #1", "a,b", "x" * 120, 'say "hi"', "back\\slash"])
def test_a_folder_may_be_renamed_to_anything(used: Path, make_server: Make, name: str) -> None:
    renamed = used.rename(used.with_name(name))
    server = make_server(renamed)
    server.start()
    assert rows(server.dsn, "SELECT 1") == [(1,)]
    assert running_dsn(renamed) == server.dsn


async def test_a_server_that_does_not_stop_in_time_is_stopped_hard_and_loses_nothing(
    used: Path, make_server: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(used)
    server.start()
    await fetch(server.dsn, "CREATE TABLE kept AS SELECT 1 AS n")
    end = Postmaster.end

    def deaf(postmaster: Postmaster, how: signal.Signals, seconds: float) -> bool:
        return how is not signal.SIGINT and end(postmaster, how, seconds)

    monkeypatch.setattr(Postmaster, "end", deaf)
    server.stop()
    assert "immediate shutdown" in (used / "pg" / "r1.log").read_text()
    monkeypatch.undo()
    server.start()
    assert await fetch(server.dsn, "SELECT n FROM kept") == [(1,)]


async def test_clients_that_stay_connected_do_not_keep_the_server_from_stopping(used: Path, make_server: Make) -> None:
    server = make_server(used)
    server.start()
    client = await asyncpg.connect(server.dsn)
    server.stop()
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await client.execute("SELECT 1")
    client.terminate()


def test_a_server_that_cannot_be_woken_is_killed_in_the_end(
    used: Path, make_server: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.embedded.postmaster.Postmaster.go_on", lambda _: None)
    monkeypatch.setattr("relay.embedded.launching.FAST_STOP_SECONDS", 0.1)
    monkeypatch.setattr("relay.embedded.launching.HARD_STOP_SECONDS", 0.5)
    server = make_server(used)
    server.start()
    os.kill(server.pid, signal.SIGSTOP)
    server.stop()
    assert running_dsn(used) is None


def data_dir_of(server: EmbeddedServer) -> Path:
    return Path(server.dsn.partition("host=")[2].partition("/pg/")[0])
