"""Files that appear whole.

Owns the one way in which this room writes a file. Invariant: no reader ever sees half of one, and no link that
somebody put at its place is followed, which matters where root writes into a folder that belongs to another account.
"""

from __future__ import annotations

import os
from pathlib import Path


def place(path: Path, text: str, *, owner: tuple[int, int] | None = None) -> None:
    """Write `text` to `path` with mode 0600, replacing what is there in one step, and see it onto the disk.

    `owner` is the (uid, gid) to give it to. Raises `OSError`.
    """
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        if owner is not None:
            os.fchown(descriptor, *owner)
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)
    settle(path.parent)


def append(path: Path, text: str) -> None:
    """Add `text` to the end of a file that exists, and see it onto the disk. Raises `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def settle(folder: Path) -> None:
    """See the folder's list of names onto the disk, so that a rename in it survives a loss of power. Raises
    `OSError`.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_or_none(path: Path) -> str | None:
    """The text of a file, or None if it does not exist. Raises `OSError`."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
