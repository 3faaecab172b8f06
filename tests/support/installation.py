"""Relay's real processes, for the tests of the whole: started, watched, stopped, killed, and never left behind.

An installation is a database and the commands that run on it, each with an environment of its own in which nothing is
inherited but the PATH. Its folder is the processes' HOME, which is also how they are found again, workers and all.
Every wait has a deadline; what a test learns from a database or a page, it asks for again until it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sysconfig
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import httpx

from relay.store.vault import new_key

START_SECONDS = 90.0
"""Far more than a start takes; the machine may be busy with other tests."""

STOP_SECONDS = 60.0
GONE_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 0.03
LOG_TAIL_BYTES = 6_000

RELAY = Path(sysconfig.get_path("scripts")) / "relay"
LOOPBACK = "127.0.0.1"

FAST = {
    "RELAY_ALLOW_PRIVATE_ENDPOINTS": "true",
    "RELAY_CONNECT_TIMEOUT_SECS": "3",
    "RELAY_READ_TIMEOUT_SECS": "5",
    "RELAY_TOTAL_TIMEOUT_SECS": "5",
    "RELAY_LEASE_SECS": "11",
    "RELAY_RETRY_BASE_SECS": "0.1",
    "RELAY_RETRY_MAX_SECS": "0.5",
    "RELAY_RETRY_MAX_ATTEMPTS": "100",
    "RELAY_HEARTBEAT_SECS": "1",
    "RELAY_LOG_FORMAT": "json",
}
"""Settings with which an installation of the tests differs from a person's: endpoints on loopback, quick retries."""

BRIEF_LEASE = {
    "connect_timeout_secs": "1",
    "read_timeout_secs": "1",
    "total_timeout_secs": "1",
    "lease_secs": "6.1",
}
"""For a dispatcher: the shortest lease that its rules allow. What a dead process held comes back soon."""

UNLIMITED = {"rate_per_second": 100_000, "burst": 100_000, "max_in_flight": 64}
"""Fields of an endpoint that no rate holds back."""

Answer = TypeVar("Answer")


TRUSTING_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of plain HTTP, which need no authorities: reading those takes longer than most calls."""


class NotInTime(AssertionError):
    """Something did not come true within its deadline."""


async def eventually(ask: Callable[[], Awaitable[Answer]], within: float, what: str) -> Answer:
    """Ask again and again until the answer is true, and return it. Raises `NotInTime` with the last answer."""
    ends = time.monotonic() + within
    while True:
        answer = await ask()
        if answer:
            return answer
        if time.monotonic() > ends:
            raise NotInTime(f"not within {within:g} s: {what} (last: {answer!r})")
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


def free_port() -> int:
    """A port of loopback that nobody listens on, outside of those that the system gives to connections by itself.

    Tests that run side by side choose from different ports: between here and listening, another could choose the same.
    """
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(10_000 + worker % workers, 65_000, workers)
        if low <= port <= high:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            return port


class Service:
    """One command that runs until it is stopped, with its workers. What it prints is kept; its log is a file.

    `through` is a command that becomes it. A start is not waited for, so several go on at once; asking where it
    listens, or for a worker, waits.
    """

    def __init__(
        self,
        name: str,
        words: tuple[str, ...],
        environment: Mapping[str, str],
        log: Path,
        through: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.log = log
        self._command = [*through, str(RELAY), *words]
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._changed = threading.Condition()
        self._printed: list[dict[str, Any]] = []
        self._silent = False

    def __str__(self) -> str:
        return self.name

    @property
    def pid(self) -> int:
        """The process of the command itself, the parent of the workers."""
        assert self._process is not None, "the service was never started"
        return self._process.pid

    @property
    def started(self) -> dict[str, Any]:
        """What it printed when it ran; waits until it does. Raises `AssertionError`."""
        return self.wait_for(lambda record: "running" in record, START_SECONDS, "says that it runs")

    @property
    def url(self) -> str:
        """Where it listens."""
        started = self.started
        return str(started.get("url") or started["api"])

    def give(self, **settings: str) -> None:
        """Settings for its next start, without their prefix, in lower case."""
        self._environment |= {f"RELAY_{name.upper()}": value for name, value in settings.items()}

    def start(self) -> None:
        """Start the command, or start it once more after an end, without waiting for anything."""
        assert self._process is None or self._process.poll() is not None, f"{self} runs already"
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=self.log.parent,
                start_new_session=True,
            )
        with self._changed:  # whoever still reads what the last process printed has no say any more
            self._process, self._printed, self._silent = process, [], False
        threading.Thread(target=self._read, args=(process,), name=f"reads {self}", daemon=True).start()

    def wait_for(self, is_it: Callable[[dict[str, Any]], bool], within: float, what: str) -> dict[str, Any]:
        """Wait for a JSON line on its stdout. Raises `AssertionError`."""
        with self._changed:
            self._changed.wait_for(lambda: self._silent or any(map(is_it, self._printed)), within)
            found = next(filter(is_it, self._printed), None)
            printed = list(self._printed)
        if found is None:
            raise NotInTime(f"not within {within:g} s: {self} {what}; it printed {printed}, then\n{self.log_tail()}")
        return found

    def workers(self) -> dict[int, int]:
        """The process number of each slot's worker, of those alive now."""
        found = {}
        for pid in children(self.pid):
            words = _command_line(pid)
            slots = [int(word.removeprefix("--slot=")) for word in words if word.startswith("--slot=")]
            found.update(dict.fromkeys(slots, pid))
        return found

    def worker(self, slot: int = 0) -> int:
        """The process number of one worker, of a command that runs. Raises `KeyError` while it has none."""
        assert self.started
        return self.workers()[slot]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command itself."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, within: float = STOP_SECONDS) -> int:
        """Wait for its end; answers the exit status. Raises `AssertionError`."""
        assert self._process is not None
        try:
            return self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise NotInTime(f"not within {within:g} s: {self} ends\n{self.log_tail()}") from None

    def stop(self, within: float = STOP_SECONDS) -> int:
        """Ask it to stop, once it runs, and wait until it has; answers the exit status. Raises `AssertionError`."""
        assert self.started
        self.signal(signal.SIGTERM)
        return self.wait(within)

    def kill(self) -> None:
        """Kill the command and its workers, as if the machine had lost power."""
        workers = list(self.workers().values())
        self.signal(signal.SIGKILL)
        for pid in workers:
            kill(pid, signal.SIGKILL)
        self.wait()

    def is_running(self) -> bool:
        """Whether the command itself has not ended."""
        return self._process is not None and self._process.poll() is None

    def log_tail(self) -> str:
        """The end of its log."""
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            return f"--- end of the log of {self} ---\n{log.read().decode(errors='replace')}"

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Keep what is printed until nobody can print any more."""
        assert process.stdout is not None
        with process.stdout as out:
            for line in out:
                with self._changed, contextlib.suppress(ValueError):
                    self._printed.append(json.loads(line))
                    self._changed.notify_all()
        with self._changed:
            if process is self._process:
                self._silent = True
                self._changed.notify_all()


class Installation:
    """One Relay: its database, its keys, and what runs of it. Close it at the end, whatever happened."""

    def __init__(self, folder: Path, dsn: str | None, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.dsn = dsn
        self.services: list[Service] = []
        self.environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
            "TMPDIR": str(folder),
            **FAST,
        }
        self.environment["RELAY_DATA_DIR"] = str(folder / "data")
        if dsn is not None:
            self.environment |= {"DATABASE_URL": dsn, "RELAY_SECRET_KEYS": new_key().expose()}
        self.environment |= settings or {}

    def gateway(self, **settings: str) -> Service:
        """Start a gateway on a port of its own. Settings are given without their prefix, in lower case."""
        settings = {"bind": f"{LOOPBACK}:{free_port()}", **settings}
        return self._start("gateway", ("gateway",), settings)

    def dispatcher(self, **settings: str) -> Service:
        """Start a dispatcher, with its metrics on a port of its own."""
        settings = {"metrics_bind": f"{LOOPBACK}:{free_port()}", **settings}
        return self._start("dispatcher", ("dispatcher",), settings)

    def up(self, *words: str, **settings: str) -> Service:
        """Start everything on this machine by one command, on free ports."""
        binds = {name: f"{LOOPBACK}:{free_port()}" for name in ("bind", "metrics_bind", "testkit_bind")}
        return self._start("up", ("up", *words), {**binds, **settings})

    def run(self, *words: str, within: float = START_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; its status is not judged."""
        return subprocess.run(
            [str(RELAY), *words],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
        )

    def processes(self) -> list[int]:
        """Every process of this installation that is alive, workers and orphans and all."""
        mark = f"HOME={self.folder}".encode()
        return [pid for pid in _everyone() if mark in _environment(pid)]

    async def no_strays(self) -> None:
        """Return when no process is alive but the running services and their workers. Raises `NotInTime`."""

        async def none() -> bool:
            running = [service for service in self.services if service.is_running()]
            known = {service.pid for service in running}
            known.update(*(service.workers().values() for service in running))
            return known.issuperset(self.processes())

        await eventually(none, GONE_SECONDS, "no process has outlived its service")

    async def fetch(self, sql: str, *arguments: object) -> list[asyncpg.Record]:
        """Ask the database."""
        assert self.dsn is not None
        connection = await asyncpg.connect(self.dsn, timeout=START_SECONDS)
        try:
            return list(await connection.fetch(sql, *arguments))
        finally:
            await connection.close()

    async def all_answering(self) -> None:
        """Have the dispatchers take every endpoint for one that answers, which gets several requests at once."""
        await self.fetch("update endpoint_state set answered_at = now()")

    async def value(self, sql: str, *arguments: object) -> Any:
        """The first column of the first row."""
        return (await self.fetch(sql, *arguments))[0][0]

    async def all_closed(self, receipts: int, within: float) -> None:
        """Return when there are so many receipts and each has closed as delivered. Raises `NotInTime`."""

        counts = "select count(*), count(*) filter (where outcome = 'delivered') from receipts where void_at is null"

        async def closed() -> bool:
            return tuple((await self.fetch(counts))[0]) == (receipts, receipts)

        try:
            await eventually(closed, within, f"{receipts} receipts closed as delivered")
        except NotInTime as late:
            outcomes = await self.fetch("select outcome::text, count(*) from receipts group by 1")
            states = await self.fetch(
                "select status::text, attempts, last_error, count(*) from deliveries group by 1, 2, 3"
            )
            raise NotInTime(f"{late}\nreceipts: {outcomes}\ndeliveries: {states}") from None

    def log_tails(self) -> str:
        """The ends of all logs."""
        return "\n".join(service.log_tail() for service in self.services)

    def close(self) -> None:
        """End every process, the gentle way first. Raises `AssertionError` if one has to be killed."""
        for service in self.services:
            if service.is_running():
                for pid in service.workers().values():
                    kill(pid, signal.SIGCONT)
                service.signal(signal.SIGTERM)
        ends = time.monotonic() + STOP_SECONDS
        while self.processes() and time.monotonic() < ends:
            time.sleep(LOOK_AGAIN_SECONDS)
        left = self.processes()
        for pid in left:
            kill(pid, signal.SIGKILL)
        for service in self.services:
            service.wait(GONE_SECONDS)
        assert not left, f"processes {left} had to be killed\n{self.log_tails()}"

    def _start(self, kind: str, words: tuple[str, ...], settings: Mapping[str, str]) -> Service:
        number = sum(service.name.startswith(kind) for service in self.services)
        name = f"{kind}-{number}"
        environment = self.environment | {f"RELAY_{key.upper()}": value for key, value in settings.items()}
        service = Service(name, words, environment, self.folder / f"{name}.log")
        self.services.append(service)
        service.start()
        return service


@contextmanager
def api(service: Service) -> Iterator[httpx.Client]:
    """A client of a gateway."""
    with httpx.Client(base_url=service.url, timeout=30.0, trust_env=False, verify=TRUSTING_NOBODY) as client:
        yield client


def add_endpoint(service: Service, url: str, **fields: object) -> dict[str, Any]:
    """Create an endpoint that no rate holds back; answers it, its secret included."""
    with api(service) as client:
        answer = client.post("/v1/endpoints", json={"url": url, **UNLIMITED, **fields})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def post(service: Service, body: bytes, **headers: str) -> httpx.Response:
    """Post one event; underscores in header names stand for dashes."""
    sent = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    with api(service) as client:
        return client.post("/v1/events", content=body, headers=sent)


def metrics(service: Service) -> dict[str, float]:
    """What a service's `/metrics` says, by name and labels as they stand there."""
    with api(service) as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    samples = (line.rpartition(" ") for line in answer.text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def kill(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process of ours that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


async def replaced(service: Service, killed: int) -> int:
    """Wait for the successor of a killed worker; answers its process number."""

    async def successor() -> int | None:
        found = service.workers().get(0)
        return None if found == killed else found

    found = await eventually(successor, START_SECONDS, f"{service} has a new worker")
    assert found is not None
    return found


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _everyone() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    """The environment of a live process; empty for one that is gone, a zombie or not ours to look at."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def children(parent: int) -> list[int]:
    found = []
    for pid in _everyone():
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found += [pid] if int(fields[1]) == parent else []
    return found
