"""Claims about finding the database and about the key file beside the embedded one."""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from relay.app import installation
from relay.app.faults import CannotRun
from relay.app.installation import KEY_FILE, Installation, check_ready, find, keys_of_folder, read_keys
from relay.domain.secret import Secret
from relay.settings import SettingsError, read
from relay.store.vault import new_key
from tests.support.database import Server

KEY = "kfZbZCwrqZg0cxyVZxVGmOn9KdVsz8jzbz8BPzrWmv8="


def test_a_new_folder_gets_a_key_that_only_its_owner_can_read(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (key,) = keys_of_folder(folder)
    assert stat.S_IMODE((folder / KEY_FILE).stat().st_mode) == 0o600
    assert [entry.name for entry in folder.iterdir()] == [KEY_FILE]
    assert Installation(Secret("unused"), (key,)).vault().seal(Secret("text"))


def test_a_key_that_is_there_stays(tmp_path: Path) -> None:
    assert keys_of_folder(tmp_path) == keys_of_folder(tmp_path)


def test_of_many_who_make_the_key_at_once_all_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(keys_of_folder, [tmp_path] * 64))
    assert len(set(made)) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == [KEY_FILE]


def test_a_key_is_made_on_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    made = keys_of_folder(tmp_path)
    assert read_keys(tmp_path) == made == keys_of_folder(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [KEY_FILE]
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600


def test_the_name_of_a_key_file_is_on_the_disk_before_the_key_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[tuple[Path, bool]] = []
    monkeypatch.setattr(installation, "settle", lambda folder: settled.append((folder, (folder / KEY_FILE).exists())))
    keys_of_folder(tmp_path)
    assert settled == [(tmp_path, True)]


def test_several_keys_are_read_newest_first(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_text("new\nold\n")
    assert read_keys(tmp_path) == (Secret("new"), Secret("old"))


def test_an_empty_key_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).touch()
    with pytest.raises(CannotRun, match="is empty: put it back"):
        keys_of_folder(tmp_path)
    assert (tmp_path / KEY_FILE).read_bytes() == b""


def test_a_folder_that_cannot_be_made_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotRun, match="Not a directory"):
        keys_of_folder(tmp_path / "file")


def test_a_key_that_is_none_is_refused_in_words() -> None:
    with pytest.raises(CannotRun, match="relay secret-key"):
        Installation(Secret("unused"), (Secret("no key"),)).vault()


def test_an_outside_database_needs_keys_from_outside() -> None:
    with pytest.raises(SettingsError, match="RELAY_SECRET_KEYS is required"):
        find(read({"DATABASE_URL": "postgresql://relay@db/relay"}))


def test_an_outside_database_is_taken_as_it_is_given() -> None:
    dsn = "postgresql://relay:pw@db1,db2/relay"
    assert find(read({"DATABASE_URL": dsn, "RELAY_SECRET_KEYS": KEY})) == Installation(Secret(dsn), (Secret(KEY),))


def test_without_any_database_it_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=r"relay up.*RELAY_DATA_DIR"):
        find(read({"RELAY_DATA_DIR": str(tmp_path)}))


async def test_a_database_that_does_not_answer_is_told_in_one_line_without_its_password() -> None:
    nowhere = Installation(Secret("postgresql://relay:hunter2@127.0.0.1:1/relay"), ())
    with pytest.raises(CannotRun) as fault:
        await nowhere.open("tests", 1)
    assert "check that the server runs and that DATABASE_URL names it" in str(fault.value)
    assert "\n" not in str(fault.value)
    assert "hunter2" not in str(fault.value)


async def test_a_server_without_a_connection_left_is_told_apart_from_one_that_is_away(
    database_server: Server, database_dsn: str
) -> None:
    await database_server.run("create role crowded login password 'pw' connection limit 0")
    try:
        there = urlsplit(database_dsn)
        dsn = there._replace(netloc="crowded:pw@" + there.netloc.rpartition("@")[2]).geturl()
        with pytest.raises(CannotRun, match="raise its max_connections"):
            await Installation(Secret(dsn), ()).open("tests", 1)
    finally:
        await database_server.run("drop role crowded")


async def test_a_migrated_database_is_ready(database_dsn: str) -> None:
    installation = Installation(Secret(database_dsn), (Secret(KEY),))
    async with installation.database("tests", 1) as database:
        await check_ready(database, installation.vault())


async def test_keys_of_another_installation_are_refused_in_words(database_dsn: str) -> None:
    installation = Installation(Secret(database_dsn), (Secret(KEY),))
    async with installation.database("tests", 1) as database:
        await check_ready(database, installation.vault())
        with pytest.raises(CannotRun, match="the same RELAY_SECRET_KEYS"):
            await check_ready(database, Installation(Secret(database_dsn), (new_key(),)).vault())
