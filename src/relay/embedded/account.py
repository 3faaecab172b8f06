"""Under whose name PostgreSQL runs.

Owns the change of user that root needs, since PostgreSQL refuses to run as root. Invariant: no permission of any
folder is changed for it. Where a folder on the way is closed to the server's account, the server gets one capability
instead, the weakest that does, and it is found by trying rather than by reading mode bits, which know nothing of
access lists.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, assert_never

from relay.embedded.faults import NoUsableAccount, StartFailed
from relay.embedded.programs import Programs, environment

SERVICE_ACCOUNTS = ("relay", "postgres", "nobody")
"""The accounts that root gives a new server to, best first. None is ever created."""

_PROBE_LIMIT = 30.0
_OUTPUT_SHOWN = 1500
_LOOK_SECONDS = 0.1
"""How often whoever waits for a program is asked whether they still do."""

Heard = Callable[[bytes], None]
"""Is told all that a program has written so far."""


class Way(Enum):
    """How a program comes to run under the server's account; the values are the names of Linux capabilities."""

    AS_WE_ARE = "none, since this is the account already"
    PLAINLY = "none"
    READING_ANYWHERE = "dac_read_search"
    ACCESS_ANYWHERE = "dac_override"


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine; `name` is its number if it has none."""

    name: str
    uid: int
    gid: int

    @property
    def is_us(self) -> bool:
        """Whether this process runs under it."""
        return self.uid == os.geteuid()

    @property
    def gift(self) -> tuple[int, int] | None:
        """To whom, as (uid, gid), what we make for the server has to be given; None if it stays with us."""
        return None if self.is_us else (self.uid, self.gid)


def current_account() -> Account:
    """The account of this process."""
    return _account_of(os.geteuid(), os.getegid())


def service_account() -> Account:
    """The first of `SERVICE_ACCOUNTS` that exists here. Raises `NoUsableAccount`."""
    for name in SERVICE_ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name, entry.pw_uid, entry.pw_gid)
    raise NoUsableAccount(
        f"PostgreSQL does not run as root, and this machine has none of the accounts {', '.join(SERVICE_ACCOUNTS)};"
        " create one of them, or run Relay as an ordinary user"
    )


def account_for(cluster: Path) -> Account:
    """Who is to run the server of that data folder: its owner if it exists, else us, or for root a service account.

    Raises `NoUsableAccount`, also if the folder's owner is neither us nor someone whom we can become.
    """
    ours = current_account()
    try:
        status = cluster.stat()
    except FileNotFoundError:
        return _account_for_a_new_folder(ours)
    owner = _account_of(status.st_uid, status.st_gid)
    if owner.uid == 0:
        raise NoUsableAccount(
            f"{cluster} belongs to root, under whom PostgreSQL does not run;"
            f" give it to the account that shall run it, with chown -R, for example to {SERVICE_ACCOUNTS[-1]}"
        )
    if ours.uid not in (0, owner.uid):
        raise NoUsableAccount(f"{cluster} belongs to {owner.name}; run Relay as {owner.name}, not as {ours.name}")
    return owner


def _account_for_a_new_folder(ours: Account) -> Account:
    if ours.uid == 0:
        return service_account()
    if ours.name == str(ours.uid):
        raise NoUsableAccount(
            f"user {ours.uid} has no name on this machine, and PostgreSQL's initdb asks for one;"
            " add a line for it to /etc/passwd, or run Relay under a user that has one"
        )
    return ours


def _account_of(uid: int, gid: int) -> Account:
    try:
        return Account(pwd.getpwuid(uid).pw_name, uid, gid)
    except KeyError:
        return Account(str(uid), uid, gid)


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs PostgreSQL's programs under one account."""

    account: Account
    programs: Programs
    way: Way
    given_up: Callable[[], bool] = bool
    """Whether whoever waits for a program has lost patience; by itself nobody does."""

    def command(self, program: str, *arguments: str) -> list[str]:
        """The argument list that runs one of the programs under the account."""
        plain = [self.programs.path(program), *arguments]
        match self.way:
            case Way.AS_WE_ARE | Way.PLAINLY:
                return plain
            case Way.READING_ANYWHERE | Way.ACCESS_ANYWHERE:
                return [*_with_capability(self.account, self.way.value), *plain]
        assert_never(self.way)

    def spawn(
        self,
        program: str,
        *arguments: str,
        stdin: int = subprocess.DEVNULL,
        output: IO[bytes] | int = subprocess.PIPE,
        more_environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program in a session of its own, so that the terminal's Ctrl-C passes it by. Raises `OSError`."""
        plainly = self.way is Way.PLAINLY
        return subprocess.Popen(
            self.command(program, *arguments),
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment(**(more_environment or {})),
            umask=0o077,
            start_new_session=True,
            user=self.account.uid if plainly else None,
            group=self.account.gid if plainly else None,
            extra_groups=[] if plainly else None,
        )

    def run(
        self,
        program: str,
        *arguments: str,
        text: str = "",
        seconds: float,
        more_environment: Mapping[str, str] | None = None,
        heard: Heard | None = None,
    ) -> str:
        """Run a program to its end with `text` as its input and return its output; `heard` is told what there is of it
        now and then.

        Raises `StartFailed` with the output's end if it fails, and if it takes longer than `seconds` or is given up;
        then it is killed.
        """
        try:
            process = self.spawn(program, *arguments, stdin=subprocess.PIPE, more_environment=more_environment)
        except (OSError, subprocess.SubprocessError) as fault:
            raise StartFailed(f"{program} could not be started as {self.account.name}: {fault}") from fault
        with process:
            try:
                output = self._output_of(process, program, text, seconds, heard).decode(errors="replace")
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode != 0:
            raise StartFailed(f"{program} failed with status {process.returncode}:\n{output[-_OUTPUT_SHOWN:].strip()}")
        return output

    def _output_of(
        self, process: subprocess.Popen[bytes], program: str, text: str, seconds: float, heard: Heard | None
    ) -> bytes:
        ends = time.monotonic() + seconds
        given: bytes | None = text.encode()
        while True:
            try:
                return process.communicate(given, timeout=min(_LOOK_SECONDS, seconds))[0]
            except subprocess.TimeoutExpired as fault:
                given = None  # it has been taken over, and goes on
                if heard is not None:
                    heard(fault.output or b"")
                if self.given_up():
                    raise StartFailed(f"{program} was given up before it had ended") from fault
                if time.monotonic() >= ends:
                    raise StartFailed(f"{program} took longer than {seconds:.0f} s") from fault


def _with_capability(account: Account, capability: str) -> list[str]:
    """The beginning of a command that becomes `account` and keeps one capability, and that for good.

    PostgreSQL looks for its own programs with access(2), which ignores capabilities of ordinary users unless the
    secure bit ``no_setuid_fixup`` is set.
    """
    return [
        shutil.which("setpriv") or "setpriv",
        f"--reuid={account.uid}",
        f"--regid={account.gid}",
        "--clear-groups",
        "--no-new-privs",
        "--securebits=+no_setuid_fixup",
        f"--inh-caps=+{capability}",
        f"--ambient-caps=+{capability}",
        "--",
    ]


def find_runner(account: Account, programs: Programs, probe: Path) -> Runner:
    """Find the weakest way in which the account can run the programs and use a folder beside its own.

    `probe` is a folder that belongs to the account and holds an empty ``postgresql.conf``: the server itself is asked
    to read it. Raises `NoUsableAccount` with the folder that is in the way.
    """
    if account.is_us:
        return Runner(account, programs, Way.AS_WE_ARE)
    troubles = []
    for way in (Way.PLAINLY, Way.READING_ANYWHERE, Way.ACCESS_ANYWHERE):
        runner = Runner(account, programs, way)
        try:
            runner.run("postgres", "-D", str(probe), "-C", "port", seconds=_PROBE_LIMIT)
        except StartFailed as trouble:
            troubles.append(f"with capability {way.value}: {trouble}")
        else:
            return runner
    raise NoUsableAccount(_in_the_way(account, programs, probe) + "\n" + "\n".join(troubles))


def _in_the_way(account: Account, programs: Programs, probe: Path) -> str:
    closed = closed_folder(probe, account) or closed_folder(programs.folder / "postgres", account)
    if closed is None:
        return f"PostgreSQL does not run as root, and could not be run as {account.name} either:"
    return (
        f"PostgreSQL does not run as root, and {account.name}, under whom it would run, may not enter {closed}."
        " Relay changes no permissions there. Use a data folder, and an installation of Relay, that"
        f" {account.name} can reach (below /var/lib and /opt, say); or run Relay as an ordinary user; or allow this"
        " process the capabilities DAC_READ_SEARCH and SETPCAP and install setpriv (package util-linux)."
    )


def closed_folder(path: Path, account: Account) -> Path | None:
    """The outermost folder above `path` that the mode bits close to the account, or None. Raises `OSError`."""
    return next((folder for folder in reversed(path.parents) if not lets_through(folder.stat(), account)), None)


def lets_through(folder: os.stat_result, account: Account) -> bool:
    """Whether the mode bits of a folder let the account pass; only the closest bit counts, not the wider ones."""
    if folder.st_uid == account.uid:
        bit = 0o100
    elif folder.st_gid == account.gid:
        bit = 0o010
    else:
        bit = 0o001
    return bool(folder.st_mode & bit)
