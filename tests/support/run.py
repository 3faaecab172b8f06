"""One run of the tests: the folder for what it makes for a while, and the end of everything that it started.

Owns the claim that a run leaves no process, folder or socket behind, however its workers end. Temporary folders lie in
the run's own, which is in memory if there is room: a server of the tests makes thousands of databases. Only pytest's
lie elsewhere, since it keeps some of them. A process of the run is one that has one of these places in its environment,
or a server that works there.

That each test ends what it started is the rule; this here is for workers and runs that were killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from relay.embedded import ServerInUse
from relay.embedded.lock import Lock

Made = TypeVar("Made")

_PREFIX = "relay-run-"
_PLACES = "places"
_SHARED = "shared"
_OURS = {"lock", _PLACES, _SHARED}
_ENDS_SECONDS = 15.0
_KILLED_SECONDS = 15.0
_LOOK_AGAIN_SECONDS = 0.05
_MEMORY = Path("/dev/shm")  # noqa: S108 - the folder in it is made by mkdtemp
_ROOM = 6 * 1024**3
"""Bytes; twice what the servers of six workers held together."""


class Run:
    """A run and its folder, held by a lock as long as the run goes on."""

    def __init__(self, folder: Path) -> None:
        """Take the folder. Raises `ServerInUse` if a live run holds it, and `OSError`."""
        self.folder = folder
        self._lock = Lock(folder / "lock")

    @classmethod
    def begin(cls) -> Run:
        """Remove what killed runs of this user left, then make a folder, in which temporary folders lie from now on."""
        disk = Path(tempfile.gettempdir())
        for folder in [*disk.glob(f"{_PREFIX}*"), *_MEMORY.glob(f"{_PREFIX}*")]:
            with contextlib.suppress(OSError, ServerInUse):  # somebody else removes it, or it goes on
                if folder.lstat().st_uid == os.geteuid():
                    cls(folder).end(within=0)
        made = Path(tempfile.mkdtemp(prefix=f"new-{_PREFIX}", dir=_MEMORY if _has_room(_MEMORY) else disk))
        made.chmod(0o711)  # servers under test may run under another account
        run = cls(made)
        run.folder = made.rename(made.with_name(made.name.removeprefix("new-")))
        run.watch(run.folder)
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(disk))
        os.environ["TMPDIR"] = tempfile.tempdir = str(run.folder)
        return run

    def watch(self, place: Path) -> None:
        """Count what works in this folder as the run's."""
        with (self.folder / _PLACES).open("a") as places:
            places.write(f"{place}\n")

    def processes(self) -> dict[int, str]:
        """The processes of the run but for this one, with their command lines."""
        places = (self.folder / _PLACES).read_text().splitlines()
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):  # it is gone, or another user's
                    if any(_is_of(entry, place) for place in places):
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        return found

    def end(self, *, within: float = _ENDS_SECONDS) -> list[str]:
        """Kill what has not ended within so many seconds and remove the folder; answers what was left there."""
        ends = time.monotonic() + within
        while self.processes() and time.monotonic() < ends:
            time.sleep(_LOOK_AGAIN_SECONDS)
        left = [f"process {pid}: {words}" for pid, words in self.processes().items()]
        ends = time.monotonic() + _KILLED_SECONDS
        while (processes := self.processes()) and time.monotonic() < ends:
            for pid in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_LOOK_AGAIN_SECONDS)
        left += [str(path) for path in self.folder.iterdir() if path.name not in _OURS]
        _unmount_below(self.folder)
        shutil.rmtree(self.folder)
        self._lock.release()
        return left


def once(name: str, make: Callable[[], Made]) -> Made:
    """What is made once in a run, by the worker that needs it first, and then is every worker's. It can be pickled."""
    folder = Path(tempfile.gettempdir()) / _SHARED
    folder.mkdir(exist_ok=True)
    kept = folder / name
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_bytes(pickle.dumps(make()))
        made: Made = pickle.loads(kept.read_bytes())  # noqa: S301 - written by this run
    return made


def is_in_memory() -> bool:
    """Whether temporary folders lie in memory."""
    return Path(tempfile.gettempdir()).is_relative_to(_MEMORY)


def _unmount_below(folder: Path) -> None:
    """Take off the small file systems that tests had mounted there; whoever may mount may do that."""
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in places:
        if Path(place).is_relative_to(folder):
            subprocess.run(["umount", "--lazy", place], check=True, timeout=_KILLED_SECONDS)


def _has_room(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _ROOM


def _is_of(process: Path, place: str) -> bool:
    """Whether a process works for the run that has this place. Raises `OSError`."""
    here = re.compile(re.escape(place).encode() + rb"(?![\w-])")  # and not in one whose name begins alike
    if here.search((process / "environ").read_bytes()):
        return True
    works_here = here.search(os.fsencode((process / "cwd").readlink())) is not None
    return works_here and b"postgres" in (process / "cmdline").read_bytes()
