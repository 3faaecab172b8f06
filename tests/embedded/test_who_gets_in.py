"""Who can reach the database, and what guards its password."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import asyncpg
import pytest

from relay.embedded import DataFolderRefused, EmbeddedServer, StartFailed, running_dsn
from tests.embedded.conftest import fetch

Make = Callable[..., EmbeddedServer]


def socket_folder(server: EmbeddedServer) -> Path:
    found = re.search(r"host=([^&]*)", server.dsn)
    assert found is not None
    return Path(unquote(found[1]))


@pytest.mark.parametrize("role", ["relay", "postgres"])
@pytest.mark.parametrize("password", ["", ":wrong"])
async def test_nobody_gets_in_without_the_right_password(shared: EmbeddedServer, role: str, password: str) -> None:
    address = re.sub(r"//[^@]*@", f"//{role}{password}@", shared.dsn)
    with pytest.raises((asyncpg.InvalidPasswordError, asyncpg.InterfaceError)):
        await fetch(address, "SELECT 1")


async def test_every_way_in_asks_for_a_password_by_scram(shared: EmbeddedServer) -> None:
    rows = await fetch(shared.superuser_dsn, "SELECT DISTINCT type, auth_method, error FROM pg_hba_file_rules")
    assert rows == [("local", "scram-sha-256", None)]


def test_only_the_server_s_account_and_ours_can_enter_the_folder_of_the_socket(shared: EmbeddedServer) -> None:
    mode = stat.S_IMODE(socket_folder(shared).stat().st_mode)
    assert mode & 0o027 == 0


def test_the_passwords_are_in_a_file_for_its_owner_alone(used: Path) -> None:
    file = used / "pg" / "credentials.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_two_databases_have_different_passwords(shared: EmbeddedServer, pristine: Path) -> None:
    words = set(re.findall(r"[0-9a-f]{48}", (pristine / "pg" / "credentials.json").read_text()))
    words |= set(re.findall(r"[0-9a-f]{48}", shared.dsn + shared.superuser_dsn))
    assert len(words) == 4


def test_the_passwords_are_not_in_the_server_s_log(used: Path, make_server: Make) -> None:
    server = make_server(used)
    server.start()
    log = (used / "pg" / "r1.log").read_text()
    assert re.search(r"[0-9a-f]{48}", log) is None


async def test_lost_passwords_are_set_anew(used: Path, make_server: Make) -> None:
    server = make_server(used)
    server.start()
    await fetch(server.dsn, "CREATE TABLE kept AS SELECT 1 AS n")
    before = server.dsn
    server.stop()
    (used / "pg" / "credentials.json").unlink()
    server.start()
    assert server.dsn != before
    assert await fetch(server.dsn, "SELECT n FROM kept") == [(1,)]


async def test_passwords_of_another_database_are_refused_with_a_way_out(used: Path, make_server: Make) -> None:
    file = used / "pg" / "credentials.json"
    file.write_text('{"owner": "no", "superuser": "no"}')
    server = make_server(used)
    with pytest.raises(StartFailed, match=r"does not let Relay in.*password authentication failed.*\n.*remove it"):
        server.start()
    assert running_dsn(used) is None
    file.unlink()
    server.start()
    assert await fetch(server.dsn, "SELECT 1") == [(1,)]


@pytest.mark.parametrize("text", ["", "[]", '{"owner": "half"}', "\x00\xff"])
def test_a_spoilt_password_file_is_named(used: Path, make_server: Make, text: str) -> None:
    (used / "pg" / "credentials.json").write_text(text)
    with pytest.raises(DataFolderRefused, match=r"credentials\.json does not hold Relay's passwords"):
        make_server(used).start()


def test_a_server_whose_passwords_were_lost_while_it_runs_says_so(used: Path, make_server: Make) -> None:
    make_server(used).start()
    (used / "pg" / "credentials.json").unlink()
    with pytest.raises(DataFolderRefused, match=r"credentials\.json is missing"):
        running_dsn(used)
