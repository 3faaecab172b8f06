"""What a measurement runs on: a server of its own with durable defaults, a key, and Relay's processes.

Owns the temporary folder and everything started in it. Invariant: nothing of it is left after the block.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from relay.embedded import EmbeddedServer
from relay.loadtest import backlog
from relay.loadtest.backlog import Shape
from relay.loadtest.children import Child, child
from relay.store.database import Database
from relay.store.health import Health
from relay.store.migrate import migrate
from relay.store.vault import Vault, new_key

Tell = Callable[[str], None]

IN_FLIGHT = 256
"""Requests under way per endpoint and dispatcher: as many as Relay allows."""


class Installation:
    """A database to measure on; use `installation` to make one."""

    def __init__(self, server: EmbeddedServer, folder: Path, tell: Tell) -> None:
        self.server = server
        self.folder = folder
        self.tell = tell
        self._key = new_key()
        self._vault = Vault([self._key])

    @contextlib.contextmanager
    def dispatcher(self, workers: int) -> Iterator[Child]:
        """Dispatcher processes inside the block."""
        log = self.folder / "dispatcher.log"
        environ = self._environ(RELAY_METRICS_BIND="127.0.0.1:0")
        with child("relay", "dispatcher", "--workers", str(workers), environ=environ, log=log) as running:
            yield running

    @contextlib.contextmanager
    def gateway(self, bind: str, workers: int) -> Iterator[Child]:
        """Gateway processes inside the block."""
        log = self.folder / "gateway.log"
        environ = self._environ(RELAY_BIND=bind)
        with child("relay", "gateway", "--workers", str(workers), environ=environ, log=log) as running:
            yield running

    async def subscribe(self, url: str, endpoints: int) -> None:
        """Leave so many endpoints of this url as the only ones."""
        await self._prepare(url, endpoints, None)

    async def fill(self, url: str, shape: Shape) -> None:
        """The same, with a backlog of events owed to them."""
        await self._prepare(url, shape.endpoints, shape)

    async def owed(self) -> int:
        """How many deliveries are pending or in flight."""
        database = await Database.connect(self.server.dsn, name="relay-bench", size=1)
        try:
            return await Health(database).owed()
        finally:
            await database.close()

    async def _prepare(self, url: str, number: int, shape: Shape | None) -> None:
        database = await Database.connect(self.server.dsn, name="relay-bench", size=2)
        try:
            await migrate(database)
            await backlog.remove_endpoints(database, self._vault)
            endpoints = await backlog.add_endpoints(database, self._vault, url, number, max_in_flight=IN_FLIGHT)
            if shape is not None:
                self.tell(f"filling a backlog of {shape.events:,}")
                await backlog.fill(database, self._vault, endpoints, shape)
        finally:
            await database.close()

    def _environ(self, **settings: str) -> dict[str, str]:
        return {
            "DATABASE_URL": self.server.dsn,
            "RELAY_SECRET_KEYS": self._key.expose(),
            "RELAY_ALLOW_PRIVATE_ENDPOINTS": "true",
            "RELAY_LOG_LEVEL": "warning",
            **settings,
        }


@contextlib.contextmanager
def installation(tell: Tell) -> Iterator[Installation]:
    """A fresh installation in a temporary folder, gone after the block. Raises `EmbeddedFault`."""
    with tempfile.TemporaryDirectory(prefix="relay-bench-") as folder:
        server = EmbeddedServer(Path(folder) / "data")
        server.start(tell)
        try:
            yield Installation(server, Path(folder), tell)
        finally:
            server.stop()


def sink_url(sink: Child) -> str:
    """Where a sink that has just started listens."""
    address = sink.line()
    return f"http://{address['host']}:{address['port']}/sink"
