"""Three servers of which some die, vanish, or do not follow: what was committed stays, and all three come back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.embedded import DataFolderRefused, EmbeddedReplicas, StartFailed, running_dsn
from relay.embedded.layout import Layout
from relay.embedded.postmaster import Postmaster, look_up, wait_until
from relay.embedded.replication import REPLICAS, is_standby
from relay.embedded.standing import check_alone
from tests.embedded.conftest import READY_SECONDS, OtherUser, as_root, data_folder, rows

STREAMING = "SELECT application_name FROM pg_stat_replication WHERE state = 'streaming' ORDER BY application_name"


@pytest.fixture(scope="module")
def pristine_three() -> Iterator[Path]:
    """The folder of three stopped servers with a table of one row; to be copied only."""
    with data_folder() as folder:
        servers = EmbeddedReplicas(folder, 3, quorum=2)
        servers.start()
        rows(address(folder), "CREATE TABLE kept (n int)")
        write(folder)
        servers.stop()
        yield folder


@pytest.fixture
def folder(pristine_three: Path, data: Path) -> Path:
    """Such a folder for one test."""
    subprocess.run(["cp", "-a", str(pristine_three), str(data)], check=True)
    return data


@pytest.fixture
def servers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedReplicas]:
    """They run; each look at them asks about the standbys, too."""
    monkeypatch.setattr("relay.embedded.replicas.WATCH_SECONDS", 0.0)
    three = EmbeddedReplicas(folder, 3, quorum=2)
    three.start()
    try:
        yield three
    finally:
        three.stop()


def address(folder: Path) -> str:
    found = running_dsn(folder)
    assert found is not None
    return found


def write(folder: Path) -> None:
    """Add the next number; whoever returns from here has it confirmed."""
    rows(address(folder), "INSERT INTO kept SELECT count(*) + 1 FROM kept")


def kept(folder: Path) -> list[object]:
    return [row[0] for row in rows(address(folder), "SELECT n FROM kept ORDER BY n")]


def pid_of(folder: Path, name: str) -> int:
    running = Postmaster.running(Layout(folder, name).cluster)
    assert running is not None
    return running.pid


def kill(folder: Path, *names: str) -> None:
    """Kill these servers at one moment."""
    pids = [pid_of(folder, name) for name in names]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: all(look_up(pid) is None for pid in pids), READY_SECONDS)


def remove(folder: Path, name: str) -> None:
    """Remove a data folder, its server alive or not; a live one may put something there meanwhile."""
    cluster = Layout(folder, name).cluster
    cluster.rename(cluster.with_name("removed"))
    shutil.rmtree(cluster.with_name("removed"), ignore_errors=True)


def primary_of(folder: Path) -> list[str]:
    clusters = {name: Layout(folder, name).cluster for name in REPLICAS}
    return [name for name, cluster in clusters.items() if cluster.exists() and not is_standby(cluster)]


def all_stream(folder: Path, servers: EmbeddedReplicas, told: list[str] | None = None) -> bool:
    """Whether, looked after, two standbys stream in the end."""

    def look() -> bool:
        well = servers.mend((told if told is not None else []).append)
        return well and len(rows(address(folder), STREAMING)) == 2

    return wait_until(look, READY_SECONDS)


def test_a_standby_that_was_killed_is_started_again(folder: Path, servers: EmbeddedReplicas) -> None:
    kill(folder, "r2")
    told: list[str] = []
    assert all_stream(folder, servers, told)
    assert "the server r2 has died; starting it again" in told
    assert not any(line.startswith("copying") for line in told)


def test_a_standby_whose_folder_is_gone_is_copied_anew(folder: Path, servers: EmbeddedReplicas) -> None:
    remove(folder, "r3")
    told: list[str] = []
    assert all_stream(folder, servers, told)
    assert f"copying {folder / 'pg' / 'r1'} to {folder / 'pg' / 'r3'}" in told


def test_a_standby_that_does_not_start_is_copied_anew(folder: Path, servers: EmbeddedReplicas) -> None:
    kill(folder, "r3")
    control = folder / "pg" / "r3" / "global" / "pg_control"
    control.write_bytes(bytes(len(control.read_bytes())))
    told: list[str] = []
    assert all_stream(folder, servers, told)
    assert any(line.startswith("the standby r3 does not start, and is built anew") for line in told)


def test_a_primary_that_was_killed_is_started_in_its_place_with_all_that_it_had(
    folder: Path, servers: EmbeddedReplicas
) -> None:
    write(folder)
    kill(folder, "r1")
    assert all_stream(folder, servers)
    assert primary_of(folder) == ["r1"]
    assert kept(folder) == [1, 2]


def test_all_killed_at_once_come_back_as_they_were(folder: Path, servers: EmbeddedReplicas) -> None:
    write(folder)
    kill(folder, *REPLICAS)
    assert all_stream(folder, servers)
    assert primary_of(folder) == ["r1"]
    assert kept(folder) == [1, 2]


@pytest.mark.parametrize(("behind", "ahead"), [("r2", "r3"), ("r3", "r2")])
def test_when_the_primary_s_folder_is_gone_the_furthest_takes_over_and_the_others_follow(
    folder: Path, servers: EmbeddedReplicas, behind: str, ahead: str
) -> None:
    before = address(folder)
    kill(folder, behind)
    write(folder)  # confirmed by the other one alone
    remove(folder, "r1")
    told: list[str] = []
    assert all_stream(folder, servers, told)
    assert any(line.endswith(f"{ahead} becomes the primary") for line in told)
    assert primary_of(folder) == [ahead]
    assert rows(before, "SELECT n FROM kept ORDER BY n") == [(1,), (2,)]
    write(folder)


def test_whoever_was_not_promoted_follows_by_itself(folder: Path, servers: EmbeddedReplicas) -> None:
    third = pid_of(folder, "r3")
    remove(folder, "r1")
    assert all_stream(folder, servers)
    assert pid_of(folder, "r3") == third
    assert rows(address(folder), STREAMING) == [("r1",), ("r3",)]


def test_a_primary_that_goes_on_without_its_folder_is_ended_before_another_takes_over(
    folder: Path, servers: EmbeddedReplicas
) -> None:
    astray = pid_of(folder, "r1")
    remove(folder, "r1")
    servers.mend()
    assert look_up(astray) is None


def test_a_standby_that_does_not_answer_is_started_anew_to_be_compared(
    folder: Path, servers: EmbeddedReplicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.embedded.following.ASK_SECONDS", 0.5)
    monkeypatch.setattr("relay.embedded.launching.HARD_STOP_SECONDS", 0.5)
    frozen = pid_of(folder, "r3")
    os.kill(frozen, signal.SIGSTOP)
    remove(folder, "r1")
    told: list[str] = []
    assert all_stream(folder, servers, told)
    assert "r3 runs and does not answer: it gets a start anew" in told
    assert look_up(frozen) is None


def test_a_second_primary_may_be_lost_as_the_first(folder: Path, servers: EmbeddedReplicas) -> None:
    for _ in range(2):
        write(folder)
        (primary,) = primary_of(folder)
        remove(folder, primary)
        assert all_stream(folder, servers)
    assert kept(folder) == [1, 2, 3]


def test_one_standby_alone_is_not_promoted_but_by_a_person(folder: Path, servers: EmbeddedReplicas) -> None:
    kill(folder, "r1", "r2")
    remove(folder, "r1")
    remove(folder, "r2")
    with pytest.raises(DataFolderRefused, match=r"r1 and r2 in .* are gone, and r3 alone may lack .* remove (\S+) and"):
        servers.mend()
    servers.stop()
    (folder / "pg" / "r3" / "standby.signal").unlink()
    servers.start()
    assert all_stream(folder, servers)
    assert primary_of(folder) == ["r3"]
    assert kept(folder) == [1]


def test_a_standby_that_needs_what_its_primary_has_no_more_is_copied_anew(
    folder: Path, servers: EmbeddedReplicas
) -> None:
    superuser = servers.superuser_dsn("r1")
    rows(superuser, "ALTER SYSTEM SET max_slot_wal_keep_size = '48MB'")
    rows(superuser, "ALTER SYSTEM SET wal_keep_size = '0'")
    rows(superuser, "SELECT pg_reload_conf()")
    kill(folder, "r2")
    for _ in range(5):
        write(folder)
        rows(superuser, "SELECT pg_switch_wal()")
    rows(superuser, "CHECKPOINT")
    told: list[str] = []
    assert all_stream(folder, servers, told)
    assert "the standby r2 lacks what its primary has no more: it gets a new copy of the primary" in told


def test_a_standby_that_does_not_follow_is_started_and_then_copied_anew(
    folder: Path, servers: EmbeddedReplicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.embedded.following.STANDSTILL_SECONDS", 0.5)
    three = EmbeddedReplicas(folder, 3, quorum=2)  # which has the shorter patience
    servers.stop()
    three.start()
    rows(three.superuser_dsn("r2"), "ALTER SYSTEM SET primary_conninfo = 'host=/nowhere'")
    rows(three.superuser_dsn("r2"), "SELECT pg_reload_conf()")
    told: list[str] = []
    remedies = ["the standby r2 does not follow its primary: it gets a start anew"]
    remedies += ["the standby r2 does not follow its primary: it gets a new copy of the primary"]

    def copied() -> bool:
        three.mend(told.append)
        return remedies[1] in told

    assert wait_until(copied, READY_SECONDS)
    assert [line for line in told if "does not follow" in line] == remedies
    assert all_stream(folder, three)
    three.stop()


def test_an_installation_with_one_server_gets_two_more(used: Path) -> None:
    one = EmbeddedReplicas(used)
    one.start()
    rows(address(used), "CREATE TABLE kept AS SELECT 1 AS n")
    one.stop()
    three = EmbeddedReplicas(used, 3, quorum=2)
    three.start()
    assert rows(address(used), STREAMING) == [("r2",), ("r3",)]
    assert kept(used) == [1]
    three.stop()


@pytest.mark.parametrize("name", ["with space", "größe, it's 50% #1", "x" * 120])
def test_the_folder_of_three_may_be_renamed_to_anything(folder: Path, name: str) -> None:
    renamed = folder.rename(folder.with_name(name))
    remove(renamed, "r3")
    servers = EmbeddedReplicas(renamed, 3, quorum=2)
    servers.start()
    assert rows(address(renamed), STREAMING) == [("r2",), ("r3",)]
    servers.stop()


def test_two_primaries_are_refused_with_what_tells_them_apart(folder: Path) -> None:
    (folder / "pg" / "r2" / "standby.signal").unlink()
    with pytest.raises(
        DataFolderRefused, match=r"r1 and r2 in .* both say .*r1: timeline 1, last checkpoint .*move away"
    ):
        EmbeddedReplicas(folder, 3, quorum=2).start()
    assert running_dsn(folder) is None


def test_one_server_alone_is_no_second_database_beside_copies_of_the_first(folder: Path) -> None:
    remove(folder, "r1")
    with pytest.raises(DataFolderRefused, match=r"r2 and r3, copies of a database whose r1 is gone: .*--replicas 3"):
        EmbeddedReplicas(folder).start()
    assert not (folder / "pg" / "r1").exists()


def test_one_server_alone_is_no_standby(folder: Path, servers: EmbeddedReplicas) -> None:
    remove(folder, "r1")
    assert all_stream(folder, servers)
    servers.stop()
    with pytest.raises(DataFolderRefused, match=r"r1 is a standby, and not the primary .*--replicas 3"):
        EmbeddedReplicas(folder).start()
    assert running_dsn(folder) is None


def test_what_the_primary_took_alone_reaches_its_standbys(folder: Path) -> None:
    alone = EmbeddedReplicas(folder)
    alone.start()
    write(folder)
    alone.stop()
    three = EmbeddedReplicas(folder, 3, quorum=2)
    three.start()
    assert all_stream(folder, three)
    remove(folder, "r1")
    assert all_stream(folder, three)
    assert kept(folder) == [1, 2]
    three.stop()


def test_a_primary_that_was_lost_after_it_ran_alone_is_not_replaced_in_silence(folder: Path) -> None:
    alone = EmbeddedReplicas(folder)
    alone.start()
    write(folder)
    alone.stop()
    remove(folder, "r1")
    with pytest.raises(DataFolderRefused, match=r"r1 in .* took writes without its standbys and is gone.*remove"):
        EmbeddedReplicas(folder, 3, quorum=2).start()
    assert running_dsn(folder) is None


def test_the_number_of_connections_may_change_between_starts(folder: Path) -> None:
    for count, connections in ((3, 150), (3, 100), (1, 200), (1, 100), (3, 120)):
        servers = EmbeddedReplicas(folder, count, quorum=min(2, count), connections=connections)
        servers.start()
        if count == 3:
            assert all_stream(folder, servers)
            allowed = {rows(servers.superuser_dsn(name), "SHOW max_connections")[0][0] for name in REPLICAS}
            assert len(allowed) == 1
            assert int(str(allowed.pop())) >= connections
        servers.stop()


def test_lost_passwords_are_set_anew_for_all(folder: Path) -> None:
    (folder / "pg" / "credentials.json").unlink()
    servers = EmbeddedReplicas(folder, 3, quorum=2)
    servers.start()
    assert all_stream(folder, servers)
    assert kept(folder) == [1]
    servers.stop()


HOLDER = """
import sys
from pathlib import Path
from relay.embedded import EmbeddedReplicas
servers = EmbeddedReplicas(Path(sys.argv[1]), 3, quorum=2)
servers.start(lambda line: print(line, flush=True))
print("up", flush=True)
sys.stdin.read()
servers.stop()
"""


def holder(folder: Path, user: OtherUser | None = None) -> subprocess.Popen[str]:
    """Another process that runs the three servers."""
    return subprocess.Popen(
        [user.python if user else sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **(user.switch() if user else {}),
    )


def said(process: subprocess.Popen[str], beginning: str) -> bool:
    assert process.stdout is not None
    return any(line.startswith(beginning) for line in process.stdout)


def test_servers_whose_relay_was_killed_are_taken_over(folder: Path) -> None:
    with holder(folder) as relay:
        assert said(relay, "up")
        relay.kill()
    before = [pid_of(folder, name) for name in REPLICAS]
    servers = EmbeddedReplicas(folder, 3, quorum=2)
    servers.start()
    assert [pid_of(folder, name) for name in REPLICAS] == before
    servers.stop()


def test_a_primary_that_outlives_its_relay_and_its_folder_is_ended_before_another_takes_over(folder: Path) -> None:
    with holder(folder) as relay:
        assert said(relay, "up")
        relay.kill()
    write(folder)
    astray = pid_of(folder, "r1")
    remove(folder, "r1")
    servers = EmbeddedReplicas(folder, 3, quorum=2)
    servers.start()
    assert look_up(astray) is None
    assert primary_of(folder) == ["r2"]
    assert kept(folder) == [1, 2]
    servers.stop()


def test_a_copy_that_was_interrupted_is_made_anew(folder: Path) -> None:
    remove(folder, "r3")
    with holder(folder) as relay:
        assert said(relay, "copying")
        relay.kill()
    assert not (folder / "pg" / "r3").exists()
    servers = EmbeddedReplicas(folder, 3, quorum=2)
    servers.start()
    assert all_stream(folder, servers)
    servers.stop()
    assert list((folder / "pg").glob("*.new-*")) == []


def test_a_start_can_be_given_up_while_a_copy_is_made_and_nothing_runs(folder: Path) -> None:
    remove(folder, "r3")
    patience = threading.Event()

    def lose_it(line: str) -> None:
        if line.startswith("copying"):
            patience.set()

    with pytest.raises(StartFailed, match="given up"):
        EmbeddedReplicas(folder, 3, quorum=2).start(lose_it, give_up=patience)
    assert running_dsn(folder) is None
    assert list((folder / "pg").glob("*.new-*")) == []


@as_root
def test_folders_of_different_accounts_are_refused(folder: Path) -> None:
    os.chown(folder / "pg" / "r2", 64000, 64000)
    with pytest.raises(DataFolderRefused, match=r"belong to different accounts.*chown -R"):
        EmbeddedReplicas(folder, 3, quorum=2).start()


@as_root
def test_an_ordinary_user_can_run_all_three(data: Path, nobody: OtherUser) -> None:
    os.chown(data.parent, nobody.uid, nobody.gid)
    with holder(data, nobody) as relay:
        assert said(relay, "up")
        assert len(rows(address(data), STREAMING)) == 2
        relay.communicate(timeout=READY_SECONDS)
        assert relay.returncode == 0


def test_a_former_primary_that_was_put_back_is_not_started_alone(tmp_path: Path) -> None:
    for name in ("r1", "r2"):
        control = Layout(tmp_path, name).cluster / "global" / "pg_control"
        control.parent.mkdir(parents=True)
        control.touch()
    with pytest.raises(DataFolderRefused, match=r"r2 in .* took over from r1.*start with --replicas 3"):
        check_alone(tmp_path)
    (Layout(tmp_path, "r2").cluster / "standby.signal").touch()
    check_alone(tmp_path)
