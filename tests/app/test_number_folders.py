"""Claims about the folders of numbers that a killed parent leaves behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from relay.app.number_folders import hold, number_folder

PREFIX = "relay-tried-"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left_behind(place: Path, *, age: float) -> Path:
    folder = place / f"{PREFIX}left"
    folder.mkdir()
    (folder / "in-use").touch()
    now = (folder / "in-use").stat().st_mtime
    os.utime(folder / "in-use", (now - age, now - age))
    return folder


def test_a_folder_that_nobody_uses_any_more_is_removed_by_the_next_start(place: Path) -> None:
    folder = left_behind(place, age=3600)
    with number_folder(PREFIX) as ours:
        assert not folder.exists()
        assert ours.is_dir()
    assert not ours.exists()


def test_a_folder_that_a_worker_still_uses_stays(place: Path) -> None:
    folder = left_behind(place, age=3600)
    held = hold(folder)
    with number_folder(PREFIX):
        assert folder.exists()
    os.close(held)


def test_a_folder_that_may_be_being_made_stays(place: Path) -> None:
    folder = left_behind(place, age=0)
    with number_folder(PREFIX):
        assert folder.exists()


def test_what_only_has_such_a_name_stays(place: Path) -> None:
    stranger = place / f"{PREFIX}stranger"
    stranger.mkdir()
    with number_folder(PREFIX):
        assert stranger.exists()
