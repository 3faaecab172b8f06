"""A PostgreSQL server whose files are thrown away.

Owns the one place where durability is given up, for speed: nothing in such a server outlives the run of the tests.
The product has no switch for it.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from relay.embedded import EmbeddedServer, ServerInUse
from relay.embedded.layout import Layout
from relay.embedded.lock import Lock
from relay.embedded.postmaster import Postmaster

RELAXED = {"fsync": "off", "full_page_writes": "off"}
"""Commits behave as ever, but for a loss of power."""

_PREFIX = "relay-tests-"
_REMOVED_PREFIX = "removed-relay-tests-"
_STOP_SECONDS = 30.0


@contextmanager
def throwaway_server(settings: Mapping[str, str] = RELAXED) -> Iterator[EmbeddedServer]:
    """A running server in a temporary folder, both gone afterwards; its `superuser_dsn` may create databases.

    What an earlier run left behind because it was killed is removed first.
    """
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")):
        if folder.lstat().st_uid == os.geteuid():
            remove_if_left(folder)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    server = EmbeddedServer(folder, settings=settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        remove(folder)


def remove_if_left(folder: Path) -> None:
    """End the server in a folder of ours and remove the folder, unless a live process runs it or is about to."""
    layout = Layout(folder)
    try:
        lock = Lock(layout.lock)
    except (OSError, ServerInUse):  # somebody else's folder, one that is only being made, or one in use
        return
    try:
        if (left := Postmaster.running(layout.cluster)) is not None:
            left.end(signal.SIGQUIT, _STOP_SECONDS)
        remove(folder)
    finally:
        lock.release()


def remove(folder: Path) -> None:
    """Remove a folder, unless somebody else does: a stopped server is anybody's, and two cannot empty one folder.

    Whose renaming succeeds is the one who removes it.
    """
    mine = folder.with_name(f"{_REMOVED_PREFIX}{os.getpid()}-{folder.name}")
    try:
        folder.rename(mine)
    except FileNotFoundError:
        return
    shutil.rmtree(mine)
