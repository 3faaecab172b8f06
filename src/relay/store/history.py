"""Lists of receipts and of deliveries, newest first.

Owns which index a list of receipts is read by. Invariant: a page is of one moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from relay.domain import ids
from relay.domain.delivery import DeliveryStatus
from relay.store import statements
from relay.store.database import Connection, Database
from relay.store.filters import ReceiptFilter, endpoints_of, types
from relay.store.pages import WINDOWS, Page, Stretch, walk
from relay.store.receipts import (
    DeliveryView,
    PastGeneration,
    ReceiptView,
    delivery_view,
    past_generations,
    receipt_view,
)

NEWEST = UUID(int=(1 << 128) - 1)
"""The place before the newest row of a list."""

OLDEST = UUID(int=0)

MOST_DELIVERIES = 100
"""How many deliveries a receipt shows in a list."""

_SHOWN = tuple(status for status in DeliveryStatus if status is not DeliveryStatus.VOID)


@dataclass(frozen=True, slots=True)
class _Walk:
    """A statement and what it is told besides where to begin; `over_deliveries` marks one that walks deliveries."""

    statement: str
    arguments: tuple[object, ...]
    over_deliveries: bool = False


class History:
    """The history of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def receipts(
        self, tenant: str, wanted: ReceiptFilter, *, before: UUID = NEWEST, limit: int
    ) -> Page[ReceiptView, UUID]:
        """Receipts of the tenant, those before the place, each with its first `MOST_DELIVERIES` deliveries.

        Raises `UnknownConsumer`.
        """
        first = ids.first_at(wanted.since) if wanted.since else OLDEST
        before = min(before, ids.first_at(wanted.until)) if wanted.until else before
        async with self._database.snapshot() as connection:
            chosen = _choose(wanted, await endpoints_of(connection, tenant, wanted.consumer))
            stretch = _stretch(connection, chosen, tenant, first)
            windows = (limit + 1,) if chosen.arguments == _EVERYTHING else WINDOWS
            page = await walk(stretch, before, limit, windows)
            return Page(await _show(connection, tenant, page.items), page.next)

    async def deliveries(
        self, tenant: str, endpoint: UUID, *, status: DeliveryStatus | None = None, before: UUID = NEWEST, limit: int
    ) -> Page[DeliveryView, UUID]:
        """What was and is owed to an endpoint of the tenant, of one status or of each."""
        statuses = [status] if status else list(_SHOWN)
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                statements.text("list_endpoint_deliveries"), tenant, endpoint, before, limit + 1, statuses
            )
        shown = tuple(delivery_view(row) for row in rows[:limit])
        return Page(shown, shown[-1].id if len(rows) > limit else None)


_EVERYTHING = (None, None, None)


def _choose(wanted: ReceiptFilter, endpoints: list[UUID] | None) -> _Walk:
    """The walk along the index that leaves the least to be looked at in vain."""
    kind = types(wanted.type)
    if wanted.event_id is not None:
        own = _receipt_of(wanted.event_id)
        rest = (wanted.event_id, own, endpoints or [], endpoints is None)
        return _Walk("walk_receipts_of_event", (wanted.open, kind.exact, kind.prefix, *rest))
    if endpoints is not None:
        arguments = (wanted.open, kind.exact, kind.prefix, endpoints)
        return _Walk("walk_receipts_of_consumer", arguments, over_deliveries=True)
    if kind.exact is not None:
        return _Walk("walk_receipts_of_type", (wanted.open, kind.exact))
    if wanted.open:
        return _Walk("walk_open_receipts", (kind.prefix,), over_deliveries=True)
    return _Walk("walk_receipts", (wanted.open, kind.exact, kind.prefix))


def _receipt_of(event_id: str) -> UUID | None:
    """The receipt whose event has an id that Relay made from it, if this is one."""
    try:
        return ids.parse(ids.EVENT, event_id)
    except ids.InvalidId:
        return None


def _stretch(connection: Connection, chosen: _Walk, tenant: str, first: UUID) -> Stretch[UUID]:
    async def read(before: UUID, window: int, wanted: int) -> tuple[UUID | None, Sequence[UUID]]:
        if before <= first:
            return None, ()
        arguments = chosen.arguments
        if chosen.over_deliveries:
            # the last that a receipt before this place can have
            arguments = (*arguments, ids.delivery_range(UUID(int=before.int - 1))[1])
        row = await connection.fetchrow(
            statements.text(chosen.statement), tenant, before, first, window, wanted, *arguments
        )
        assert row is not None, "a walk answers one row"
        return row["floor"], row["found"]

    return read


async def _show(connection: Connection, tenant: str, receipts: Sequence[UUID]) -> tuple[ReceiptView, ...]:
    if not receipts:
        return ()
    rows = await connection.fetch(statements.text("show_receipts"), tenant, receipts)
    deliveries: dict[UUID, list[DeliveryView]] = defaultdict(list)
    for row in await connection.fetch(
        statements.text("show_deliveries_of_receipts"), tenant, receipts, MOST_DELIVERIES
    ):
        deliveries[row["receipt_id"]].append(delivery_view(row))
    of = {delivery.id: receipt for receipt, owed in deliveries.items() for delivery in owed}
    past: dict[UUID, list[PastGeneration]] = defaultdict(list)
    for generation in await past_generations(connection, rows):
        if generation.delivery_id in of:
            past[of[generation.delivery_id]].append(generation)
    return tuple(receipt_view(row, tuple(deliveries[row["id"]]), tuple(past[row["id"]])) for row in rows)
