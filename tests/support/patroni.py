"""Three PostgreSQL servers under Patroni, with etcd, as `ops/patroni` sets them up: real processes on this machine.

Owns what a test does to nodes: killing and freezing them, starting them again, asking who leads. Who becomes the
leader, and how a lost one comes back, is Patroni's alone. Each node has the two files of `ops/patroni` in a folder; of
the second one, which is a node's own, addresses and folders are those of this machine.

Invariant: no process and no folder of it is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import pytest

from relay.embedded.account import Runner, Way, current_account, service_account
from relay.embedded.postmaster import look_up, read_pid_file, wait_until
from relay.embedded.programs import find_programs
from tests.support.debian import unpacked
from tests.support.installation import LOOPBACK, NotInTime, children, eventually, free_port, kill
from tests.support.npm import kept_folder
from tests.support.postgres import throwaway_folder
from tests.support.prometheus import read_yaml
from tests.support.servers import DATABASE, Servers

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops" / "patroni"
NAMES = ("node1", "node2", "node3")
DEADLINE = 120.0
"""Far more than anything here takes; the machine may be busy."""

STOP_SECONDS = 60.0
ROLE, PASSWORD = "relay", "not-a-secret"
SUPERUSER = "postgres"

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Tools:
    """The programs, and what runs them under an account that is not root's."""

    patroni: Path
    etcd: Path
    runner: Runner


def find_tools(config: pytest.Config, factory: pytest.TempPathFactory) -> Tools:
    """Patroni from `make test-ha`'s environment or the machine's, etcd from the machine or Debian's package.

    Skips the test where one cannot be had.
    """
    made = ROOT / ".venv-ha" / "bin" / "patroni"
    found = str(made) if made.exists() else shutil.which("patroni")
    if found is None:
        pytest.skip("missing tool: patroni, which `make test-ha` installs")
    etcd = shutil.which("etcd")
    if etcd is None:
        etcd = str(unpacked("etcd-server", kept_folder("etcd", config, factory)) / "usr" / "bin" / "etcd")
    return Tools(Path(found), Path(etcd), find_runner())


def find_runner() -> Runner:
    """What runs the programs. Root's own folders, where Python may lie, are shut to the account that they run under."""
    if os.geteuid() == 0:
        return Runner(service_account(), find_programs(), Way.READING_ANYWHERE)
    return Runner(current_account(), find_programs(), Way.AS_WE_ARE)


class Patroni(Servers):
    """The three nodes and their etcd, in a folder. Made by `patroni_nodes`."""

    def __init__(self, folder: Path, tools: Tools) -> None:
        self._folder = folder
        self._tools = tools
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._frozen: dict[str, list[int]] = {}
        self._postgres = {name: free_port() for name in NAMES}
        self._rest = {name: free_port() for name in NAMES}
        self._etcd = (free_port(), free_port())
        self._numbers = count(1)

    # ---- addresses ----

    def dsn(self, database: str) -> str:
        """The address for Relay's role, which names all three and leads to the one that takes writes."""
        hosts = ",".join(f"{LOOPBACK}:{self._postgres[name]}" for name in NAMES)
        return f"postgresql://{ROLE}:{quote(PASSWORD)}@{hosts}/{database}?target_session_attrs=read-write"

    def superuser_dsn(self, name: str, database: str = DATABASE) -> str:
        """The address of one node for its superuser."""
        return f"postgresql://{SUPERUSER}:{quote(PASSWORD)}@{LOOPBACK}:{self._postgres[name]}/{database}"

    def port(self, name: str) -> int:
        """The port of one node's server."""
        return self._postgres[name]

    # ---- questions ----

    async def ask(self, name: str, path: str) -> httpx.Response | None:
        """What a node's Patroni answers, None if nothing."""
        async with httpx.AsyncClient(trust_env=False, timeout=3.0) as client:
            with contextlib.suppress(httpx.HTTPError):
                return await client.get(f"http://{LOOPBACK}:{self._rest[name]}{path}")
        return None

    async def leads(self, name: str) -> bool:
        """Whether a node says that it is the leader."""
        answer = await self.ask(name, "/primary")
        return answer is not None and answer.status_code == 200

    async def leader(self, *, but: str | None = None) -> str:
        """The leader, once there is one, that is not `but`. Raises `NotInTime`."""

        async def found() -> str | None:
            for name in NAMES:
                if name != but and name not in self._frozen and await self.leads(name):
                    return name
            return None

        answer = await self._eventually(found, f"there is a leader that is not {but}")
        assert answer is not None
        return answer

    async def whole(self) -> str:
        """Return when two standbys stream from the leader and either may be promoted; answers the leader.

        The server waits for a standby a moment before Patroni has written down that it may be promoted.
        """

        async def both() -> str | None:
            name = await self.leader()
            members = [] if (answer := await self.ask(name, "/cluster")) is None else answer.json()["members"]
            ready = [each for each in members if each["role"] == "quorum_standby" and each["state"] == "streaming"]
            return name if len(ready) == 2 else None

        answer = await self._eventually(both, "both standbys stream as members of a quorum")
        assert answer is not None
        return answer

    async def names_waited_for(self, name: str) -> str:
        """The server's list of standbys."""
        return str(await self.value(name, "show synchronous_standby_names"))

    async def configure(self, **changes: object) -> None:
        """Change what is in force for the whole cluster, as `patronictl edit-config` does."""
        async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
            at = f"http://{LOOPBACK}:{self._rest[await self.leader()]}/config"
            answer = await client.patch(at, json=changes)
        assert answer.status_code == 200, answer.text

    async def switch_over(self) -> str:
        """Have another node lead, as an operator does before work on a machine; answers which."""
        before = await self.leader()
        async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as client:
            at = f"http://{LOOPBACK}:{self._rest[before]}/switchover"
            answer = await client.post(at, json={"leader": before})
        assert answer.status_code == 200, answer.text
        return await self.leader(but=before)

    # ---- nodes that are lost, stand still, and come back ----

    def start(self, name: str) -> None:
        """Start a node's Patroni, which starts its server."""
        assert name not in self._running
        log = (self._folder / f"{name}.log").open("ab")
        with log:
            self._running[name] = subprocess.Popen(
                self._tools.runner.command(str(self._tools.patroni), str(self._folder / name)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={
                    "PATH": f"{self._tools.patroni.parent}:{os.environ.get('PATH', os.defpath)}",
                    "HOME": str(self._folder),
                    "LC_ALL": "C.UTF-8",
                    "PATRONI_SUPERUSER_PASSWORD": PASSWORD,
                    "PATRONI_REPLICATION_PASSWORD": PASSWORD,
                    "PATRONI_REWIND_PASSWORD": PASSWORD,
                },
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """End Patroni and every process of its server at one moment, as a loss of power would; the folder stays."""
        self.freeze(name)
        self._end_frozen(name)
        self._running.pop(name).wait(STOP_SECONDS)

    def kill_server(self, name: str) -> None:
        """End every process of a node's server at one moment, and leave its Patroni to find out."""
        pids = self._server(name)
        _stop(pids)
        for pid in pids:
            kill(pid, signal.SIGKILL)

    def freeze(self, name: str) -> None:
        """Stop a node in its tracks, Patroni and all, as the host of a virtual machine does that moves it."""
        pids = [self._running[name].pid]
        _stop(pids)
        pids += self._server(name)
        _stop(pids)
        self._frozen[name] = pids

    def thaw(self, name: str) -> None:
        """Let a node go on that was frozen."""
        for pid in self._frozen.pop(name):
            kill(pid, signal.SIGCONT)

    def kill_etcd(self) -> None:
        """End etcd at once; what it knows stays in its folder."""
        process = self._running.pop("etcd")
        kill(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS)

    def start_etcd(self) -> None:
        """Start etcd, one member: with it, all of it comes and goes."""
        clients, peers = (f"http://{LOOPBACK}:{port}" for port in self._etcd)
        with (self._folder / "etcd.log").open("ab") as log:
            self._running["etcd"] = subprocess.Popen(
                self._tools.runner.command(
                    str(self._tools.etcd),
                    "--name=etcd1",
                    f"--data-dir={self._folder / 'etcd'}",
                    f"--listen-client-urls={clients}",
                    f"--advertise-client-urls={clients}",
                    f"--listen-peer-urls={peers}",
                    f"--initial-advertise-peer-urls={peers}",
                    f"--initial-cluster=etcd1={peers}",
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={"PATH": os.defpath, "HOME": str(self._folder)},
                start_new_session=True,
            )

    # ---- from nothing, and back to it ----

    async def begin(self) -> None:
        """Start etcd and the nodes, and make Relay's role, as docs/deployment.md says."""
        for name in NAMES:
            self._configure(name)
        self._give(self._folder)
        self.start_etcd()
        await asyncio.to_thread(self._etcd_answers)
        for name in NAMES:
            self.start(name)
        leader = await self.whole()
        await self.fetch(leader, f"create role {ROLE} login password '{PASSWORD}'")
        await self.fetch(leader, f"grant pg_monitor to {ROLE}")
        await self.whole()

    async def create_database(self) -> str:
        """Make an empty database of Relay's role; answers its name."""
        name = f"relay_{next(self._numbers)}"
        await self.fetch(await self.whole(), f"create database {name} owner {ROLE}")
        return name

    def end(self) -> None:
        """End everything that runs."""
        for name in [*NAMES, "etcd"]:
            if name in self._running and name not in self._frozen:
                if name == "etcd":
                    self.kill_etcd()
                else:
                    self.kill(name)
            elif name in self._running:
                self._end_frozen(name)
                self._running.pop(name).wait(STOP_SECONDS)

    def log_tails(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"--- {path.name} ---\n{_tail(path)}" for path in sorted(self._folder.glob("node*.log")))

    # ---- the parts ----

    def _configure(self, name: str) -> None:
        """A node's folder of settings: the file that all have in common as it stands, and this node's own."""
        own: dict[str, Any] = read_yaml(OPS / "node.yml")
        rest, server = (f"{LOOPBACK}:{ports[name]}" for ports in (self._rest, self._postgres))
        own["name"] = name
        own["restapi"] = {"listen": rest, "connect_address": rest}
        own["etcd3"]["hosts"] = [f"{LOOPBACK}:{self._etcd[0]}"]
        own["postgresql"] |= {
            "listen": server,
            "connect_address": server,
            "data_dir": str(self._folder / f"{name}-data"),
            "bin_dir": str(find_programs().folder),
            "parameters": {
                "unix_socket_directories": "",
                "dynamic_shared_memory_type": "mmap",  # nothing outlives a server that was killed
                "shared_buffers": "32MB",
            },
        }
        own["watchdog"] = {"mode": "off"}
        folder = self._folder / name
        folder.mkdir()
        shutil.copyfile(OPS / "patroni.yml", folder / "10-patroni.yml")
        (folder / "20-node.yml").write_text(json.dumps(own))  # which is YAML, too

    async def _eventually(self, ask: Callable[[], Awaitable[Answer]], what: str) -> Answer:
        """Wait for it; if it does not come, with what the nodes say last. Raises `NotInTime`."""
        try:
            return await eventually(ask, DEADLINE, what)
        except NotInTime as late:
            raise NotInTime(f"{late}\n{self.log_tails()}") from None

    def _give(self, folder: Path) -> None:
        if (gift := self._tools.runner.account.gift) is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, *gift)

    def _etcd_answers(self) -> None:
        def healthy() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                url = f"http://{LOOPBACK}:{self._etcd[0]}/health"
                return httpx.get(url, trust_env=False, timeout=3.0).status_code == 200
            return False

        if not wait_until(healthy, DEADLINE):
            raise NotInTime(f"etcd does not answer\n{_tail(self._folder / 'etcd.log')}")

    def _server(self, name: str) -> list[int]:
        """The processes of a node's server, the postmaster first; none if it does not run."""
        said = read_pid_file(self._folder / f"{name}-data")
        found = None if said is None else look_up(said.pid)
        if found is None or not any("postgres" in word for word in found.words):
            return []
        _stop([found.pid])  # so that it makes no more
        return [found.pid, *children(found.pid)]

    def _end_frozen(self, name: str) -> None:
        pids = self._frozen.pop(name)
        for pid in pids:
            kill(pid, signal.SIGKILL)
        if not wait_until(lambda: not any(look_up(pid) for pid in pids[1:]), DEADLINE):
            raise NotInTime(f"{name} does not die")


def _stop(pids: list[int]) -> None:
    for pid in pids:
        kill(pid, signal.SIGSTOP)


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-40:])


@contextmanager
def patroni_nodes(tools: Tools) -> Iterator[Patroni]:
    """Three nodes of which two stream from the leader; everything is gone at the end of the block."""
    with throwaway_folder() as held:
        folder = held / "patroni"
        folder.mkdir(mode=0o711)
        held.chmod(0o711)
        nodes = Patroni(folder, tools)
        try:
            asyncio.run(nodes.begin())
            yield nodes
        finally:
            nodes.end()
