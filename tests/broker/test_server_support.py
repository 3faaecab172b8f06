"""The servers of the tests are a run's own, so that it finds what a killed worker left behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import stream_server
from tests.support.installation import NotInTime
from tests.support.stream_server import StreamProgram, StreamServer


def started_in(folder: Path) -> list[int]:
    """The processes that have a folder in their environment, as `tests.support.run` looks for them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if os.fsencode(folder) in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:  # it is gone, or another user's
                continue
    return found


def test_a_server_is_known_by_its_environment(own_server: Callable[..., StreamServer]) -> None:
    server = own_server()
    assert len(started_in(server.folder)) == 1


def test_a_server_that_never_answers_is_not_left_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script := tmp_path / "silent").write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)
    monkeypatch.setattr(stream_server, "READY_SECONDS", 0.1)
    with pytest.raises(NotInTime), StreamServer(StreamProgram(script), tmp_path):
        pass
    assert started_in(tmp_path) == []
