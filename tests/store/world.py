"""What the tests of the store work with: endpoints, events, claims and outcomes, made with as few words as possible.

Owns the defaults. Everything goes through the store's own functions; `World.sql` is for looking, and for states that
only time would bring about.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from relay.domain import ids
from relay.domain.attempt import AttemptRecord
from relay.domain.backoff import DEFAULT
from relay.domain.delivery import ClaimedDelivery, DeadReason, DeliveryMove
from relay.domain.endpoint import EndpointConfig
from relay.domain.envelope import Envelope
from relay.domain.outcome import LaneNotice, OutcomeClass
from relay.domain.secret import Secret
from relay.domain.sending import Phases
from relay.store.database import Connection, Database
from relay.store.endpoints import Destinations, Endpoints
from relay.store.journal import Addition, Appended, IdempotencyKey, Journal, Versions
from relay.store.queue import FIRST_LANE, UNBOUNDED, Allowance, Claim, Queue, Recorded
from relay.store.receipts import Receipts
from relay.store.vault import Vault, new_key

TENANT = "acct_default"
SOURCE = "anonymous"
KEY_SECONDS = 86_400.0

CLASS_OF = {
    DeliveryMove.ACK: OutcomeClass.SUCCESS,
    DeliveryMove.RECEIVE: OutcomeClass.SUCCESS,
    DeliveryMove.RETRY: OutcomeClass.RETRYABLE,
    DeliveryMove.BURY: OutcomeClass.PERMANENT,
}


WIDE = EndpointConfig(
    name="", url="http://127.0.0.1:9099/ok", rate_per_second=100_000, burst=100_000, max_in_flight=100_000
)
"""An endpoint that limits nothing."""


def new_id(*, unix_ms: int | None = None) -> UUID:
    """An id of now, or of another time."""
    return ids.uuid7(time.time_ns() // 1_000_000 if unix_ms is None else unix_ms, os.urandom(ids.ENTROPY_BYTES))


def event(
    *,
    to: Sequence[UUID] = (),
    key: IdempotencyKey | None = None,
    payload: bytes = b"{}",
    tenant: str = TENANT,
    partition: int = 6,
    source: str = SOURCE,
    receipt: UUID | None = None,
) -> Addition:
    """An event to append, owed to these endpoints."""
    receipt = receipt or new_id()
    envelope = Envelope(
        receipt_id=receipt,
        event_id=key.key if key else ids.write(ids.EVENT, receipt),
        type="invoice.paid",
        schema=None,
        tenant=tenant,
        source=source,
        received_at=datetime.fromtimestamp(ids.unix_ms(receipt) / 1000, UTC),
        content_type="application/json",
        payload=payload,
        payload_sha256=hashlib.sha256(payload).digest(),
    )
    siblings = [place.to_bytes(ids.SIBLING_BYTES, "big") for place in range(len(to))]
    fan_out = tuple((ids.delivery_id(receipt, own), endpoint) for own, endpoint in zip(siblings, to, strict=True))
    return Addition(envelope, partition, key, fan_out)


def of_type(addition: Addition, event_type: str) -> Addition:
    """The event with another type."""
    return replace(addition, envelope=addition.envelope._replace(type=event_type))


def of_event(addition: Addition, event_id: str) -> Addition:
    """The event under another id."""
    return replace(addition, envelope=addition.envelope._replace(event_id=event_id))


def named(name: str, *, body: bytes = b"{}", head: bytes = b'{"position":"', tail: bytes = b'"}') -> IdempotencyKey:
    """An idempotency key for a request with that body."""
    return IdempotencyKey(name, hashlib.sha256(body).digest(), head, tail)


def attempt(
    claimed: ClaimedDelivery,
    move: DeliveryMove = DeliveryMove.ACK,
    *,
    delay: float = 0.0,
    dead: DeadReason | None = None,
    reason: str | None = None,
    lane: LaneNotice | None = None,
) -> AttemptRecord:
    """What came of a claimed delivery."""
    return AttemptRecord(
        delivery_id=claimed.id,
        lease_token=claimed.lease_token,
        receipt_id=claimed.receipt_id,
        endpoint_id=claimed.endpoint_id,
        claimed_at=claimed.claimed_at,
        attempt=claimed.attempt,
        generation=claimed.generation,
        outcome_class=CLASS_OF[move],
        move=move,
        delay_seconds=delay,
        dead_reason=dead,
        reason=reason,
        status_code=410 if lane == GONE else 200,
        error_class=None,
        snippet="ok",
        phases=Phases(1.0, 2.0, 3.0, 4.0, 5.0),
        display_url="http://127.0.0.1:9099/ok",
        lane=lane,
    )


GONE = LaneNotice(answered=True, disable=True)
"""What a 410 tells of a lane."""


def held(seconds: float) -> LaneNotice:
    """What a 429 tells of a lane."""
    return LaneNotice(answered=True, hold_seconds=seconds)


@dataclass(frozen=True, slots=True)
class World:
    """One database and everything that the store does with it."""

    database: Database
    vault: Vault
    journal: Journal
    queue: Queue
    endpoints: Endpoints
    destinations: Destinations
    receipts: Receipts

    @classmethod
    def over(cls, database: Database, *, vault: Vault | None = None) -> World:
        """The world of a database."""
        vault = vault or Vault([new_key()])
        return cls(
            database,
            vault,
            Journal(database, key_retention_seconds=KEY_SECONDS),
            Queue(database, database),
            Endpoints(database, vault),
            Destinations(database, vault, default_retry=DEFAULT),
            Receipts(database),
        )

    async def sql(self, statement: str, *arguments: object) -> list[Any]:
        """The rows of a statement of the test's own."""
        async with self.database.connection() as connection:
            return list(await connection.fetch(statement, *arguments))

    async def value(self, statement: str, *arguments: object) -> Any:  # a column of any type
        """The first column of the first row of a statement of the test's own."""
        return (await self.sql(statement, *arguments))[0][0]

    async def until_blocked(self, task: asyncio.Task[Any]) -> None:
        """Return when some session waits for another's lock, or the task has come to its end."""
        blocked = (
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
        async with asyncio.timeout(20.0):
            while not task.done() and await self.value(blocked) == 0:
                pass

    async def rows_in(self, table: str) -> int:
        """How many rows a table has."""
        return int(await self.value(f"select count(*) from {table}"))  # noqa: S608 # a table's name, from a test

    async def add_tenant(self, tenant: str, partition: int) -> None:
        """Another tenant, which the store itself does not make yet."""
        await self.sql("insert into tenants (id, name, partition) values ($1, $1, $2)", tenant, partition)

    async def add_endpoint(
        self, config: EndpointConfig | None = None, *, tenant: str = TENANT, secret: str = "whsec_one"
    ) -> UUID:
        """An endpoint of the tenant that answers; without a configuration, one that limits nothing."""
        endpoint = new_id()
        config = config or replace(WIDE, name=endpoint.hex)
        await self.endpoints.create(tenant, endpoint, config, secret_id=new_id(), secret=Secret(secret))
        await self.sql("update endpoint_state set answered_at = now() where endpoint_id = $1", endpoint)
        return endpoint

    async def add_endpoints(self, number: int, *, max_in_flight: int = 100_000) -> list[UUID]:
        """Several endpoints, in the order of their lanes."""
        config = replace(WIDE, max_in_flight=max_in_flight)
        made = [await self.add_endpoint(replace(config, name=f"consumer-{place}")) for place in range(number)]
        return sorted(made)

    async def versions(self) -> Versions:
        """The newest versions."""
        return (await self.endpoints.snapshot()).versions

    async def append(self, *events: Addition) -> list[Appended]:
        """Append a group under the newest versions."""
        return await self.journal.append(await self.versions(), events)

    async def owe(self, number: int, *to: UUID) -> list[UUID]:
        """Append so many events, each owed to these endpoints; answers their receipts."""
        events = [event(to=to) for _ in range(number)]
        if events:
            await self.append(*events)
        return [each.envelope.receipt_id for each in events]

    async def claim(
        self,
        *,
        after: UUID = FIRST_LANE,
        batch: int = 100,
        lease: float = 60.0,
        busy: Mapping[UUID, int] | None = None,
        announced: Sequence[UUID] | None = None,
    ) -> Claim:
        """One claim under a token of its own."""
        return await self.queue.claim_due(
            after=after,
            batch=batch,
            token=new_id(),
            lease_seconds=lease,
            allowance=allowed(busy or {}),
            announced=announced,
        )

    async def claim_one(self, *, lease: float = 60.0) -> ClaimedDelivery:
        """Claim exactly one delivery."""
        (claimed,) = (await self.claim(batch=1, lease=lease)).deliveries
        return claimed

    async def claim_lapsed(self) -> ClaimedDelivery:
        """Claim exactly one delivery under a lease that has run out already."""
        return await self.claim_one(lease=-1.0)

    async def record(self, *attempts: AttemptRecord) -> Recorded:
        """Record outcomes."""
        return await self.queue.record(attempts)

    async def delivery(self, delivery: UUID) -> Any:  # a row, its columns taken by name
        """A delivery's row."""
        return (await self.sql("select * from deliveries where id = $1", delivery))[0]

    async def statuses(self) -> dict[str, int]:
        """How many deliveries there are of each status."""
        return dict(await self.sql("select status::text, count(*) from deliveries group by status"))

    async def make_due_again(self) -> None:
        """Let the time pass until everything pending is due."""
        await self.sql("update deliveries set due_at = now() - interval '1 second' where status = 'pending'")


def allowed(busy: Mapping[UUID, int]) -> Allowance:
    """What a process may claim that has so many deliveries of these lanes under way, and no windows of its own."""
    return Allowance(lanes=list(busy), busy=list(busy.values()), windows=[UNBOUNDED] * len(busy))


def lanes_of(claimed: Iterable[ClaimedDelivery]) -> dict[UUID, int]:
    """How many of these deliveries each lane has."""
    counted: dict[UUID, int] = {}
    for delivery in claimed:
        counted[delivery.endpoint_id] = counted.get(delivery.endpoint_id, 0) + 1
    return counted


def only(connection: Connection) -> Database:
    """A database that works on just this connection, inside whatever transaction it is in."""
    return Database(_Lender(connection))  # type: ignore[arg-type] # of a pool, lending is all that is used


@dataclass(frozen=True, slots=True)
class _Lender:
    """Lends the connection that it was given."""

    connection: Connection

    def acquire(self, **_: float) -> _Lender:
        return self

    async def __aenter__(self) -> Connection:
        return self.connection

    async def __aexit__(self, *_: object) -> None:
        return None
