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
from contextlib import ExitStack, contextmanager
from pathlib import Path

from relay.embedded import EmbeddedServer, ServerInUse
from relay.embedded.layout import Layout
from relay.embedded.lock import Lock
from relay.embedded.postmaster import Postmaster
from tests.support.installation import children, kill

RELAXED = {"fsync": "off", "full_page_writes": "off"}
"""Commits behave as ever, but for a loss of power."""

_REPLICAS = ("r1", "r2", "r3")
_PREFIX = "relay-test-servers-"
_REMOVED_PREFIX = "removed-relay-test-servers-"
_IN_USE = "in-use.lock"
_STOP_SECONDS = 30.0


@contextmanager
def throwaway_folder() -> Iterator[Path]:
    """A temporary folder for servers, gone afterwards; what runs in it has to be ended first.

    What an earlier run left behind because it was killed is removed at the start.
    """
    for left in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")):
        if left.lstat().st_uid == os.geteuid():
            remove_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = Lock(folder / _IN_USE)
    try:
        yield folder
    finally:
        remove(folder)
        lock.release()


@contextmanager
def throwaway_server(settings: Mapping[str, str] = RELAXED) -> Iterator[EmbeddedServer]:
    """A running server in a temporary folder, both gone afterwards; its `superuser_dsn` may create databases."""
    with throwaway_folder() as folder:
        server = EmbeddedServer(folder, settings=settings)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def remove_if_left(folder: Path) -> None:
    """End the servers in a folder of ours and remove the folder, unless a live process runs them or is about to.

    A run may hold a folder in which no server lives at the moment. It does from before there is a folder for servers.
    """
    layouts = [Layout(folder, name) for name in _REPLICAS]
    held = [folder / _IN_USE] if (folder / _IN_USE).exists() else []
    with ExitStack() as locks:
        for path in (*held, *(layout.lock for layout in layouts)):
            try:
                lock = Lock(path)
            except (OSError, ServerInUse):  # somebody else's folder, one that is only being made, or one in use
                return
            locks.callback(lock.release)
        for layout in layouts:
            if (left := Postmaster.running(layout.cluster)) is not None:
                _go_on(left.pid)
                left.end(signal.SIGQUIT, _STOP_SECONDS)
        remove(folder)


def _go_on(server: int) -> None:
    """Wake the processes of a server that a test may have frozen: as they are, they cannot end."""
    for pid in (server, *children(server)):
        kill(pid, signal.SIGCONT)


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
