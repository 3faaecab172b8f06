"""One start of one embedded server.

Owns the order of the steps: folders, lock, account, data folder, settings, process, proof. Leaves each step to its
module. Invariants: at most one Relay process handles a server at a time; a start that fails leaves no process behind
that it started; a server is handed out only after it answered a query to the owner's password.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from relay.embedded import cluster
from relay.embedded.account import Account, Runner, Way, account_for, find_runner
from relay.embedded.configuration import ACCESS, ACCESS_FILE, SETTINGS_FILE, Place, settings_text, usable_memory
from relay.embedded.copying import copy_server
from relay.embedded.credentials import PORT, Credentials, read_credentials, write_credentials
from relay.embedded.faults import DataFolderRefused, NoUsableAccount
from relay.embedded.files import place, read_or_none
from relay.embedded.launching import Waiting, await_ready, clear_remains, end, end_strays, launch, prove
from relay.embedded.layout import Layout
from relay.embedded.lock import Lock
from relay.embedded.log import LogFile, Trimmer
from relay.embedded.postmaster import Postmaster
from relay.embedded.programs import Programs, find_programs
from relay.embedded.query import Line, superusers_line
from relay.embedded.replication import (
    PASSWORD_FILE,
    STANDBY_FILE,
    Group,
    is_standby,
    password_text,
    replication_settings,
)
from relay.embedded.sockets import choose_sockets, prepare_sockets

CATCH_UP_SECONDS = 15.0
"""How long a standby may take to hear of passwords that were set anew."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a server shall be. `settings` are added to Relay's own; without a `group` it replicates with nobody."""

    layout: Layout
    connections: int
    settings: Mapping[str, str]
    group: Group | None


@dataclass(frozen=True, slots=True)
class Running:
    """What is held while the server runs."""

    lock: Lock
    postmaster: Postmaster
    trimmer: Trimmer
    sockets: Path
    credentials: Credentials
    programs: Programs

    def line(self) -> Line:
        """The way to ask it something as its superuser."""
        return superusers_line(self.programs, self.sockets, self.credentials)


@dataclass(frozen=True, slots=True)
class Model:
    """The server to copy: its data folder, and where it listens."""

    cluster: Path
    running: Running


class Start:
    """One start, with what its steps share. What has to be taken back if a later step fails is put on `undo`."""

    def __init__(self, wish: Wish, waiting: Waiting, undo: contextlib.ExitStack) -> None:
        self._wish = wish
        self._layout = wish.layout
        self._waiting = waiting
        self._report = waiting.report
        self._undo = undo
        self._programs = find_programs()

    def run(self, model: Model | None, *, anew: bool) -> Running:
        """Take every step. Without a data folder, or `anew`, one is made: as a copy of `model` if there is one.

        Raises `EmbeddedFault` and `OSError`.
        """
        there = not anew and cluster.exists(self._layout.cluster, self._programs.major)
        # refused before anything is created beside it
        account = self._account()
        self._layout.make_folders(passable=not account.is_us)
        lock = Lock(self._layout.lock)
        self._undo.callback(lock.release)
        self._remove_leftovers()
        runner = self._runner(account)
        sockets = prepare_sockets(self._layout, account)
        if there:
            credentials = self._known_credentials(runner, sockets)
        else:
            end_strays(self._layout, self._report)
            credentials = self._create(runner, sockets) if model is None else self._copy(model, runner, sockets)
        self._waiting.check()
        postmaster = self._take_over(sockets, credentials) or self._launch(runner, sockets, credentials)
        patience = CATCH_UP_SECONDS if is_standby(self._layout.cluster) else 0.0
        prove(self._programs, sockets, credentials, self._layout.credentials, patience)
        self._report(f"PostgreSQL {self._programs.version} is ready in {self._layout.cluster}")
        return Running(lock, postmaster, Trimmer(LogFile(self._layout.log)), sockets, credentials, self._programs)

    def _account(self) -> Account:
        """Whoever owns the data folder, or, before there is one, those of the others in the group."""
        names = self._wish.group.others(self._layout.replica) if self._wish.group is not None else ()
        folders = [self._layout.cluster, *(Layout(self._layout.data_dir, name).cluster for name in names)]
        return account_for(next((folder for folder in folders if folder.exists()), self._layout.cluster))

    def _remove_leftovers(self) -> None:
        """Remove what interrupted starts left half-made."""
        for path in self._layout.home.glob(f"{self._layout.scratch_prefix}*"):
            self._report(f"removing {path.name}, left by a start that was interrupted")
            try:
                shutil.rmtree(path)
            except OSError as fault:  # its initdb may still be at work; a later start removes it, this one needs it not
                self._report(f"{path.name} stays for now: {fault.strerror}")

    def _runner(self, account: Account) -> Runner:
        """Find out how to run programs under the account, by having the server read a file of its own."""
        try:
            probe = cluster.scratch_folder(self._layout, account)
            place(probe / "postgresql.conf", "", owner=account.gift)
        except OSError as fault:
            if account.is_us:
                raise
            raise NoUsableAccount(
                f"this root may not give files to {account.name} and read them ({fault.strerror}); run Relay as an"
                " ordinary user, or allow it the capabilities CHOWN, DAC_OVERRIDE, SETUID, SETGID and KILL"
            ) from fault
        try:
            runner = find_runner(account, self._programs, probe)
        finally:
            shutil.rmtree(probe)
        if runner.way is not Way.AS_WE_ARE:
            more = (
                "" if runner.way is Way.PLAINLY else f" and passes closed folders by the capability {runner.way.value}"
            )
            self._report(f"you are root, and PostgreSQL runs only as somebody else: it runs as {account.name}{more}")
        return replace(runner, given_up=self._waiting.given_up)

    def _create(self, runner: Runner, sockets: Path) -> Credentials:
        """Make a data folder with a database in it. Its passwords are kept first, so that no crash can lose them."""
        self._report(f"creating a database in {self._layout.cluster}")
        credentials = read_credentials(self._layout.credentials) or Credentials.new()
        write_credentials(self._layout.credentials, credentials)
        folder = self._half_made(runner)
        cluster.initialise(folder, runner)
        self._write_settings(folder, runner, sockets, credentials)
        cluster.create_roles(folder, runner, credentials)
        cluster.publish(folder, self._layout)
        return credentials

    def _copy(self, model: Model, runner: Runner, sockets: Path) -> Credentials:
        """Make a standby's data folder; what it replaces stays until it is complete."""
        self._report(f"copying {model.cluster} to {self._layout.cluster}")
        folder = self._half_made(runner)
        copy_server(model.running.line(), model.cluster, folder, self._layout.replica, runner, self._report)
        credentials = model.running.credentials
        self._write_settings(folder, runner, sockets, credentials)
        place(folder / STANDBY_FILE, "", owner=runner.account.gift)
        if self._layout.cluster.exists():
            self._clear_remains(sockets)
            cluster.discard(self._layout)
        cluster.publish(folder, self._layout)
        return credentials

    def _half_made(self, runner: Runner) -> Path:
        folder = cluster.scratch_folder(self._layout, runner.account)
        self._undo.callback(shutil.rmtree, folder, ignore_errors=True)  # nothing to remove once it is published
        return folder

    def _known_credentials(self, runner: Runner, sockets: Path) -> Credentials:
        """The passwords of the data folder; if their file is gone, new ones are set, with the server stopped."""
        if (known := read_credentials(self._layout.credentials)) is not None:
            return known
        if is_standby(self._layout.cluster):
            raise DataFolderRefused(
                f"{self._layout.credentials} is missing, and only a primary can be given new passwords:"
                " put the file back from a backup"
            )
        self._report(f"{self._layout.credentials} is missing: setting new passwords")
        if (running := Postmaster.running(self._layout.cluster)) is not None:
            end(running)
        self._clear_remains(sockets)
        credentials = Credentials.new()
        cluster.set_passwords(self._layout.cluster, runner, credentials)
        write_credentials(self._layout.credentials, credentials)
        return credentials

    def _take_over(self, sockets: Path, credentials: Credentials) -> Postmaster | None:
        """The server that a killed Relay left running; None if there is none, or if it had to be stopped for new
        settings.
        """
        running = Postmaster.running(self._layout.cluster)
        if running is None:
            return None
        said = running.said()
        changed = self._changed_settings(self._layout.cluster, sockets, credentials)
        if said is not None and said.status != "stopping" and not changed:
            self._report(f"taking over the running server, process {running.pid}")
            log = LogFile(self._layout.log)
            await_ready(running, log, log.size(), self._waiting)
            return running
        self._report(f"stopping the server that was left running, process {running.pid}")
        end(running)
        return None

    def _launch(self, runner: Runner, sockets: Path, credentials: Credentials) -> Postmaster:
        self._write_settings(self._layout.cluster, runner, sockets, credentials)
        self._report(f"starting PostgreSQL {self._programs.version} in {self._layout.cluster}")
        postmaster = launch(self._layout, runner, lambda: self._clear_remains(sockets), self._waiting)
        self._undo.callback(end, postmaster)
        return postmaster

    def _clear_remains(self, sockets: Path) -> None:
        clear_remains(self._layout, sockets, self._cluster_name(self._layout.cluster), self._waiting)

    def _cluster_name(self, folder: Path) -> str:
        """A name of this data folder alone: its inode number stays when it is renamed, and no copy of it has the
        same.
        """
        return f"relay-{self._layout.replica}-{folder.stat().st_ino:x}"

    def _files_of(self, folder: Path, sockets: Path, credentials: Credentials) -> Mapping[str, str]:
        group = self._wish.group
        facts = Place(
            version=self._programs.version,
            built_with=self._programs.built_with,
            memory=usable_memory() // (len(group.names) if group is not None else 1),
            sockets=sockets,
            port=PORT,
            cluster_name=self._cluster_name(folder),
            connections=self._wish.connections,
        )
        if group is None:
            return {SETTINGS_FILE: settings_text(facts, self._wish.settings), ACCESS_FILE: ACCESS}
        name, account = self._layout.replica, self._account()
        others = {other: choose_sockets(Layout(self._layout.data_dir, other), account) for other in group.others(name)}
        replication = replication_settings(group, name, others)
        return {
            SETTINGS_FILE: settings_text(facts, self._wish.settings, replication),
            ACCESS_FILE: ACCESS,
            PASSWORD_FILE: password_text(credentials),
        }

    def _changed_settings(self, folder: Path, sockets: Path, credentials: Credentials) -> Mapping[str, str]:
        """The files that are not as they should be, with the text that they should have."""
        wanted = self._files_of(folder, sockets, credentials)
        return {name: text for name, text in wanted.items() if read_or_none(folder / name) != text}

    def _write_settings(self, folder: Path, runner: Runner, sockets: Path, credentials: Credentials) -> None:
        for name, text in self._changed_settings(folder, sockets, credentials).items():
            place(folder / name, text, owner=runner.account.gift)
