"""Claims about the file in which the receiver keeps what it was taught."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from relay.app.faults import CannotRun
from relay.app.taught_secrets import read_taught, write_taught
from relay.domain.secret import Secret

TAUGHT = {"": (Secret("shared"),), "demo": (Secret("newest"), Secret("older"))}


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    write_taught(tmp_path / "secrets", TAUGHT)
    assert read_taught(tmp_path / "secrets") == TAUGHT


def test_without_a_file_nothing_was_taught(tmp_path: Path) -> None:
    assert read_taught(tmp_path / "secrets") == {}


def test_it_is_for_its_owner_alone_and_so_is_a_folder_made_for_it(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "secrets"
    write_taught(file, TAUGHT)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (file, file.parent)] == [0o600, 0o700]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"demo": "secret"}'])
def test_a_damaged_file_is_told_with_what_to_do_and_without_what_it_holds(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secrets"
    file.write_text(text)
    with pytest.raises(CannotRun) as caught:
        read_taught(file)
    assert str(caught.value) == f"{file} is damaged: remove {file}, and teach the receiver its secrets anew"


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    with pytest.raises(CannotRun, match="cannot be read: Is a directory"):
        read_taught(tmp_path / "secrets")
