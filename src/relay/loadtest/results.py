"""Result files: written whole or not at all, and never over another one unless that is asked for.

Owns the writing. Invariant: whoever finds the file finds all of it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str, *, replace: bool = False) -> None:
    """Write a file in one step. Raises `FileExistsError` for one that is not to be replaced, and `OSError`."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        draft.chmod(0o644)
        if replace:
            draft.replace(path)
        else:
            os.link(draft, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
