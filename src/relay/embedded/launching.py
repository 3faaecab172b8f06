"""From a data folder to a server that answers.

Owns the launch of the server process, the wait while it recovers, the proof that it is the right server, and its end.
Invariant: each wait here has a bound with a name; the long ones go on only while the server lives and says that it
moves.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relay.embedded.account import Runner
from relay.embedded.cluster import RECOVERY_SECONDS
from relay.embedded.credentials import Credentials
from relay.embedded.faults import StartFailed, StopFailed
from relay.embedded.layout import Layout
from relay.embedded.log import Follower, LogFile, progress_in
from relay.embedded.postmaster import POLL_SECONDS, Postmaster, end_orphans, orphans, pid_path, strays
from relay.embedded.programs import Programs
from relay.embedded.query import NoAnswer, owners_line
from relay.embedded.sockets import remove_stale_sockets

SILENCE_SECONDS = 15 * 60.0
"""How long a starting server may say nothing at all; while it recovers it speaks every two seconds."""

FAST_STOP_SECONDS = 60.0
"""How long a server may take to write out what it holds; after that it is stopped as by a crash, which loses nothing.
"""

HARD_STOP_SECONDS = 15.0
"""How long it may take after that, and again after being killed."""

ORPHAN_SECONDS = 5.0
"""How long the children of a killed server may go on by themselves, and again after each signal."""

_SCARCE_BYTES = 64 * 1024 * 1024
_STILL_ATTACHED = "pre-existing shared memory block"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The person who waits for a start: is told what happens, and may lose patience."""

    report: Callable[[str], None]
    given_up: Callable[[], bool]

    def check(self) -> None:
        """Raises `StartFailed` if the person has given up."""
        if self.given_up():
            raise StartFailed("the start was given up before PostgreSQL was ready")


def clear_remains(layout: Layout, sockets: Path, cluster_name: str, waiting: Waiting) -> None:
    """Remove what a killed server left: its children, its process number, its socket. There must be no live server.

    PostgreSQL would refuse to start if the number meanwhile belongs to another process. Should the server live after
    all, hidden from us, then it still holds its shared memory, which is found by the data folder itself; a second one
    never runs beside it. Raises `StartFailed` if children do not end.
    """
    if left := orphans(cluster_name):
        waiting.report(f"waiting for {len(left)} processes of a server that was killed")
        if not end_orphans(cluster_name, ORPHAN_SECONDS):
            raise StartFailed(f"processes of a killed server do not end: {', '.join(map(str, orphans(cluster_name)))}")
    pid_path(layout.cluster).unlink(missing_ok=True)
    remove_stale_sockets(sockets)


def launch(layout: Layout, runner: Runner, clear: Callable[[], None], waiting: Waiting) -> Postmaster:
    """Start the server and wait until it takes queries. `clear` is called before each try.

    Raises `StartFailed`; then, and if the wait is interrupted, it is ended again.
    """
    deadline = time.monotonic() + ORPHAN_SECONDS
    while True:
        clear()
        try:
            return _launch_once(layout, runner, waiting)
        except StartFailed as fault:
            if _STILL_ATTACHED not in str(fault) or time.monotonic() >= deadline:
                raise
        time.sleep(POLL_SECONDS * 10)  # the system is still taking the killed server apart


def _launch_once(layout: Layout, runner: Runner, waiting: Waiting) -> Postmaster:
    log = LogFile(layout.log)
    with log.open() as output:
        since = log.size()
        try:
            child = runner.spawn("postgres", "-D", str(layout.cluster), output=output)
        except (OSError, subprocess.SubprocessError) as fault:
            raise StartFailed(f"PostgreSQL could not be started as {runner.account.name}: {fault}") from fault
    postmaster = Postmaster(child.pid, layout.cluster, child)
    try:
        await_ready(postmaster, log, since, waiting)
    except BaseException:
        end(postmaster)
        raise
    return postmaster


def await_ready(postmaster: Postmaster, log: LogFile, since: int, waiting: Waiting) -> None:
    """Wait until the server takes queries, however long it has to recover, and report its progress.

    `since` is the length of the log when it started. Raises `StartFailed` with the end of the log if the server ends,
    says nothing for `SILENCE_SECONDS`, takes longer than `RECOVERY_SECONDS`, or is given up.
    """
    follower = Follower(log, since)
    began = heard = time.monotonic()
    while True:
        lived = postmaster.alive()
        for line in follower.news():
            heard = time.monotonic()
            if (progress := progress_in(line)) is not None:
                waiting.report(f"recovering: {progress}")
        said = postmaster.said()
        if lived and said is not None and said.ready:
            return
        if not lived:
            raise StartFailed(_with_tail("PostgreSQL ended while it started", log, since))
        waiting.check()
        now = time.monotonic()
        if now - heard > SILENCE_SECONDS:
            raise StartFailed(_with_tail(f"PostgreSQL said nothing for {SILENCE_SECONDS:.0f} s", log, since))
        if now - began > RECOVERY_SECONDS:
            raise StartFailed(_with_tail(f"PostgreSQL did not come up in {RECOVERY_SECONDS:.0f} s", log, since))
        time.sleep(POLL_SECONDS)


def _with_tail(trouble: str, log: LogFile, since: int) -> str:
    free = shutil.disk_usage(log.path.parent).free
    scarce = f" (only {free // 1024} KiB are free on its disk)" if free < _SCARCE_BYTES else ""
    return f"{trouble}{scarce}; {log.path} ends with:\n{log.tail(since) or '(nothing)'}"


def prove(programs: Programs, sockets: Path, credentials: Credentials, kept_in: Path, patience: float = 0.0) -> None:
    """Run a query as the owner, whose password is kept in that file. Raises `StartFailed` if it fails.

    Within `patience` seconds it is tried again: a standby knows a new password when it has heard of it.
    """
    line = owners_line(programs, sockets, credentials)
    deadline = time.monotonic() + patience
    while True:
        try:
            line.ask("SELECT 1")
        except NoAnswer as fault:
            told = str(fault)
            if time.monotonic() >= deadline:
                if "password authentication failed" in told:
                    told += f"\nIf {kept_in} came from another database, remove it: the next start sets new passwords."
                raise StartFailed(f"PostgreSQL runs but does not let Relay in: {told}") from fault
        else:
            return
        time.sleep(POLL_SECONDS * 10)


def end_strays(layout: Layout, report: Callable[[str], None]) -> None:
    """End servers that still run although their data folder is gone: they would go on taking writes, under the same
    address, that no folder will hold. Raises `StopFailed`.
    """
    for pid in strays(layout.cluster):
        report(f"ending process {pid}, a server whose folder {layout.cluster} is gone")
        abort(Postmaster.without_folder(pid, layout.cluster))


def end(postmaster: Postmaster) -> None:
    """Stop a server: in order, else as by a crash, else by force. Raises `StopFailed` and `PermissionError`."""
    _end(postmaster, ((signal.SIGINT, FAST_STOP_SECONDS), *_hard()))


def abort(postmaster: Postmaster) -> None:
    """Stop a server as by a crash, else by force; it loses nothing by it. Raises the same."""
    _end(postmaster, _hard())


def _hard() -> tuple[tuple[signal.Signals, float], ...]:
    return ((signal.SIGQUIT, HARD_STOP_SECONDS), (signal.SIGKILL, HARD_STOP_SECONDS))


def _end(postmaster: Postmaster, ways: tuple[tuple[signal.Signals, float], ...]) -> None:
    postmaster.go_on()  # else whoever stopped it in its tracks would have us wait for as long as that lasts
    if not any(postmaster.end(how, seconds) for how, seconds in ways):
        raise StopFailed(f"the PostgreSQL server, process {postmaster.pid}, does not end")
