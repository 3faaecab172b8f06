"""Receipts, deliveries and attempts, read for their tenant.

Owns the views that the HTTP API shows. Nothing here writes. Invariant: every statement names the tenant, but for the
attempts of a delivery that was found under it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

from relay.domain import ids
from relay.domain.delivery import DeadReason, DeliveryStatus
from relay.domain.endpoint import EndpointState
from relay.domain.envelope import JournalPosition
from relay.domain.receipt import ReceiptOutcome
from relay.store import statements
from relay.store.database import Connection, Database


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """A delivery as users see it. `held_reason` and `held_until` tell why its lane is closed now, if it is.

    `was_received` says that in this generation a 2xx came which was no ack; `awaits_ack` that it is still waited for.
    """

    id: UUID
    receipt_id: UUID
    endpoint_id: UUID
    consumer: str
    status: DeliveryStatus
    attempts: int
    generation: int
    due_at: datetime
    acked_at: datetime | None
    dead_at: datetime | None
    dead_reason: DeadReason | None
    last_error: str | None
    redriven_at: datetime | None
    discarded_at: datetime | None
    awaits_ack: bool
    was_received: bool
    endpoint_state: EndpointState
    held_reason: str | None
    held_until: datetime | None


@dataclass(frozen=True, slots=True)
class PastGeneration:
    """A generation of a delivery that ended by a re-drive, and what had become of the delivery until then."""

    delivery_id: UUID
    redriven_at: datetime
    acked_at: datetime | None
    dead_at: datetime | None


@dataclass(frozen=True, slots=True)
class ReceiptView:
    """A receipt with its envelope (but the payload) and its deliveries; in lists, with the first of them.

    `expected` counts all of them, `discarded` those dead letters that a person gave up. `unrouted_at` tells since when
    an event that matched no rule waits for a person, `routed_at` when one was routed anew. `past` are the generations
    before the present ones.
    """

    id: UUID
    event_id: str
    type: str
    schema: str | None
    tenant: str
    source: str
    received_at: datetime
    position: JournalPosition
    content_type: str
    payload_sha256: bytes
    payload_bytes: int
    checked_us: int
    assigned_us: int
    committed_at: datetime
    rules_version: int
    expected: int
    acked: int
    discarded: int
    redriven: bool
    reason: DeadReason | None
    outcome: ReceiptOutcome | None
    closed_at: datetime | None
    unrouted_at: datetime | None
    routed_at: datetime | None
    deliveries: tuple[DeliveryView, ...]
    past: tuple[PastGeneration, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt, or one deferral, of a delivery; times in milliseconds."""

    attempt: int
    generation: int
    at: datetime
    outcome_class: str
    reason: str | None
    deferred_for_ms: int | None
    status_code: int | None
    error_class: str | None
    snippet: str | None
    wait_ms: float | None
    connect_ms: float | None
    send_ms: float | None
    first_byte_ms: float | None
    total_ms: float | None
    display_url: str | None


@dataclass(frozen=True, slots=True)
class Payload:
    """The exact bytes of an event with the content type they came with."""

    content_type: str
    body: bytes


class Receipts:
    """The receipts of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, tenant: str, receipt: UUID) -> ReceiptView | None:
        """One receipt of the tenant with its deliveries, None if there is none of that id."""
        first, last = ids.delivery_range(receipt)
        async with self._database.snapshot() as connection:
            row = await connection.fetchrow(statements.text("get_receipt"), tenant, receipt, ids.day_of(receipt))
            if row is None:
                return None
            deliveries = await connection.fetch(statements.text("receipt_deliveries"), tenant, receipt, first, last)
            past = await past_generations(connection, [row])
        return receipt_view(row, tuple(delivery_view(each) for each in deliveries), past)

    async def closed_among(self, receipts: Collection[UUID]) -> set[UUID]:
        """Which of these receipts are closed. Each of them was found under its tenant before."""
        async with self._database.connection() as connection:
            return {row[0] for row in await connection.fetch(statements.text("closed_receipts"), list(receipts))}

    async def payload(self, tenant: str, receipt: UUID) -> Payload | None:
        """The event's payload, None if there is no such receipt."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statements.text("read_payload"), tenant, receipt, ids.day_of(receipt))
        return Payload(row["content_type"], row["payload"]) if row else None

    async def delivery(self, tenant: str, delivery: UUID) -> DeliveryView | None:
        """One delivery of the tenant, None if there is none of that id."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statements.text("get_delivery"), tenant, delivery)
        return delivery_view(row) if row else None

    async def attempts(self, delivery: DeliveryView) -> list[AttemptView]:
        """Every attempt of a delivery in order, at most 1,000."""
        made_at = datetime.fromtimestamp(ids.unix_ms(delivery.id) / 1000, UTC)
        # the id carries the gateway's clock, the attempts the database's: leave room for their difference
        not_before = made_at - timedelta(days=1)
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("delivery_attempts"), delivery.id, not_before)
        return [AttemptView(*row) for row in rows]


def delivery_view(row: asyncpg.Record) -> DeliveryView:
    """A row of `shown_deliveries`."""
    held = bool(row["lane_held"])
    return DeliveryView(
        id=row["id"],
        receipt_id=row["receipt_id"],
        endpoint_id=row["endpoint_id"],
        consumer=row["consumer"],
        status=DeliveryStatus(row["status"]),
        attempts=row["attempts"],
        generation=row["generation"],
        due_at=row["due_at"],
        acked_at=row["acked_at"],
        dead_at=row["dead_at"],
        dead_reason=DeadReason(row["dead_reason"]) if row["dead_reason"] else None,
        last_error=row["last_error"],
        redriven_at=row["redriven_at"],
        discarded_at=row["discarded_at"],
        awaits_ack=row["received_at"] is not None and row["status"] == DeliveryStatus.IN_FLIGHT,
        was_received=row["received_at"] is not None,
        endpoint_state=EndpointState(row["endpoint_status"]),
        held_reason=row["held_reason"] if held else None,
        held_until=row["held_until"] if held else None,
    )


async def past_generations(connection: Connection, receipts: Sequence[asyncpg.Record]) -> tuple[PastGeneration, ...]:
    """The past generations of the deliveries of these receipts, whose rows were read before."""
    redriven = [row["id"] for row in receipts if row["redriven"]]
    if not redriven:
        return ()
    return tuple(PastGeneration(*row) for row in await connection.fetch(statements.text("past_generations"), redriven))


def receipt_view(
    row: asyncpg.Record, deliveries: tuple[DeliveryView, ...], past: tuple[PastGeneration, ...] = ()
) -> ReceiptView:
    """A row of `get_receipt` or `show_receipts`, with its deliveries and their past."""
    return ReceiptView(
        id=row["id"],
        event_id=row["event_id"],
        type=row["type"],
        schema=row["schema"],
        tenant=row["tenant"],
        source=row["source"],
        received_at=row["received_at"],
        position=JournalPosition(row["partition"], row["number"]),
        content_type=row["content_type"],
        payload_sha256=row["payload_sha256"],
        payload_bytes=row["payload_bytes"],
        checked_us=row["checked_us"],
        assigned_us=row["assigned_us"],
        committed_at=row["committed_at"],
        rules_version=row["rules_version"],
        expected=row["expected"],
        acked=row["acked"],
        discarded=row["discarded"],
        redriven=row["redriven"],
        reason=DeadReason(row["reason"]) if row["reason"] else None,
        outcome=ReceiptOutcome(row["outcome"]) if row["outcome"] else None,
        closed_at=row["closed_at"],
        unrouted_at=row["unrouted_at"],
        routed_at=row["routed_at"],
        deliveries=deliveries,
        past=past,
    )
