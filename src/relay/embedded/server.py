"""Start and stop of one embedded server.

Owns the order of the steps: folders, lock, account, data folder, settings, process, proof. Leaves each step to its
module. Invariants: at most one Relay process handles a server at a time; a start that fails leaves no process behind
that it started; a server is handed out only after it answered a query to the owner's password.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from relay.embedded import cluster
from relay.embedded.account import Account, Runner, Way, account_for, find_runner
from relay.embedded.configuration import (
    ACCESS,
    ACCESS_FILE,
    CONNECTIONS,
    SETTINGS_FILE,
    Place,
    settings_text,
    usable_memory,
)
from relay.embedded.credentials import PORT, Credentials, read_credentials, write_credentials
from relay.embedded.faults import DataFolderRefused, EmbeddedFault, NoUsableAccount
from relay.embedded.files import place, read_or_none
from relay.embedded.launching import Waiting, await_ready, clear_remains, end, launch, prove
from relay.embedded.layout import Layout
from relay.embedded.lock import Lock
from relay.embedded.log import LogFile, Trimmer
from relay.embedded.postmaster import Postmaster, answers
from relay.embedded.programs import find_programs
from relay.embedded.sockets import discard_sockets, prepare_sockets


def _silently(_: str) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class _Running:
    """What is held while the server runs."""

    lock: Lock
    postmaster: Postmaster
    trimmer: Trimmer
    sockets: Path
    credentials: Credentials


class EmbeddedServer:
    """One PostgreSQL server in ``DIR/pg/<replica>``, for the processes of this machine.

    `connections` may be open at once. `settings` are added to Relay's own, and win; tests use it, the product leaves it
    alone. Nothing happens before `start`. Not for several threads at once.
    """

    def __init__(
        self,
        data_dir: Path,
        replica: str = "r1",
        *,
        connections: int = CONNECTIONS,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._layout = Layout(data_dir, replica)
        self._connections = connections
        self._settings = dict(settings or {})
        self._running: _Running | None = None

    @property
    def dsn(self) -> str:
        """The address of the database for its owner, password included. Raises `EmbeddedFault` unless started."""
        running = self._require()
        return running.credentials.url(running.sockets)

    @property
    def superuser_dsn(self) -> str:
        """The same for the superuser: for tests and repairs, never for Relay's own work."""
        running = self._require()
        return running.credentials.url(running.sockets, superuser=True)

    @property
    def pid(self) -> int:
        """The process number of the server. Raises `EmbeddedFault` unless started."""
        return self._require().postmaster.pid

    def start(self, on_progress: Callable[[str], None] = _silently, *, give_up: threading.Event | None = None) -> None:
        """Bring the server up, and return when it takes queries; `on_progress` is told what takes time.

        Setting `give_up`, from another thread, ends a start that takes too long for somebody.

        A new folder gets a new database. A server that was killed recovers first, however long that takes within
        `cluster.RECOVERY_SECONDS`. A server that still runs, because only Relay was killed, is taken over. Does
        nothing if it is started already. Raises `EmbeddedFault`, and then nothing runs that did not run before.
        """
        if self._running is None:
            with _translated(self._layout), contextlib.ExitStack() as undo:
                waiting = Waiting(on_progress, give_up.is_set if give_up is not None else lambda: False)
                self._running = _Start(self._layout, self._connections, self._settings, waiting, undo).run()
                undo.pop_all()

    def stop(self) -> None:
        """Stop the server: in order, and if that takes too long, as by a crash. Does nothing if it is not started.

        Raises `EmbeddedFault` if it does not end.
        """
        running, self._running = self._running, None
        if running is None:
            return
        with _translated(self._layout), contextlib.ExitStack() as last:
            last.callback(running.lock.release)
            running.trimmer.stop()
            end(running.postmaster)
            discard_sockets(running.sockets)

    def alive(self) -> bool:
        """Whether the server that was started still runs; False also if none was, or if it was stopped."""
        return self._running is not None and self._running.postmaster.alive()

    def _require(self) -> _Running:
        if self._running is None:
            raise EmbeddedFault(f"the server in {self._layout.cluster} is not started")
        return self._running


class _Start:
    """One start, with what its steps share. What has to be taken back if a later step fails is put on `undo`."""

    def __init__(
        self,
        layout: Layout,
        connections: int,
        settings: Mapping[str, str],
        waiting: Waiting,
        undo: contextlib.ExitStack,
    ) -> None:
        self._layout = layout
        self._connections = connections
        self._settings = settings
        self._waiting = waiting
        self._report = waiting.report
        self._undo = undo
        self._programs = find_programs()

    def run(self) -> _Running:
        """Take every step. Raises `EmbeddedFault` and `OSError`."""
        cluster.exists(self._layout.cluster, self._programs.major)  # refuse before anything is created beside it
        account = account_for(self._layout.cluster)
        self._layout.make_folders(passable=not account.is_us)
        lock = Lock(self._layout.lock)
        self._undo.callback(lock.release)
        self._remove_leftovers()
        runner = self._runner(account)
        sockets = prepare_sockets(self._layout, account)
        if cluster.exists(self._layout.cluster, self._programs.major):
            credentials = self._known_credentials(runner, sockets)
        else:
            credentials = self._create(runner, sockets)
        self._waiting.check()
        postmaster = self._take_over(sockets) or self._launch(runner, sockets)
        prove(self._programs, sockets, credentials, self._layout.credentials)
        self._report(f"PostgreSQL {self._programs.version} is ready in {self._layout.cluster}")
        return _Running(lock, postmaster, Trimmer(LogFile(self._layout.log)), sockets, credentials)

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
            self._report(f"PostgreSQL runs as {account.name}{more}")
        return replace(runner, given_up=self._waiting.given_up)

    def _create(self, runner: Runner, sockets: Path) -> Credentials:
        """Make a data folder with a database in it. Its passwords are kept first, so that no crash can lose them."""
        self._report(f"creating a database in {self._layout.cluster}")
        credentials = read_credentials(self._layout.credentials) or Credentials.new()
        write_credentials(self._layout.credentials, credentials)
        folder = cluster.scratch_folder(self._layout, runner.account)
        self._undo.callback(shutil.rmtree, folder, ignore_errors=True)  # after `publish` there is nothing to remove
        cluster.initialise(folder, runner)
        self._write_settings(folder, runner, sockets)
        cluster.create_roles(folder, runner, credentials)
        cluster.publish(folder, self._layout)
        return credentials

    def _known_credentials(self, runner: Runner, sockets: Path) -> Credentials:
        """The passwords of the data folder; if their file is gone, new ones are set, with the server stopped."""
        if (known := read_credentials(self._layout.credentials)) is not None:
            return known
        self._report(f"{self._layout.credentials} is missing: setting new passwords")
        if (running := Postmaster.running(self._layout.cluster)) is not None:
            end(running)
        self._clear_remains(sockets)
        credentials = Credentials.new()
        cluster.set_passwords(self._layout.cluster, runner, credentials)
        write_credentials(self._layout.credentials, credentials)
        return credentials

    def _take_over(self, sockets: Path) -> Postmaster | None:
        """The server that a killed Relay left running; None if there is none, or if it had to be stopped for new
        settings.
        """
        running = Postmaster.running(self._layout.cluster)
        if running is None:
            return None
        said = running.said()
        if said is not None and said.status != "stopping" and not self._changed_settings(self._layout.cluster, sockets):
            self._report(f"taking over the running server, process {running.pid}")
            log = LogFile(self._layout.log)
            await_ready(running, log, log.size(), self._waiting)
            return running
        self._report(f"stopping the server that was left running, process {running.pid}")
        end(running)
        return None

    def _launch(self, runner: Runner, sockets: Path) -> Postmaster:
        self._write_settings(self._layout.cluster, runner, sockets)
        self._report(f"starting PostgreSQL {self._programs.version}")
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

    def _settings_of(self, folder: Path, sockets: Path) -> Mapping[str, str]:
        facts = Place(
            version=self._programs.version,
            built_with=self._programs.built_with,
            memory=usable_memory(),
            sockets=sockets,
            port=PORT,
            cluster_name=self._cluster_name(folder),
            connections=self._connections,
        )
        return {SETTINGS_FILE: settings_text(facts, self._settings), ACCESS_FILE: ACCESS}

    def _changed_settings(self, folder: Path, sockets: Path) -> Mapping[str, str]:
        """The files that are not as they should be, with the text that they should have."""
        wanted = self._settings_of(folder, sockets)
        return {name: text for name, text in wanted.items() if read_or_none(folder / name) != text}

    def _write_settings(self, folder: Path, runner: Runner, sockets: Path) -> None:
        for name, text in self._changed_settings(folder, sockets).items():
            place(folder / name, text, owner=runner.account.gift)


@contextlib.contextmanager
def _translated(layout: Layout) -> Iterator[None]:
    """Turn what the system refuses into a sentence about the data folder."""
    try:
        yield
    except OSError as fault:
        where = fault.filename or layout.home
        raise DataFolderRefused(
            f"{layout.data_dir} cannot be used for a database: {where}: {fault.strerror}"
        ) from fault


def running_dsn(data_dir: Path, replica: str = "r1") -> str | None:
    """The owner's address of the server that runs in that folder, started by whichever process; None if none runs.

    The server may still be recovering, and then tells each client so. Raises `EmbeddedFault` if the folder is closed
    to us.
    """
    layout = Layout(data_dir, replica)
    with _translated(layout):
        running = Postmaster.running(layout.cluster)
        said = running.said() if running is not None else None
        if said is None or not answers(said.sockets):
            return None
        credentials = read_credentials(layout.credentials)
    if credentials is None:
        raise DataFolderRefused(f"{layout.credentials} is missing; restart Relay, which sets new passwords")
    return credentials.url(Path(said.sockets))
