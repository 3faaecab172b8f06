"""Claims about result files."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.loadtest.machine import this_machine
from relay.loadtest.results import write_whole


def test_a_result_is_there_whole_and_nothing_beside_it(tmp_path: Path) -> None:
    write_whole(tmp_path / "made.json", "{}\n")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"made.json": "{}\n"}


def test_a_file_that_is_there_stays_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "made.json").write_text("earlier")
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "made.json", "{}\n")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"made.json": "earlier"}


def test_a_file_is_replaced_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "made.json").write_text("earlier")
    write_whole(tmp_path / "made.json", "{}\n", replace=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"made.json": "{}\n"}


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "made.json", "\ud800")
    assert not list(tmp_path.iterdir())


def test_a_machine_tells_its_size_and_versions_and_not_its_name() -> None:
    machine = this_machine("18.6")
    assert machine.cores >= 1
    assert machine.memory_gib > 0
    assert "host" not in "".join(machine.__slots__)
