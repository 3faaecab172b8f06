"""A dispatcher in the test's own loop, on a real database and real sockets, with what tests need around it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg

from relay.broker import Broker
from relay.dispatcher import ClaimTuning, Directory, Dispatcher, Fleet, Flight, Stores, Tuning
from relay.domain import ids
from relay.domain.ambient import Ambient
from relay.domain.backoff import DEFAULT, RetryPolicy
from relay.domain.chat import transport_of
from relay.domain.egress import EgressPolicy
from relay.domain.endpoint import Destination, EndpointConfig, SignatureProfile
from relay.domain.envelope import Envelope
from relay.domain.secret import Secret
from relay.domain.telemetry import Happening, Listener
from relay.sender import HttpSender, SendLimits
from relay.store.acks import Acks
from relay.store.announcing import Announcing
from relay.store.database import Commits, Database
from relay.store.endpoints import Destinations, Endpoints
from relay.store.health import Health
from relay.store.journal import Addition, Journal
from relay.store.queue import DEFAULT_GATES, Gates, Queue
from relay.store.receipts import DeliveryView, Receipts, ReceiptView
from relay.store.retention import Retention
from relay.store.vault import Vault, new_key
from relay.store.wakeups import WakeupListener, WakeupSender
from relay.transports.chat import Platforms
from relay.transports.prepared import Prepared, prepare
from tests.support.deliveries import PAYLOAD, new_id
from tests.support.world import Ear, real_ambient

TENANT = "acct_default"
SECRET = "whsec_" + "A" * 43 + "="
OPEN = EgressPolicy(allow_private=True, require_https=False, allowed_ports=None)
DEFAULT_PLATFORMS = Platforms()
PATIENT_SECONDS = 40.0
"""How long a send may take, and its receiver say nothing: longer than a test, or a machine that is short of time, lets
anybody wait, and within the lease. What a test keeps waiting is there when the test goes on."""
PATIENT = SendLimits(silence_seconds=PATIENT_SECONDS)
RETRY = replace(DEFAULT, base_seconds=0.05, max_seconds=0.1, jitter=0.0)
TUNING = Tuning(
    claim=ClaimTuning(batch=100, lease_seconds=60.0, poll_seconds=0.5),
    concurrency=32,
    max_payload_bytes=1 << 20,
    heartbeat_seconds=5.0,
    drain_seconds=5.0,
)


class House:
    """One database with everything to fill it, send from it and look into it."""

    def __init__(self, dsn: str, database: Database) -> None:
        self.dsn = dsn
        self.database = database
        self.vault = Vault([new_key()])
        self.endpoints = Endpoints(database, self.vault)
        self.receipts = Receipts(database)
        self.queue = Queue(database, database)
        self.ear = Ear()

    async def endpoint(self, url: str, **config: Any) -> UUID:
        """A new endpoint of the default tenant that answers, without a limit to its rate unless one is given; a
        `secret` of its own stands among the fields."""
        secret = config.pop("secret", SECRET)
        rate = {"rate_per_second": 100_000, "burst": 100_000}
        fields = {"name": f"n-{os.urandom(4).hex()}", "url": url, **rate, **config}
        made = await self.endpoints.create(
            TENANT, new_id(), EndpointConfig(**fields), secret_id=new_id(), secret=Secret(secret)
        )
        await self.execute("update endpoint_state set answered_at = now() where endpoint_id = $1", made.id)
        return made.id

    async def event(self, *endpoints: UUID, payload: bytes = PAYLOAD) -> UUID:
        """Append one event that is owed to these endpoints, and wake the dispatchers; answers its receipt's id."""
        return (await self.events(1, *endpoints, payload=payload))[0]

    async def events(self, number: int, *endpoints: UUID, payload: bytes = PAYLOAD) -> list[UUID]:
        """The same for several events in one append."""
        receipts = await self.append(self.database, number, *endpoints, payload=payload)
        await WakeupSender(self.database).send()
        return receipts

    async def append(self, over: Database, number: int, *endpoints: UUID, payload: bytes = PAYLOAD) -> list[UUID]:
        """The same, by way of another pool or connection, and nobody is woken."""
        snapshot = await self.endpoints.snapshot()
        group = [_addition(endpoints, payload, snapshot.partitions[TENANT]) for _ in range(number)]
        await Journal(over, key_retention_seconds=60).append(snapshot.versions, group)
        return [addition.envelope.receipt_id for addition in group]

    async def receipt(self, receipt: UUID) -> ReceiptView:
        """The receipt as it is now."""
        view = await self.receipts.get(TENANT, receipt)
        assert view is not None
        return view

    async def delivery(self, receipt: UUID) -> DeliveryView:
        """The one delivery of a receipt as it is now."""
        (delivery,) = (await self.receipt(receipt)).deliveries
        return delivery

    async def chat(self, url: str, **config: Any) -> UUID:
        """A new chat endpoint; its token is its `secret`."""
        fields = {"transport": transport_of(url), "signature": SignatureProfile.NONE, **config}
        return await self.endpoint(url, **fields)

    async def execute(self, sql: str, *arguments: object) -> None:
        """Change rows as no part of Relay would."""
        async with self.database.connection() as connection:
            await connection.execute(sql, *arguments)

    async def pass_time(self, seconds: float) -> None:
        """Let so much time pass for everything that is owed and for its lanes, and wake the dispatchers."""
        await self.execute(
            "update deliveries set due_at = due_at - $1::float8 * interval '1 second',"
            " generation_started_at = generation_started_at - $1::float8 * interval '1 second'"
            " where status = 'pending'",
            seconds,
        )
        await self.execute(
            "update endpoint_state set held_until = held_until - $1::float8 * interval '1 second',"
            " cooldown_until = cooldown_until - $1::float8 * interval '1 second'",
            seconds,
        )
        await WakeupSender(self.database).send()

    async def cut_connections(self, name: str) -> None:
        """Cut every connection that calls itself so."""
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1", name
            )
        finally:
            await connection.close()

    @asynccontextmanager
    async def dispatching(
        self,
        tuning: Tuning = TUNING,
        *,
        policy: EgressPolicy = OPEN,
        platforms: Platforms | Callable[[Destination], Platforms] = DEFAULT_PLATFORMS,
        emit: Listener | None = None,
        limits: SendLimits = PATIENT,
        timeout_seconds: float = PATIENT_SECONDS,
        retry: RetryPolicy = RETRY,
        ambient: Ambient | None = None,
        gates: Gates = DEFAULT_GATES,
        broker: Broker | None = None,
        within: float | None = None,
    ) -> AsyncIterator[Running]:
        """A dispatcher that runs inside the block and is stopped in order at its end, if it is not stopped before.

        `within` is the bound of its pools. Platforms may be one for all, or chosen for each destination. A send may
        take `timeout_seconds`, unless its endpoint says otherwise.
        """
        claims = await Database.connect(self.dsn, name="claims", size=1, commits=Commits.LAZY, within=within)
        records = await Database.connect(self.dsn, name="records", size=3, within=within)
        announces = await Database.connect(self.dsn, name="announces", size=1, within=within)
        world = ambient or real_ambient()
        stop = asyncio.Event()
        destinations = Destinations(records, self.vault, default_retry=retry)
        dispatcher = Dispatcher(
            process=new_id(),
            stores=Stores(
                Queue(claims, records, gates),
                Acks(records),
                Health(records),
                Retention(records),
                WakeupListener(self.dsn, name="wake-ups"),
                None if broker is None else Fleet(broker, Announcing(announces, gates)),
            ),
            directory=Directory(destinations, partial(_prepared, platforms, timeout_seconds)),
            make_sender=partial(_sender, policy, limits),
            tuning=tuning,
            ambient=world,
            emit=emit or self.ear,
        )
        task = asyncio.create_task(dispatcher.run(stop))
        try:
            yield Running(stop, task)
        finally:
            stop.set()
            await asyncio.wait_for(task, 30)
            await claims.close()
            await records.close()
            await announces.close()

    async def until(self, holds: Callable[[], bool], within: float = 15.0) -> None:
        """Return once `holds()`, looked at after each happening. Raises `TimeoutError`."""
        await self.ear.until(holds, within)

    def heard(self, kind: type[Happening]) -> list[Any]:
        """Everything of one kind that was emitted so far."""
        return self.ear.of(kind)


@dataclass(frozen=True, slots=True)
class Running:
    """A dispatcher that runs: set `stop` to end it, then await `task`."""

    stop: asyncio.Event
    task: asyncio.Task[None]


def _prepared(
    platforms: Platforms | Callable[[Destination], Platforms], timeout_seconds: float, destination: Destination
) -> Prepared:
    chosen = platforms if isinstance(platforms, Platforms) else platforms(destination)
    return prepare(destination, user_agent="Relay/test", timeout_seconds=timeout_seconds, platforms=chosen)


def _sender(policy: EgressPolicy, limits: SendLimits, deliver: Any) -> HttpSender[Flight]:
    return HttpSender(policy=policy, limits=limits, clock=time.monotonic, deliver=deliver)


def _addition(endpoints: tuple[UUID, ...], payload: bytes, partition: int) -> Addition:
    receipt = new_id()
    envelope = Envelope(
        receipt_id=receipt,
        event_id=ids.write(ids.EVENT, receipt),
        type="order.paid",
        schema=None,
        tenant=TENANT,
        source="anonymous",
        received_at=real_ambient().now(),
        content_type="application/json",
        payload=payload,
        payload_sha256=hashlib.sha256(payload).digest(),
    )
    fan_out = tuple((ids.delivery_id(receipt, os.urandom(ids.SIBLING_BYTES)), endpoint) for endpoint in endpoints)
    return Addition(envelope, partition, None, fan_out)
