"""Where the embedded server keeps what it owns.

Owns the names of files and folders below ``DIR/pg``, and the creation of those folders. Invariant: folders that were
there before keep the owner and the permissions that they have.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relay.embedded.faults import DataFolderRefused


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one server. `replica` is ``r1``, ``r2`` and so on; anything else raises `ValueError`."""

    data_dir: Path
    replica: str = "r1"

    def __post_init__(self) -> None:
        if re.fullmatch(r"r[1-9]", self.replica) is None:
            raise ValueError(f"a replica is called r1 to r9, not {self.replica!r}")
        object.__setattr__(self, "data_dir", self.data_dir.expanduser().absolute())

    @property
    def home(self) -> Path:
        """The folder of all servers of this installation."""
        return self.data_dir / "pg"

    @property
    def cluster(self) -> Path:
        """PostgreSQL's own data folder; it appears, complete, by one rename."""
        return self.home / self.replica

    @property
    def scratch_prefix(self) -> str:
        """How the names of half-made folders begin. Only the holder of the lock makes, renames or removes them."""
        return f"{self.replica}.new-"

    @property
    def sockets(self) -> Path:
        """The folder of the unix socket, if its path is short enough."""
        return self.home / f"{self.replica}.run"

    @property
    def lock(self) -> Path:
        """Held by the Relay process that runs this server."""
        return self.home / f"{self.replica}.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the Relay process that runs all servers of this installation."""
        return self.data_dir / "pg.lock"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.home / f"{self.replica}.log"

    @property
    def credentials(self) -> Path:
        """The passwords, shared by all replicas since these are copies of one another."""
        return self.home / "credentials.json"

    def make_folders(self, *, passable: bool) -> None:
        """Create the data folder and ``pg`` in it, whichever is missing.

        A new folder is closed to others (0700), or with `passable` only lets them through (0711), so that the account
        of the server needs no privilege to reach its own folder. Raises `OSError`.
        """
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.data_dir, self.home):
            if not folder.is_dir():
                folder.mkdir(mode=0o700)
                folder.chmod(0o711 if passable else 0o700)


@contextlib.contextmanager
def told_in_words(layout: Layout) -> Iterator[None]:
    """Turn what the system refuses into a sentence about the data folder."""
    try:
        yield
    except OSError as fault:
        where = fault.filename or layout.home
        raise DataFolderRefused(
            f"{layout.data_dir} cannot be used for a database: {where}: {fault.strerror}"
        ) from fault
