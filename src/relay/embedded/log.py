"""The server's log file.

Owns its length and the reading of its end. Invariant: the file and the one older part that is kept do not grow beyond
`KEEP_BYTES` each for longer than `TRIM_SECONDS`, while a Relay process runs the server.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

logger = logging.getLogger(__name__)

KEEP_BYTES = 8 * 1024 * 1024
TRIM_SECONDS = 60.0
_TAIL_BYTES = 4000

# What a server says on its way through recovery; the rest of its lines are no news to the person who waits.
_PROGRESS = re.compile(
    r"LOG:  (database system was interrupted.*|syncing data directory.*|redo (?:starts|done) at \S+|redo in progress.*"
    r"|resetting unlogged relations.*|checkpoint starting: end-of-recovery)"
)


class LogFile:
    """The file that the server's output is appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> IO[bytes]:
        """Open it for a new server, its old content cut to size. Raises `OSError`."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.trim()
        return os.fdopen(descriptor, "ab")

    def size(self) -> int:
        """Its length in bytes; 0 if there is none."""
        return self.path.stat().st_size if self.path.exists() else 0

    def trim(self) -> None:
        """Put a file that has grown too long aside, in place of the part that was put aside before. Raises `OSError`.

        It is copied and emptied rather than renamed, since the server keeps it open. What is written between the two
        is lost, and so is all of it if the disk has no room for the copy: then the room is worth more.
        """
        if self.size() <= KEEP_BYTES:
            return
        older = self.path.with_name(f"{self.path.name}.1")
        try:
            shutil.copyfile(self.path, older)
            older.chmod(0o600)
        except OSError:
            older.unlink(missing_ok=True)
        os.truncate(self.path, 0)

    def tail(self, since: int = 0) -> str:
        """Its end, at most a page, without what came before byte `since`. Raises `OSError`."""
        with self.path.open("rb") as file:
            file.seek(max(since, self.size() - _TAIL_BYTES))
            return file.read().decode(errors="replace").strip()


class Follower:
    """Reads what is appended to a log, line by line."""

    def __init__(self, log: LogFile, since: int) -> None:
        self._log = log
        self._position = since

    def news(self) -> Iterator[str]:
        """Each whole line that came since the last call; lines that tell of progress are cut down to what they tell."""
        with self._log.path.open("rb") as file:
            if self._log.size() < self._position:  # it was emptied meanwhile
                self._position = 0
            file.seek(self._position)
            whole, _, _ = file.read().rpartition(b"\n")
        if whole:
            self._position += len(whole) + 1
            yield from whole.decode(errors="replace").splitlines()


def progress_in(line: str) -> str | None:
    """What a line of the log tells about a recovery, or None."""
    found = _PROGRESS.search(line)
    return found[1] if found else None


class Trimmer:
    """Keeps a log short in the background, until it is stopped."""

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self._stopped = threading.Event()
        # A daemon, so that a program which forgets to stop its server still ends.
        self._thread = threading.Thread(target=self._run, name=f"trim {log.path.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(TRIM_SECONDS):
            try:
                self._log.trim()
            except OSError as fault:
                told = {"path": str(self._log.path), "detail": str(fault)}
                logger.warning("log_not_cut", extra={"fields": told})

    def stop(self) -> None:
        """End it; returns when it has ended."""
        self._stopped.set()
        self._thread.join()
