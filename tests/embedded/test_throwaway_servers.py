"""The server that the other rooms' tests run on."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from relay.embedded import running_dsn
from tests.embedded.conftest import holder, rows
from tests.support.postgres import remove, remove_if_left, throwaway_server


def test_a_throwaway_server_makes_databases_and_is_gone_afterwards() -> None:
    with throwaway_server() as server:
        rows(server.superuser_dsn, "CREATE DATABASE one")
        assert rows(server.superuser_dsn, "SHOW fsync") == [("off",)]
        folder = Path(server.dsn.partition("host=")[2].partition("/pg/")[0])
    assert not folder.exists()


def test_a_server_whose_run_of_tests_was_killed_is_removed(used: Path) -> None:
    with holder(used) as run:
        run.kill()
        run.wait()
    assert running_dsn(used) is not None
    remove_if_left(used)
    assert not used.exists()


def test_a_server_of_another_run_is_left_alone(used: Path) -> None:
    with holder(used) as run:
        remove_if_left(used)
        assert running_dsn(used) is not None
        assert run.poll() is None


@pytest.mark.parametrize("made", [False, True])
def test_a_folder_in_the_making_is_left_alone(data: Path, made: bool) -> None:
    data.mkdir()
    if made:
        (data / "other").write_text("")
    remove_if_left(data)
    assert data.exists()
    shutil.rmtree(data)


def test_of_many_who_remove_one_folder_at_once_each_leaves_content(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    for name in range(20):
        (folder / str(name)).mkdir(parents=True)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remove, [folder] * 8))
    assert list(tmp_path.iterdir()) == []
