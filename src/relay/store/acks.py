"""Acks that come by a call of their own, and what becomes of those that never come.

Owns both ways in which a delivery that was received moves on. Invariant: an ack counts once, whenever it comes and
however often, and a receipt is closed by exactly one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from uuid import UUID

from relay.domain.receipt import ReceiptOutcome
from relay.store import statements
from relay.store.database import Database


@dataclass(frozen=True, slots=True)
class AckWanted:
    """What a call acks: of a tenant's receipt, one delivery or the one that is owed to a consumer."""

    tenant: str
    receipt_id: UUID
    delivery_id: UUID | None = None
    consumer: str | None = None


@dataclass(frozen=True, slots=True)
class Ack:
    """A delivery that is acked, by this call (`is_new`) or before.

    `outcome` is that of its receipt, None while that is open; `closed` says that this call closed it.
    """

    receipt_id: UUID
    delivery_id: UUID
    endpoint_id: UUID
    consumer: str
    acked_at: datetime
    is_new: bool
    outcome: ReceiptOutcome | None
    closed: bool


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What a round of the reconciler did: how many receipts had something sent again, how many deliveries were, and
    which of each consumer became dead letters."""

    receipts: int
    redriven: int
    dead: Mapping[str, Sequence[UUID]]


class Acks:
    """The acks of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acknowledge(self, wanted: Sequence[AckWanted]) -> list[Ack | None]:
        """Take acks, all in one transaction; answers in order, with None for a delivery that there is not.

        Of several calls for one delivery the first is its ack; of several that close a receipt together, one closes it.
        """
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                statements.text("ack_deliveries"),
                [each.tenant for each in wanted],
                [each.receipt_id for each in wanted],
                [each.delivery_id for each in wanted],
                [each.consumer for each in wanted],
            )
        answers: list[Ack | None] = [None] * len(wanted)
        seen: set[UUID] = set()
        closed: set[UUID] = set()
        for place, delivery, endpoint, consumer, acked_at, is_new, outcome, closes in sorted(rows, key=itemgetter(0)):
            receipt = wanted[place - 1].receipt_id
            answers[place - 1] = Ack(
                receipt_id=receipt,
                delivery_id=delivery,
                endpoint_id=endpoint,
                consumer=consumer,
                acked_at=acked_at,
                is_new=is_new and delivery not in seen,
                outcome=None if outcome is None else ReceiptOutcome(outcome),
                closed=closes and receipt not in closed,
            )
            seen.add(delivery)
            if closes:
                closed.add(receipt)
        return answers

    async def reconcile(self, *, batch: int, deadline_seconds: float, most_generations: int) -> Reconciled:
        """Send again what was received so long ago without an ack, at most `batch` deliveries; what has had so many
        generations becomes a dead letter. A re-drive by a person begins that count anew."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                statements.text("reconcile"),
                batch,
                deadline_seconds,
                most_generations,
                f"no ack came within {deadline_seconds:g} s of the 2xx",
            )
        again = [row["receipt_id"] for row in rows if not row["is_last"]]
        dead: dict[str, list[UUID]] = {}
        for row in rows:
            if row["is_last"]:
                dead.setdefault(row["consumer"], []).append(row["id"])
        return Reconciled(len(set(again)), len(again), dead)
