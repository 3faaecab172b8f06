"""A disk that a test can fill, and a PostgreSQL server on it.

Owns a small file system in memory, and the ballast that takes all of its room. To mount it needs root's rights; who has
not got them skips the test.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay.embedded import EmbeddedServer
from tests.support.postgres import throwaway_folder

MEGABYTES = 400
_CHUNK = 64 * 1024
_SETTINGS = {"min_wal_size": "96MB", "max_wal_size": "96MB"}
"""So much write-ahead log is kept and written over: it needs no new room, unlike tables that grow."""


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """The file system, where it is mounted."""

    folder: Path

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self) -> None:
        """Leave no room."""
        with self._ballast.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while ballast.write(bytes(_CHUNK)):
                pass
        assert shutil.disk_usage(self.folder).free < _CHUNK

    def empty(self) -> None:
        """Give the room back."""
        self._ballast.unlink()


@contextmanager
def small_disk() -> Iterator[SmallDisk]:
    """Such a disk; what works on it has to end before the block does. Skips the test where nothing can be mounted."""
    with throwaway_folder() as folder:
        disk = folder / "disk"
        disk.mkdir()
        if (why := mount(disk)) is not None:
            pytest.skip(why)
        try:
            yield SmallDisk(disk)
        finally:
            subprocess.run(["umount", disk], check=True, timeout=60)


@contextmanager
def server_on(disk: SmallDisk) -> Iterator[EmbeddedServer]:
    """A running server whose files are on that disk."""
    server = EmbeddedServer(disk.folder / "server", settings=_SETTINGS)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def mount(folder: Path) -> str | None:
    """Mount an empty one there; answers why that cannot be done here, None if it is."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "only root may mount a small file system"
    command = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m,mode=0711", "relay-small-disk", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return None if done.returncode == 0 else f"nothing can be mounted here: {done.stderr.strip()}"
