"""The API and the ingest route over a real database, and what the tests say to them.

Owns the wiring that the composition root does in the product, with the real clocks.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
from fastapi import FastAPI
from starlette.types import ASGIApp

from relay.api import ApiDeps, EndpointLimits, create_api
from relay.domain import ids
from relay.domain.attempt import AttemptRecord
from relay.domain.backoff import DEFAULT
from relay.domain.delivery import ClaimedDelivery, DeadReason, DeliveryMove
from relay.domain.egress import EgressPolicy
from relay.domain.outcome import OutcomeClass
from relay.domain.sending import Phases
from relay.gateway import IngestLimits, Rulebook, Senders, create_gateway
from relay.store.acks import Acks
from relay.store.audit import Audit
from relay.store.barrier import NAME as BARRIER
from relay.store.barrier import Barrier
from relay.store.database import Commits, Database
from relay.store.dead_letters import DeadLetters
from relay.store.endpoints import Destinations, Endpoints
from relay.store.health import Health
from relay.store.history import History
from relay.store.issuer import Issuer
from relay.store.journal import Journal
from relay.store.queue import FIRST_LANE, Queue
from relay.store.receipts import Receipts
from relay.store.redrive import Redrives
from relay.store.schemas import Schemas
from relay.store.signed_requests import SignedRequests
from relay.store.vault import Vault, new_key
from relay.store.wakeups import WakeupSender
from relay.transports.chat import Platforms
from relay.web.judging import Judge
from relay.web.once import Once
from relay.web.serving import by_path
from tests.support.administration import Administration, prover_of
from tests.support.asgi import Reply, call
from tests.support.world import Ear, real_ambient

JSON = ("Content-Type", "application/json")
MAX_BODY_BYTES = 65_536
READY_LATE_SECONDS = 60.0
ENDPOINTS = "/v1/endpoints"
URL = "https://example.com/hook"

Headers = Iterable[tuple[str, str]]


def new_id() -> UUID:
    """An id of now."""
    return ids.uuid7(time.time_ns() // 1_000_000, os.urandom(ids.ENTROPY_BYTES))


class Watched(Receipts):
    """Receipts that tell how they are asked which of them are closed: how often, for how many, how many at once."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.asked = self.last = self.most_at_once = self._at_once = 0
        self._changed = asyncio.Event()

    async def closed_among(self, receipts: Collection[UUID]) -> set[UUID]:
        self.asked += 1
        self.last = len(receipts)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self._changed.set()
        try:
            return await super().closed_among(receipts)
        finally:
            self._at_once -= 1

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once `holds()`, looked at after each question. Raises `TimeoutError`."""
        async with asyncio.timeout(10):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


class Counted(WakeupSender):
    """Wake-ups that are counted once they are sent."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.sent = 0
        self._changed = asyncio.Event()

    async def send(self) -> None:
        await super().send()
        self.sent += 1
        self._changed.set()

    async def until_sent(self, count: int) -> None:
        """Return once so many were sent. Raises `TimeoutError`."""
        async with asyncio.timeout(10):
            while self.sent < count:
                self._changed.clear()
                await self._changed.wait()


class Switch:
    """Whether the process drains."""

    def __init__(self) -> None:
        self.is_on = False

    def __call__(self) -> bool:
        return self.is_on


@dataclass(frozen=True, slots=True)
class World:
    """One gateway process as its clients see it, and a look at what it wrote."""

    dsn: str
    app: ASGIApp
    ingest: Mapping[str, ASGIApp]
    api: FastAPI
    database: Database
    destinations: Destinations
    queue: Queue
    receipts: Watched
    wakeups: Counted
    health: Health
    draining: Switch
    ear: Ear
    barrier: Barrier
    credentials: Administration
    shown: list[tuple[str, str]] = field(default_factory=list)
    """The headers that every request of the tests shows from now on."""

    @classmethod
    @asynccontextmanager
    async def over(cls, dsn: str, *, quorum: int = 1) -> AsyncIterator[World]:
        """A process over that database."""
        database = await Database.connect(dsn, name="relay-tests", size=4)
        vault, ambient, draining, ear = Vault([new_key()]), real_ambient(), Switch(), Ear()
        endpoints = Endpoints(database, vault)
        destinations = Destinations(database, vault, default_retry=DEFAULT)
        receipts, wakeups = Watched(database), Counted(database)
        queue, health = Queue(database, database), Health(database)
        schemas, judge = Schemas(database), Judge()
        waiting = await Database.connect(dsn, name=BARRIER, size=1, commits=Commits.AS_SERVER_SAYS)
        barrier = Barrier(waiting, quorum=quorum, seconds=0.25, ambient=ambient, emit=ear)
        await barrier.check()
        prover = prover_of(database, vault, ambient)
        gateway = create_gateway(
            journal=Journal(database, key_retention_seconds=86_400.0),
            rulebook=Rulebook(endpoints, schemas, schemas, judge),
            senders=Senders(prover=prover, requests=SignedRequests(database)),
            wakeups=wakeups,
            ambient=ambient,
            emit=ear,
            barrier=barrier,
            limits=IngestLimits(MAX_BODY_BYTES, 4 * MAX_BODY_BYTES),
        )
        api = create_api(
            ApiDeps(
                endpoints=endpoints,
                destinations=destinations,
                receipts=receipts,
                history=History(database),
                dead_letters=DeadLetters(database),
                redrives=Redrives(database, entropy=ambient.entropy, key_retention_seconds=86_400.0),
                acks=Acks(database),
                audit=Audit(database),
                queue=queue,
                schemas=schemas,
                judge=judge,
                issuer=Issuer(database, vault),
                prover=prover,
                once=Once(SignedRequests(database)),
                health=health,
                intake=health,
                barrier=barrier,
                ambient=ambient,
                emit=ear,
                egress=EgressPolicy(),
                platforms=Platforms(),
                limits=EndpointLimits(in_flight=32, most_in_flight=256, most_timeout_seconds=55.0, retry=DEFAULT),
                secret_overlap_seconds=3600.0,
                max_body_bytes=MAX_BODY_BYTES,
                ready_late_seconds=READY_LATE_SECONDS,
                wake=gateway.wakeups.announce,
                send_test=gateway.trial.send,
                exposition=lambda accept: (f"text/plain; asked={accept!r}", b"relay_up 1\n"),
                is_leaving=draining,
                is_draining=draining,
                version="1.2.3",
            )
        )
        app = by_path(gateway.routes, api)
        try:
            async with barrier.running():
                yield cls(
                    dsn,
                    app,
                    gateway.routes,
                    api,
                    database,
                    destinations,
                    queue,
                    receipts,
                    wakeups,
                    health,
                    draining,
                    ear,
                    barrier,
                    Administration(database, vault),
                )
        finally:
            await gateway.drain(5.0)
            await judge.close()
            await waiting.close()
            await database.close()

    async def get(self, path: str, *headers: tuple[str, str]) -> Reply:
        """Ask for something."""
        return await call(self.app, "GET", path, headers=[*self.shown, *headers])

    async def send(self, method: str, path: str, value: object = None) -> Reply:
        """Send JSON, or nothing."""
        if value is None:
            return await call(self.app, method, path, headers=self.shown)
        return await call(self.app, method, path, headers=[*self.shown, JSON], body=json.dumps(value).encode())

    async def create(self, **fields: object) -> Any:
        """Create an endpoint; answers it."""
        reply = await self.send("POST", ENDPOINTS, {"url": URL, **fields})
        assert reply.status == 201, reply
        return reply.json()

    async def post_event(self, event_type: str = "invoice.paid", **headers: str) -> Any:
        """Post an event; answers its 202."""
        lines = [JSON, *self.shown, *((name.replace("_", "-"), value) for name, value in headers.items())]
        body = json.dumps({"type": event_type}).encode()
        reply = await call(self.app, "POST", "/v1/events", headers=lines, body=body)
        assert reply.status == 202, reply
        return reply.json()

    async def post_batch(self, count: int, event_type: str = "invoice.paid") -> list[Any]:
        """Post so many events at once, all of one millisecond; answers their 202s."""
        reply = await self.send("POST", "/v1/events/batch", [{"type": event_type, "payload": n} for n in range(count)])
        assert reply.status == 202, reply
        accepted: list[Any] = reply.json()["data"]
        return accepted

    async def pages(
        self, path: str, limit: int = 100, between: Callable[[], Awaitable[object]] | None = None
    ) -> list[Any]:
        """Read a list to its end, page by page, doing something between two pages; answers all items."""
        items: list[Any] = []
        cursors: set[str] = set()
        following = ""
        join = "&" if "?" in path else "?"
        while True:
            reply = await self.get(f"{path}{join}limit={limit}{following}")
            assert reply.status == 200, reply
            page = reply.json()
            assert len(page["data"]) <= limit
            items += page["data"]
            cursor = page["next_cursor"]
            if cursor is None:
                return items
            assert cursor not in cursors, "the list goes round in circles"
            cursors.add(cursor)
            following = f"&cursor={cursor}"
            if between is not None:
                await between()

    async def claim(self) -> ClaimedDelivery:
        """Claim the one delivery that is due."""
        claim = await self.queue.claim_due(after=FIRST_LANE, batch=10, token=new_id(), lease_seconds=60.0)
        (claimed,) = claim.deliveries
        return claimed

    async def attempt(
        self,
        move: DeliveryMove,
        outcome_class: OutcomeClass,
        *,
        status_code: int | None = 200,
        reason: str | None = None,
        dead_reason: DeadReason | None = None,
        delay_seconds: float = 0.0,
    ) -> ClaimedDelivery:
        """Claim the one delivery that is due, and record what came of it."""
        claimed = await self.claim()
        record = AttemptRecord(
            delivery_id=claimed.id,
            lease_token=claimed.lease_token,
            receipt_id=claimed.receipt_id,
            endpoint_id=claimed.endpoint_id,
            claimed_at=claimed.claimed_at,
            attempt=claimed.attempt,
            generation=claimed.generation,
            outcome_class=outcome_class,
            move=move,
            delay_seconds=delay_seconds,
            dead_reason=dead_reason,
            reason=reason,
            status_code=status_code,
            error_class=None,
            snippet="thanks",
            phases=Phases(wait_ms=1.0, connect_ms=2.0, send_ms=0.5, first_byte_ms=3.0, total_ms=7.0),
            display_url=URL,
        )
        recorded = await self.queue.record([record])
        assert not recorded.lost
        return claimed

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
