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
from relay.embedded.credentials import OWNER, PORT, Credentials
from relay.embedded.faults import StartFailed, StopFailed
from relay.embedded.layout import Layout
from relay.embedded.log import Follower, LogFile, progress_in
from relay.embedded.postmaster import POLL_SECONDS, Postmaster, end_orphans, orphans, pid_path
from relay.embedded.programs import Programs, environment
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

_QUERY_SECONDS = 30.0
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


def prove(programs: Programs, sockets: Path, credentials: Credentials, kept_in: Path) -> None:
    """Run a query as the owner, whose password is kept in that file. Raises `StartFailed` if it fails.

    The login is by SCRAM and nothing else, in which the server proves that it knows the password, too: it is ours.
    """
    login = environment(
        PGHOST=str(sockets),
        PGPORT=str(PORT),
        PGUSER=OWNER,
        PGDATABASE=OWNER,
        PGPASSWORD=credentials.owner.expose(),
        PGREQUIREAUTH="scram-sha-256",
        PGCONNECT_TIMEOUT=f"{_QUERY_SECONDS:.0f}",
    )
    command = [programs.path("psql"), "--no-psqlrc", "--no-password", "--quiet", "--command=SELECT 1"]
    try:
        subprocess.run(command, env=login, check=True, capture_output=True, text=True, timeout=_QUERY_SECONDS)
    except subprocess.CalledProcessError as fault:
        told = fault.stderr.strip()
        if "password authentication failed" in told:
            told += f"\nIf {kept_in} came from another database, remove it: the next start sets new passwords."
        raise StartFailed(f"PostgreSQL runs but does not let Relay in: {told}") from fault
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise StartFailed(f"PostgreSQL runs but does not answer: {fault}") from fault


def end(postmaster: Postmaster) -> None:
    """Stop a server: in order, else as by a crash, else by force. Raises `StopFailed` and `PermissionError`."""
    for how, seconds in (
        (signal.SIGINT, FAST_STOP_SECONDS),
        (signal.SIGQUIT, HARD_STOP_SECONDS),
        (signal.SIGKILL, HARD_STOP_SECONDS),
    ):
        if postmaster.end(how, seconds):
            return
    raise StopFailed(f"the PostgreSQL server, process {postmaster.pid}, does not end")
