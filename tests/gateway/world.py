"""A gateway over a real database, and what its tests say to it.

Owns the wiring that the composition root does in the product, with the real clocks.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from relay.domain import ids
from relay.domain.ambient import Ambient
from relay.domain.endpoint import EndpointConfig
from relay.domain.schema import read_name
from relay.domain.secret import Secret
from relay.gateway import Gateway, IngestLimits, Rulebook, create_gateway
from relay.store.barrier import NAME as BARRIER
from relay.store.barrier import Barrier
from relay.store.database import Commits, Database
from relay.store.endpoints import Endpoints
from relay.store.journal import Journal
from relay.store.receipts import Receipts
from relay.store.schemas import Schemas
from relay.store.vault import Vault, new_key
from relay.store.wakeups import WakeupSender
from relay.web.judging import Judge
from tests.support.administration import Administration, senders_of
from tests.support.asgi import Reply, call
from tests.support.installation import eventually
from tests.support.world import Ear, real_ambient

TENANT = "acct_default"
PATH = "/v1/events"
BATCH_PATH = "/v1/events/batch"
JSON = ("Content-Type", "application/json")
MAX_PAYLOAD_BYTES = 65_536
MAX_BATCH_BYTES = 262_144

Headers = Iterable[tuple[str, str]]


def event(event_type: str = "invoice.paid", **members: object) -> bytes:
    """The body of an event."""
    return json.dumps({"type": event_type, **members}).encode()


def element(event_type: str = "invoice.paid", event_id: str | None = None, payload: bytes = b"{}") -> bytes:
    """One event of a batch; its payload is written as it is."""
    named = b"" if event_id is None else b',"event_id":%b' % json.dumps(event_id).encode()
    return b'{"type":%b%b,"payload":%b}' % (json.dumps(event_type).encode(), named, payload)


def new_id() -> UUID:
    """An id of now."""
    return ids.uuid7(time.time_ns() // 1_000_000, os.urandom(ids.ENTROPY_BYTES))


@dataclass(frozen=True, slots=True)
class World:
    """One process's gateway, and a look at what it wrote."""

    dsn: str
    database: Database
    gateway: Gateway
    endpoints: Endpoints
    schemas: Schemas
    receipts: Receipts
    ear: Ear
    barrier: Barrier
    judge: Judge
    credentials: Administration
    vault: Vault

    @classmethod
    @asynccontextmanager
    async def over(
        cls,
        dsn: str,
        *,
        most_waiting: int = 10_000,
        ambient: Ambient | None = None,
        within: float | None = None,
        quorum: int = 1,
        seconds: float = 0.25,
        vault: Vault | None = None,
        is_private: bool = True,
        key_retention_seconds: float = 86_400.0,
    ) -> AsyncIterator[World]:
        """A gateway of its own over that database, drained in the end."""
        database = await Database.connect(dsn, name="relay-tests", size=4, within=within)
        vault, ear, world = vault or Vault([new_key()]), Ear(), ambient or real_ambient()
        endpoints, schemas, judge = Endpoints(database, vault), Schemas(database), Judge()
        senders = senders_of(database, vault, world, is_private=is_private)
        waiting = await Database.connect(dsn, name=BARRIER, size=1, commits=Commits.AS_SERVER_SAYS, within=4.0)
        barrier = Barrier(waiting, quorum=quorum, seconds=seconds, ambient=world, emit=ear)
        await barrier.check()
        gateway = create_gateway(
            journal=Journal(database, key_retention_seconds=key_retention_seconds),
            rulebook=Rulebook(endpoints, schemas, schemas, judge),
            senders=senders,
            wakeups=WakeupSender(database),
            ambient=world,
            emit=ear,
            barrier=barrier,
            limits=IngestLimits(MAX_PAYLOAD_BYTES, MAX_BATCH_BYTES, most_waiting),
        )
        try:
            async with barrier.running():
                yield cls(
                    dsn,
                    database,
                    gateway,
                    endpoints,
                    schemas,
                    Receipts(database),
                    ear,
                    barrier,
                    judge,
                    Administration(database, vault),
                    vault,
                )
                await gateway.drain(5.0)
        finally:
            await gateway.drain(5.0)
            await judge.close()
            await waiting.close()
            await database.close()

    async def request(
        self,
        method: str = "POST",
        *,
        headers: Headers = (JSON,),
        body: bytes | Iterable[bytes] = b"",
        declared: bool = True,
        path: str = PATH,
    ) -> Reply:
        """One request to a route."""
        app = self.gateway.routes[path]
        return await call(app, method, path, headers=headers, body=body, declared=declared)

    async def post(self, body: bytes | None = None, *headers: tuple[str, str]) -> Reply:
        """Post an event as JSON, with these headers on top."""
        return await self.request(headers=(JSON, *headers), body=event() if body is None else body)

    async def post_batch(self, body: bytes | Sequence[bytes], *headers: tuple[str, str]) -> Reply:
        """Post a batch: its whole body, or its elements."""
        whole = body if isinstance(body, bytes) else b"[%b]" % b",".join(body)
        return await self.request(headers=(JSON, *headers), body=whole, path=BATCH_PATH)

    async def subscribe(self, *patterns: str, name: str | None = None) -> UUID:
        """Create an endpoint for these types, all of them if none is given."""
        endpoint = new_id()
        config = EndpointConfig(
            name=name or f"endpoint-{endpoint.hex}", url="https://example.com/", event_types=patterns or ("*",)
        )
        secret = Secret("whsec_" + "a" * 44)
        await self.endpoints.create(TENANT, endpoint, config, secret_id=new_id(), secret=secret)
        return endpoint

    async def put_schema(self, name: str, schema: object) -> None:
        """Put a schema into the catalogue, as it is or as JSON, whatever it is."""
        text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
        await self.schemas.put(TENANT, read_name(name), text)

    async def sql(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        """Look into the database."""
        async with self.database.connection() as connection:
            rows: list[asyncpg.Record] = await connection.fetch(query, *arguments)
        return rows

    async def count(self, table: str) -> int:
        """How many rows a table has."""
        (row,) = await self.sql(f"select count(*) from {table}")  # noqa: S608 - the tests' own names
        count: int = row[0]
        return count

    async def stored_nothing(self) -> bool:
        """Whether no request has left a trace."""
        counts = [await self.count(table) for table in ("journal", "receipts", "deliveries", "idempotency_keys")]
        return not any(counts)

    @asynccontextmanager
    async def appends_held(self) -> AsyncIterator[None]:
        """Inside the block no append gets past the partition heads; they go on behind it."""
        holder = await asyncpg.connect(self.dsn)
        try:
            async with holder.transaction():
                await holder.execute("select * from journal_heads for update")
                yield
        finally:
            await holder.close()

    async def until_an_append_waits(self) -> None:
        """Return once an append has come to a lock that `appends_held` holds."""
        async with asyncio.timeout(10):
            while not await self.sql(
                "select 1 from pg_locks where not granted and locktype in ('transactionid', 'tuple')"
            ):
                pass

    async def until_waiting(self, events: int, posts: Sequence[asyncio.Task[Reply]] = ()) -> None:
        """Return once so many events wait for the append after the one under way, less those of `posts` answered."""

        async def they_wait() -> bool:
            return len(self.gateway.appender._line) + sum(post.done() for post in posts) == events

        await eventually(they_wait, 10.0, f"{events} events wait")
