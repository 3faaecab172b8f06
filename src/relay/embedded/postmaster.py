"""A running server, seen from outside.

Owns what ``postmaster.pid`` and ``/proc`` tell about servers, and the ending of processes. Invariant: a process is
signalled only while it is known to be the server of this data folder or one of its orphans; a process number alone
proves nothing, since after a crash or a restart of the machine it may belong to anyone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relay.embedded.faults import ServerInUse
from relay.embedded.files import read_or_none
from relay.embedded.sockets import SOCKET_NAME

POLL_SECONDS = 0.02
_CONNECT_LIMIT = 5.0
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class PidFile:
    """What a server wrote into ``postmaster.pid``; fields that it has not written yet are empty."""

    pid: int
    sockets: str
    status: str

    @classmethod
    def parse(cls, text: str) -> PidFile | None:
        """Read the file's text; None if it does not even begin with a process number."""
        lines = [line.strip() for line in text.splitlines()] + [""] * 8
        if not lines[0].lstrip("-").isdecimal():
            return None
        return cls(pid=abs(int(lines[0])), sockets=lines[4], status=lines[7])

    @property
    def ready(self) -> bool:
        """Whether the server takes queries; a standby takes those that only read."""
        return self.status in ("ready", "standby")


def pid_path(cluster: Path) -> Path:
    """The file in which a server says that it runs."""
    return cluster / "postmaster.pid"


def read_pid_file(cluster: Path) -> PidFile | None:
    """What the server of that data folder says, or said before it was killed. Raises `OSError`."""
    return PidFile.parse(read_or_none(pid_path(cluster)) or "")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the table of processes. `words` are its arguments, or the title that it put in their place."""

    pid: int
    parent: int
    words: tuple[str, ...]


def look_up(pid: int) -> Process | None:
    """The process with that number; None if there is none or if it is dead and only waits to be collected."""
    folder = _PROC / str(pid)
    try:
        words = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        # pid (name) state parent ...; the name may hold spaces and brackets
        state, parent = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # it ended, or is hidden since it is not ours
        return None
    if state in (b"Z", b"X"):
        return None
    return Process(pid, int(parent), tuple(os.fsdecode(word) for word in words))


def serves(process: Process, cluster: Path) -> bool:
    """Whether the process is the server of that data folder, or may be.

    One that names no folder, or a relative one, was started by hand; where it works tells, since a server goes into its
    folder. If that is hidden from us it is given the benefit of the doubt: it is not us who may declare it dead.
    """
    if Path(process.words[0]).name not in ("postgres", "postmaster") or process.words[0].startswith("postgres:"):
        return False
    folder = _folder_of(process)
    return folder is None or _is_same(folder, cluster)


def _folder_of(process: Process) -> Path | None:
    """The data folder of a server; None if that cannot be told."""
    return _named_folder(process) or _working_folder(process.pid)


def _named_folder(process: Process) -> Path | None:
    """The data folder that a server was started with, if that is a whole path."""
    named = next((after for word, after in zip(process.words, process.words[1:], strict=False) if word == "-D"), None)
    return Path(named) if named is not None and Path(named).is_absolute() else None


def _working_folder(pid: int) -> Path | None:
    try:
        return (_PROC / str(pid) / "cwd").readlink()
    except OSError:  # it ended, or is hidden since it is not ours
        return None


def _is_same(folder: Path, cluster: Path) -> bool:
    try:
        return folder.samefile(cluster)
    except OSError:  # it is gone, or closed to us: not the folder that we are about to use
        return False


def answers(sockets: str) -> bool:
    """Whether somebody listens on the socket in that folder (the empty string is no folder)."""
    if not sockets:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_LIMIT)
        try:
            client.connect(str(Path(sockets) / SOCKET_NAME))
        except OSError:
            return False
    return True


class Postmaster:
    """A live server: one that we started (`child`), or one that an earlier Relay process left behind."""

    def __init__(self, pid: int, cluster: Path, child: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self._cluster = cluster
        self._child = child
        self._astray = False

    @classmethod
    def without_folder(cls, pid: int, cluster: Path) -> Postmaster:
        """A server out of `strays`: it is known by what it was started with, since its folder is gone."""
        found = cls(pid, cluster)
        found._astray = True
        return found

    @classmethod
    def running(cls, cluster: Path) -> Postmaster | None:
        """The server that runs in that data folder, or None. Raises `OSError`."""
        said = read_pid_file(cluster)
        if said is None:
            return None
        found = cls(said.pid, cluster)
        return found if found.alive() else None

    def alive(self) -> bool:
        """Whether it still runs."""
        if self._child is not None:
            return self._child.poll() is None
        if self._astray:
            return self.pid in strays(self._cluster)
        process = look_up(self.pid)
        return process is not None and serves(process, self._cluster)

    def said(self) -> PidFile | None:
        """What it says about itself; None until it says anything. Raises `OSError`."""
        said = read_pid_file(self._cluster)
        return said if said is not None and said.pid == self.pid else None

    def end(self, how: signal.Signals, seconds: float) -> bool:
        """Send it a signal and wait at most `seconds` for its end; return whether it came.

        Raises `PermissionError`, and `ServerInUse` for a process of which it is not certain that it is this server.
        """
        if self.alive():
            self._prove()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, how)
        return wait_until(lambda: not self.alive(), seconds)

    def go_on(self) -> None:
        """Wake whichever of its processes somebody stopped in its tracks. Raises `PermissionError`, `ServerInUse`."""
        if not self.alive():
            return
        self._prove()
        for pid in (self.pid, *(found.pid for found in _processes() if found.parent == self.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _prove(self) -> None:
        process = None if self._child is not None else look_up(self.pid)
        if process is not None and _folder_of(process) is None:
            raise ServerInUse(
                f"process {self.pid}, a PostgreSQL server whose folder is hidden from us, may be at work in"
                f" {self._cluster}: stop it as its owner, or remove {pid_path(self._cluster)} if it is another one's"
            )


def strays(cluster: Path) -> list[int]:
    """Servers that were started in a data folder of that path which is gone, whatever stands there now."""
    return [
        found.pid
        for found in _processes()
        if Path(found.words[0]).name in ("postgres", "postmaster")
        and _has_the_name(_named_folder(found), cluster)
        and _works_elsewhere(found.pid, cluster)
    ]


def _has_the_name(folder: Path | None, cluster: Path) -> bool:
    return folder is not None and folder.name == cluster.name and _is_same(folder.parent, cluster.parent)


def _works_elsewhere(pid: int, cluster: Path) -> bool:
    if not cluster.exists():
        return True
    try:
        return not (_PROC / str(pid) / "cwd").samefile(cluster)
    except OSError:  # it ended, or is hidden since it is not ours: not ours to end, either
        return False


def _processes() -> list[Process]:
    return [found for entry in _PROC.iterdir() if entry.name.isdecimal() if (found := look_up(int(entry.name)))]


def orphans(cluster_name: str) -> list[int]:
    """The processes of a killed server which still run without it.

    A server's children show its `cluster_name` in their titles. Those of a live server of the same name (a copy of
    this data folder, say) are told apart by their parent.
    """
    processes = _processes()
    servers = {found.pid for found in processes if Path(found.words[0]).name in ("postgres", "postmaster")}
    title = f"postgres: {cluster_name}: "
    return [found.pid for found in processes if found.words[0].startswith(title) and found.parent not in servers]


def end_orphans(cluster_name: str, seconds: float) -> bool:
    """End the orphans: by themselves, then by PostgreSQL's own signal for it, then for certain; `seconds` for each.

    Returns whether all are gone. Nothing is lost by it: the next start recovers from the log as after any crash.
    """

    def gone() -> bool:
        return not orphans(cluster_name)

    if wait_until(gone, seconds):
        return True
    for how in (signal.SIGQUIT, signal.SIGKILL):
        for pid in orphans(cluster_name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
        if wait_until(gone, seconds):
            return True
    return False


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait at most `seconds` for a condition; return whether it came true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
