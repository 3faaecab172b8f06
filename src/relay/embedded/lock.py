"""One Relay process per server.

Owns the lock that says who starts, runs or stops the server of a data folder. Invariant: the system drops the lock
with its holder, however that ends, so it never has to be judged stale; it holds between containers that share a
folder, too.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from relay.embedded.faults import ServerInUse


class Lock:
    """A held lock."""

    def __init__(self, path: Path) -> None:
        """Take it. Raises `ServerInUse` if another process holds it, and `OSError`."""
        # Python's descriptors are not inherited, so the server, which outlives a killed Relay, does not keep the
        # lock.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            holder = os.read(self._descriptor, 20).decode(errors="replace").strip() or "unknown"
            os.close(self._descriptor)
            raise ServerInUse(
                f"the database in {path.with_suffix('')} is already in the hands of another Relay, process {holder};"
                " stop that one first, or use another data folder"
            ) from fault
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give it back."""
        os.close(self._descriptor)
