"""What a measurement runs on: servers of its own with durable defaults, a key, and Relay's processes.

Owns the temporary folder and everything started in it. Invariant: nothing of it is left after the block.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from relay.embedded import EmbeddedFault, EmbeddedReplicas, running_dsn
from relay.loadtest import backlog
from relay.loadtest.accounting import MACHINE, POSTGRES, Spent, machine_seconds, tree_seconds
from relay.loadtest.backlog import Shape
from relay.loadtest.children import Child, child
from relay.store.database import Database
from relay.store.examination import Examination
from relay.store.health import Health
from relay.store.migrate import migrate
from relay.store.vault import Vault, new_key

Tell = Callable[[str], None]

NOWHERE = "http://127.0.0.1:1/none"
"""The url of endpoints that nothing is to be sent to."""

IN_FLIGHT = 256
"""Requests under way per endpoint and dispatcher: as many as Relay allows."""

DEFAULT_IN_FLIGHT = 32
"""The same for an endpoint that nobody set up for a measurement."""


class Installation:
    """A database to measure on; use `installation` to make one.

    Processes started on it have `settings` beside those that every measurement needs; endpoints made on it may have
    `in_flight` requests under way.
    """

    def __init__(self, servers: EmbeddedReplicas, dsn: str, folder: Path, tell: Tell) -> None:
        self._servers = servers
        self.dsn = dsn
        self.folder = folder
        self.tell = tell
        self.settings: dict[str, str] = {}
        self.in_flight = IN_FLIGHT
        self._key = new_key()
        self._vault = Vault([self._key])

    @property
    def superuser_dsn(self) -> str:
        """The address of its first server for the superuser, for what no Relay may do."""
        return self._servers.superuser_dsn("r1")

    def postgres_seconds(self) -> float:
        """What processor time all its servers have taken so far."""
        return sum(tree_seconds(pid) for pid in self._servers.pids)

    async def spent(self, **parties: Child) -> Spent:
        """The clocks of now: of these processes with their children, of the servers, and of the whole machine."""
        database = await self.looking()
        try:
            return await self.spent_by(
                {name: tree_seconds(party.pid) for name, party in parties.items()}, Health(database)
            )
        finally:
            await database.close()

    async def spent_by(self, cpu: Mapping[str, float], health: Health) -> Spent:
        """The clocks of now, those of other parties given."""
        log = await health.log()
        servers = {POSTGRES: self.postgres_seconds(), MACHINE: machine_seconds()}
        return Spent(time.monotonic(), {**cpu, **servers}, log)

    async def looking(self) -> Database:
        """A connection to look with, for whoever closes it."""
        return await Database.connect(self.dsn, name="relay-bench", size=1)

    @contextlib.contextmanager
    def dispatcher(self, workers: int, *, quorum: int = 1) -> Iterator[Child]:
        """Dispatcher processes inside the block."""
        log = self.folder / "dispatcher.log"
        environ = self._environ(RELAY_METRICS_BIND="127.0.0.1:0", RELAY_JOURNAL_QUORUM=str(quorum))
        with child("relay", "dispatcher", "--workers", str(workers), environ=environ, log=log) as running:
            yield running

    @contextlib.contextmanager
    def gateway(self, bind: str, workers: int, *, quorum: int = 1) -> Iterator[Child]:
        """Gateway processes inside the block."""
        log = self.folder / "gateway.log"
        environ = self._environ(RELAY_BIND=bind, RELAY_JOURNAL_QUORUM=str(quorum))
        with child("relay", "gateway", "--workers", str(workers), environ=environ, log=log) as running:
            yield running

    async def subscribe(self, urls: Sequence[str], *, of_a_type: int | None = None) -> None:
        """Leave endpoints of these urls as the only ones, for all events or so many for each type."""
        await self._prepare(urls, None, of_a_type=of_a_type)

    async def owe(self, urls: Sequence[str], events: int, payload_bytes: int) -> None:
        """Add endpoints of these urls, and so many events owed to each; posts do not go to them."""
        database = await Database.connect(self.dsn, name="relay-bench", size=2)
        try:
            added = await backlog.add_endpoints(
                database, self._vault, urls, name="owed", max_in_flight=DEFAULT_IN_FLIGHT
            )
            shape = Shape(events * len(urls), len(urls), payload_bytes)
            await backlog.fill(database, self._vault, added, shape)
        finally:
            await database.close()

    async def fill(self, url: str, shape: Shape) -> None:
        """The same, with a backlog of events owed to them."""
        await self._prepare([url] * shape.endpoints, shape)

    async def owed(self) -> int:
        """How many deliveries are pending or in flight."""
        database = await self.looking()
        try:
            return await Health(database).owed()
        finally:
            await database.close()

    async def version(self) -> str:
        """The version of its server."""
        database = await Database.connect(self.dsn, name="relay-bench", size=1)
        try:
            return (await Examination(database).server()).version
        finally:
            await database.close()

    async def migrate(self) -> None:
        """Give the database its tables, if it has none."""
        database = await self.looking()
        try:
            await migrate(database)
        finally:
            await database.close()

    async def _prepare(self, urls: Sequence[str], shape: Shape | None, *, of_a_type: int | None = None) -> None:
        await self.migrate()
        database = await Database.connect(self.dsn, name="relay-bench", size=2)
        try:
            await backlog.remove_endpoints(database, self._vault)
            endpoints = await backlog.add_endpoints(
                database, self._vault, urls, name="sink", max_in_flight=self.in_flight, of_a_type=of_a_type
            )
            if shape is not None:
                self.tell(f"filling a backlog of {shape.events:,}")
                await backlog.fill(database, self._vault, endpoints, shape)
        finally:
            await database.close()

    def _environ(self, **settings: str) -> dict[str, str]:
        return {
            "DATABASE_URL": self.dsn,
            "RELAY_SECRET_KEYS": self._key.expose(),
            "RELAY_ALLOW_PRIVATE_ENDPOINTS": "true",
            "RELAY_LOG_LEVEL": "warning",
            **self.settings,
            **settings,
        }


@contextlib.contextmanager
def installation(tell: Tell, *, servers: int = 1, quorum: int = 1) -> Iterator[Installation]:
    """A fresh installation in a temporary folder, gone after the block. Raises `EmbeddedFault`.

    One server, or three of which `quorum` have a commit before it is confirmed.
    """
    with contextlib.ExitStack() as stack:
        with uninterrupted():  # or a folder could be there that nobody knows of yet
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-bench-")))
        data = folder / "data"
        replicas = EmbeddedReplicas(data, servers, quorum=quorum)
        stack.callback(replicas.stop)
        replicas.start(tell)
        dsn = running_dsn(data)
        if dsn is None:
            raise EmbeddedFault("the database of the measurement has died")
        yield Installation(replicas, dsn, folder, tell)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Have an interrupt wait for the end of the block, which must be short."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def sink_url(sink: Child) -> str:
    """Where a sink that has just started listens."""
    address = sink.line()
    return f"http://{address['host']}:{address['port']}/sink"
