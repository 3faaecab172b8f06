"""The folders in which the workers of a crew keep their numbers, and what is left of them.

Owns their making and their end. A parent that is killed removes nothing, so the next one does. Invariant: a folder is
removed by its parent, or once nobody who used it lives: each of them holds a shared lock on it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

_LOCK = "in-use"

_GRACE_SECONDS = 60.0
"""A folder so young may be one that is being made."""


@contextmanager
def number_folder(prefix: str) -> Iterator[Path]:
    """A new folder until the end of the block; dead ones of that prefix go first. Raises `OSError`."""
    _remove_dead(prefix)
    with TemporaryDirectory(prefix=prefix) as name:
        folder = Path(name)
        held = hold(folder)
        try:
            yield folder
        finally:
            os.close(held)


def hold(folder: Path) -> int:
    """Say that this process uses the folder for as long as it keeps the descriptor. Raises `OSError`."""
    descriptor = os.open(folder / _LOCK, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _remove_dead(prefix: str) -> None:
    for folder in Path(gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # it is in use, somebody else's, or gone: nothing that a start could fail by
            if _is_ours(folder) and _is_dead(folder / _LOCK):
                shutil.rmtree(folder)


def _is_ours(folder: Path) -> bool:
    return not folder.is_symlink() and folder.stat().st_uid == os.geteuid()


def _is_dead(lock: Path) -> bool:
    descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if time.time() - os.fstat(descriptor).st_mtime < _GRACE_SECONDS:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
