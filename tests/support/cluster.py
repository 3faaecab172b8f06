"""Three PostgreSQL servers, of which a commit waits for two: a primary, and two standbys that follow it.

Owns what a test does to machines: freezing and thawing them, losing them, building them anew, and the failover that an
operator (or Patroni) would do. Each server is named as its standby's `application_name` and its slot, r1 to r3, and
would as primary demand one of the two others (`ANY 1`). What Relay makes of it is not its business.

Invariants: no process and no folder of it is left behind; a failover takes the standby that has received the most, so
it keeps all that the quorum ever confirmed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import pytest

from relay.embedded import EmbeddedServer
from relay.embedded.account import Runner, account_for, find_runner
from relay.embedded.cluster import publish, scratch_folder
from relay.embedded.credentials import OWNER, PORT, SUPERUSER, Credentials, read_credentials
from relay.embedded.files import place, read_or_none
from relay.embedded.layout import Layout
from relay.embedded.postmaster import look_up, wait_until
from relay.embedded.programs import find_programs
from relay.embedded.sockets import discard_sockets, prepare_sockets
from relay.store.database import Database
from relay.store.migrate import migrate
from tests.support.installation import NotInTime, children, eventually, kill
from tests.support.postgres import throwaway_folder
from tests.support.servers import DATABASE, Servers

NAMES = ("r1", "r2", "r3")
DEADLINE = 60.0
BASE_BACKUP_SECONDS = 120.0

SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "32MB",
    "min_wal_size": "32MB",
    "wal_keep_size": "512MB",  # a standby finds what it lacks at a promoted one, which kept no slot for it
    "wal_retrieve_retry_interval": "50ms",  # a standby that lost its primary looks for the next one this often
    "dynamic_shared_memory_type": "mmap",  # in the data folder, so that nothing outlives a server that was killed
}
"""For each of the three. They sync their writes: a quorum of servers that do not is none."""

_TEMPLATE = "relay_template"
_IPC_RMID = 0


class Cluster(Servers):
    """Three servers in a folder, of which `primary` takes writes. Made by `three_servers`."""

    def __init__(self, folder: Path) -> None:
        self.primary = NAMES[0]
        self._folder = folder
        self._programs = find_programs()
        self._servers: dict[str, EmbeddedServer] = {}
        self._frozen: dict[str, list[int]] = {}
        self._numbers = count(1)

    @property
    def standbys(self) -> tuple[str, ...]:
        """The two that are not the primary, whether they live or not."""
        return tuple(name for name in NAMES if name != self.primary)

    @property
    def alive(self) -> tuple[str, ...]:
        """The servers that run, frozen ones among them."""
        return tuple(name for name in NAMES if name in self._servers and self._servers[name].alive())

    def dsn(self, database: str = OWNER, *, only: str | None = None) -> str:
        """The address for the owner, who is no superuser: of one server, or of all three, where it is the primary's."""
        names = [only] if only else [self.primary, *self.standbys]
        hosts = ",".join(quote(str(self._sockets(name))) for name in names)
        login = f"{OWNER}:{self._credentials.owner.expose()}"
        return f"postgresql://{login}@/{database}?host={hosts}&port={PORT}&target_session_attrs=read-write"

    def superuser_dsn(self, name: str, database: str = DATABASE) -> str:
        """The address of one server alone, for its superuser."""
        parts = urlsplit(self._credentials.url(self._sockets(name), superuser=True))
        return urlunsplit(parts._replace(path=f"/{database}"))

    async def alter_system(self, on: str | None = None, **settings: str | None) -> None:
        """Set settings of a server, the primary if none is named; None takes back what was set. They are in force for
        new sessions on return."""
        server = on or self.primary
        for name, value in settings.items():
            change = f"reset {name}" if value is None else f"set {name} = '{value}'"
            await self.fetch(server, f"alter system {change}")
        before = await self.value(server, "select pg_conf_load_time()")
        await self.fetch(server, "select pg_reload_conf()")

        async def reloaded() -> bool:
            return bool(await self.value(server, "select pg_conf_load_time() > $1", before))

        await eventually(reloaded, DEADLINE, f"{server} has read its settings again")

    async def rename_standby(self, name: str, to: str) -> None:
        """Have a standby call itself something else, under which nobody waits for it; `heal` takes it back."""
        conninfo = self._conninfo(name, [other for other in NAMES if other != name])
        renamed = conninfo.replace(f"application_name={name}", f"application_name={to}")
        await self.alter_system(on=name, primary_conninfo=renamed)
        await self.streams(to)

    async def part(self, *names: str) -> None:
        """Have standbys live on and follow nobody, as behind a network that is cut, until `join`."""
        for name in names:
            await self.alter_system(on=name, primary_conninfo="")
            await self._is_cut_off(name)

    async def join(self, *names: str) -> None:
        """Have standbys follow the primary again, whichever that is by now."""
        for name in names:
            await self.alter_system(on=name, primary_conninfo=None)

    # ---- machines that stop, and go on ----

    def freeze(self, *names: str) -> None:
        """Stop these servers in their tracks, the standbys if none is named: connections stay, and nothing is said."""
        for name in names or self.standbys:
            self._frozen[name] = self._stop_in_its_tracks(name)

    def thaw(self, *names: str) -> None:
        """Let these go on, all if none is named; those that were not frozen are left alone."""
        for name in names or NAMES:
            for pid in reversed(self._frozen.pop(name, [])):
                kill(pid, signal.SIGCONT)

    # ---- machines that are lost, and come back ----

    def kill(self, name: str) -> None:
        """End every process of a server at one moment, as a loss of power would; its folder stays."""
        for pid in self._stop_in_its_tracks(name):
            kill(pid, signal.SIGKILL)
        self._frozen.pop(name, None)
        server = self._servers.pop(name)
        assert wait_until(lambda: not server.alive(), DEADLINE), f"{name} does not die"
        server.stop()  # gives back what is held for it

    def destroy(self, name: str) -> None:
        """Lose a machine for good: its processes, if it has any, end at one moment, and its data folder with them."""
        cluster = self._layout(name).cluster
        segment = _shared_memory(cluster)
        if name in self._servers:
            self.kill(name)
        cluster.rename(self._lost(name))  # which takes no time, unlike removing it
        ctypes.CDLL(None).shmctl(segment, _IPC_RMID, None)  # it has no folder any more whose next server would

    async def start(self, name: str) -> None:
        """Start a server that was killed, as a standby unless it is the primary."""
        server = EmbeddedServer(self._folder, name, settings=self._settings(name))
        await asyncio.to_thread(server.start)
        self._servers[name] = server

    async def rebuild(self, name: str) -> None:
        """Make a server anew as a standby, whatever it was, from a copy of the primary; returns when it streams."""
        assert name != self.primary
        if self._layout(name).cluster.exists():
            self.destroy(name)
        await asyncio.to_thread(shutil.rmtree, self._lost(name), ignore_errors=True)
        await self._has_slot(name)
        await asyncio.to_thread(self._copy_of_the_primary, name)
        await self.start(name)
        await self.streams(name)

    async def streams(self, *names: str) -> None:
        """Return when these stream from the primary and show what it had at the call; all standbys by default.

        Raises `NotInTime`.
        """
        wanted = sorted(names or self.standbys)
        reached = await self.value(self.primary, "select pg_current_wal_flush_lsn()::text")
        query = (
            "select array_agg(application_name order by application_name) from pg_stat_replication"
            " where state = 'streaming' and replay_lsn >= $1::text::pg_lsn and application_name = any($2)"
        )

        async def all_of_them() -> bool:
            return bool(await self.value(self.primary, query, reached, wanted) == wanted)

        await eventually(all_of_them, DEADLINE, f"{wanted} stream from {self.primary}")

    async def promote_furthest(self) -> str:
        """Make the standby that has received more than the other the primary; the old one must be dead, or stand still
        and never go on.

        Answers its name when it takes writes that the quorum confirms, if the other lives to confirm them.
        """
        lost = self.primary
        assert lost not in self.alive or lost in self._frozen, "a primary that lives would go on beside the new one"
        received = {name: await self._received(name) for name in self.standbys if name in self.alive}
        chosen = max(received, key=lambda name: received[name])
        await self.fetch(chosen, "select pg_promote(true, 60)")
        self.primary = chosen
        others = [name for name in received if name != chosen]
        for other in others:
            await self._has_slot(other)
            if lost in self._frozen:  # a standby that asks it first waits for its answer for ever
                await self.alter_system(on=other, primary_conninfo=self._conninfo(other, [chosen]))
        if others:
            await self.streams(*others)
        return chosen

    async def heal(self) -> None:
        """Thaw what is frozen, take back changed settings, and make anew what is lost; returns when both stream."""
        self.thaw()
        if self.primary not in self.alive:
            await self.promote_furthest()
        changed = "select name from pg_file_settings where sourcefile like '%/postgresql.auto.conf'"
        for name in self.alive:
            if found := await self.fetch(name, changed):
                await self.alter_system(on=name, **dict.fromkeys([row["name"] for row in found]))
        for name in self.standbys:
            if name not in self.alive:
                await self.rebuild(name)
        await self.streams()
        await self.fetch(self.primary, f"alter role {OWNER} reset all")

    # ---- databases ----

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """The name of a fresh database of the owner, migrated already; dropped at the end, once the quorum is there."""
        name = await self.create_database()
        try:
            yield name
        finally:
            await self.heal()
            await self.fetch(self.primary, f"drop database {name} with (force)")

    async def create_database(self) -> str:
        """Make such a database, for as long as there is the cluster; answers its name."""
        name = f"relay_{next(self._numbers)}"
        await self.fetch(self.primary, f"create database {name} template {_TEMPLATE} owner {OWNER}")
        await self.streams()
        return name

    # ---- from nothing, and back to it ----

    async def begin(self) -> None:
        """Make the three servers and the template of their databases."""
        await self.start(self.primary)
        self.kill(self.primary)
        await self.start(self.primary)
        for name in self.standbys:
            await self.rebuild(name)
        await self.fetch(self.primary, f"create database {_TEMPLATE} owner {OWNER}")
        database = await Database.connect(self.dsn(_TEMPLATE), name="relay-tests", size=1)
        try:
            await migrate(database)
        finally:
            await database.close()

    def end(self) -> None:
        """End everything that runs; the folders are left to whoever made them."""
        self.thaw()
        for name in NAMES:
            if self._layout(name).cluster.exists():
                shutil.rmtree(self._lost(name), ignore_errors=True)
                self.destroy(name)
            discard_sockets(self._sockets(name))

    # ---- the parts ----

    def _layout(self, name: str) -> Layout:
        return Layout(self._folder, name)

    def _lost(self, name: str) -> Path:
        """What a data folder is called that counts as gone; in the way of nothing, and removed with all the rest."""
        return self._layout(name).home / f"{name}.lost"

    def _sockets(self, name: str) -> Path:
        layout = self._layout(name)
        return prepare_sockets(layout, account_for(layout.cluster))

    @property
    def _credentials(self) -> Credentials:
        credentials = read_credentials(self._layout(NAMES[0]).credentials)
        assert credentials is not None, "the first server makes the passwords of all"
        return credentials

    def _settings(self, name: str) -> Mapping[str, str]:
        """What a server is told: whom it follows as a standby, and for whom it waits as the primary."""
        if not self._layout(name).cluster.exists():  # roles are made in it first, which would wait for standbys
            return SETTINGS
        others = [other for other in NAMES if other != name]
        return {
            **SETTINGS,
            "synchronous_standby_names": f"ANY 1 ({', '.join(others)})",
            "primary_slot_name": name,
            "primary_conninfo": self._conninfo(name, others),
        }

    def _conninfo(self, name: str, of: list[str]) -> str:
        hosts = ",".join(str(self._sockets(other)) for other in of)
        return (
            f"host={hosts} port={PORT} user={SUPERUSER} password={self._credentials.superuser.expose()}"
            f" application_name={name} target_session_attrs=read-write"
        )

    def _runner(self, layout: Layout) -> Runner:
        account = account_for(layout.cluster)
        probe = scratch_folder(layout, account)
        place(probe / "postgresql.conf", "", owner=account.gift)
        try:
            return find_runner(account, self._programs, probe)
        finally:
            shutil.rmtree(probe)

    def _copy_of_the_primary(self, name: str) -> None:
        layout = self._layout(name)
        runner = self._runner(layout)
        folder = scratch_folder(layout, runner.account)
        runner.run(
            "pg_basebackup",
            f"--dbname={self._conninfo(name, [self.primary])}",
            f"--pgdata={folder}",
            f"--slot={name}",
            "--wal-method=stream",
            "--checkpoint=fast",
            "--no-sync",
            "--no-manifest",
            seconds=BASE_BACKUP_SECONDS,
        )
        place(folder / "standby.signal", "", owner=runner.account.gift)
        place(folder / "postgresql.auto.conf", "", owner=runner.account.gift)
        publish(folder, layout)

    async def _has_slot(self, name: str) -> None:
        """See to it that the primary has a slot for a standby, which nobody uses any more."""
        exists = "select from pg_replication_slots where slot_name = $1"
        if not await self.fetch(self.primary, exists, name):
            await self.fetch(self.primary, "select pg_create_physical_replication_slot($1::text, true)", name)

        async def free() -> bool:
            return not await self.fetch(self.primary, f"{exists} and active", name)

        if name not in self.alive:
            await eventually(free, DEADLINE, f"the primary has noticed that {name} is gone")

    async def _received(self, name: str) -> int:
        """How far a standby has what the lost primary sent, once nothing more can come."""
        await self._is_cut_off(name)
        reached = "select greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn"
        return int(await self.value(name, reached))

    async def _is_cut_off(self, name: str) -> None:
        """Return when a standby receives nothing any more."""
        receiver = "select from pg_stat_wal_receiver where status = 'streaming'"

        async def cut_off() -> bool:
            return not await self.fetch(name, receiver)

        await eventually(cut_off, DEADLINE, f"{name} receives nothing any more")

    def _stop_in_its_tracks(self, name: str) -> list[int]:
        """Stop a server and then its children, since only it makes new ones; answers all of them."""
        if name in self._frozen:
            return self._frozen[name]
        pids = [self._servers[name].pid]
        _stop(pids)
        pids += children(pids[0])
        _stop(pids)
        return pids


def _stop(pids: list[int]) -> None:
    for pid in pids:
        kill(pid, signal.SIGSTOP)
    if not wait_until(lambda: not any(map(_goes_on, pids)), DEADLINE):
        raise NotInTime(f"not within {DEADLINE:g} s: {pids} stand still")


def _goes_on(pid: int) -> bool:
    """Whether a process could still do something."""
    if look_up(pid) is None:
        return False
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TtZX"
    return False


def _shared_memory(cluster: Path) -> int:
    """The number of the segment by which a server knows its folder to be in use; -1, which is nobody's, if unknown."""
    lines = (read_or_none(cluster / "postmaster.pid") or "").splitlines() + [""] * 7
    _, _, number = lines[6].strip().rpartition(" ")
    return int(number) if number else -1


@contextmanager
def three_servers() -> Iterator[Cluster]:
    """Three servers that stream, in a folder of their own; everything is gone at the end of the block."""
    with throwaway_folder() as folder:
        cluster = Cluster(folder)
        try:
            asyncio.run(cluster.begin())
            yield cluster
        finally:
            cluster.end()


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[Cluster]:
    """Three servers for all tests that need them; `cluster` is what a test asks for."""
    with three_servers() as cluster:
        yield cluster


@pytest.fixture
async def cluster(session_cluster: Cluster) -> AsyncIterator[Cluster]:
    """Three servers of which both standbys stream, whatever the test before has done to them."""
    await session_cluster.heal()
    yield session_cluster
    session_cluster.thaw()


@pytest.fixture
async def cluster_database(cluster: Cluster) -> AsyncIterator[str]:
    """The name of a fresh, migrated database of one test."""
    async with cluster.database() as name:
        yield name
