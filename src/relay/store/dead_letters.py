"""Dead letters: what waits for a person, newest first.

Owns the list and the choice of what a bulk call is about. Dead deliveries and events that matched no rule are one list.
Invariant: a page is of one moment; what was discarded or sent again is in none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import starmap
from typing import NamedTuple
from uuid import UUID

import asyncpg

from relay.domain.delivery import DeadReason
from relay.domain.routing import RuleSet
from relay.store import statements
from relay.store.database import Connection, Database
from relay.store.filters import DeadLetterFilter, endpoints_of, types
from relay.store.pages import Page, Stretch, walk

PICK_WINDOWS = (1_000, 5_000, 5_000, 5_000, 5_000)
"""How many rows each stretch of one bulk call's walk has."""

LONG_AGO = datetime.min.replace(tzinfo=UTC)


class DeadPlace(NamedTuple):
    """A place in the list. The instant counts to the microsecond."""

    at: datetime
    id: UUID


DEAD_NEWEST = DeadPlace(datetime.max.replace(tzinfo=UTC), UUID(int=(1 << 128) - 1))
"""The place before the newest dead letter."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead delivery, or an event that matched no rule: that has no delivery, endpoint and consumer.

    `display_url` is what the last attempt was sent to, None where none was made. `was_received` says that the
    endpoint had the event and never acked it.
    """

    receipt_id: UUID
    delivery_id: UUID | None
    endpoint_id: UUID | None
    consumer: str | None
    type: str
    event_id: str
    reason: DeadReason
    last_error: str | None
    attempts: int
    display_url: str | None
    dead_at: datetime
    was_received: bool = False

    @property
    def place(self) -> DeadPlace:
        """Where it stands in the list."""
        return DeadPlace(self.dead_at, self.delivery_id or self.receipt_id)


@dataclass(frozen=True, slots=True)
class Picked:
    """What a bulk call is about, the oldest first, and where the next one goes on; None: there is no more of it."""

    deliveries: tuple[UUID, ...]
    unrouted: tuple[UUID, ...]
    next: DeadPlace | None

    @property
    def count(self) -> int:
        """How many dead letters that are."""
        return len(self.deliveries) + len(self.unrouted)


class DeadLetters:
    """The dead letters of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self, tenant: str, wanted: DeadLetterFilter, *, before: DeadPlace = DEAD_NEWEST, limit: int
    ) -> Page[DeadLetter, DeadPlace]:
        """Dead letters of the tenant, those before the place. Raises `UnknownConsumer`."""
        async with self._database.snapshot() as connection:
            endpoints = await endpoints_of(connection, tenant, wanted.consumer)
            unrouted: set[UUID] = set()
            page = await walk(_stretch(connection, tenant, wanted, endpoints, unrouted), before, limit)
            return Page(await _show(connection, tenant, page.items, unrouted), page.next)


async def pick(
    connection: Connection,
    tenant: str,
    wanted: DeadLetterFilter,
    *,
    limit: int,
    after: DeadPlace | None = None,
    redrivable: RuleSet | None = None,
) -> Picked:
    """The oldest `limit` dead letters after the place that are wanted; fewer where many are looked at in vain.

    With `redrivable`, the rules in force, those are left out that cannot be sent again: what removed endpoints are owed
    and what no rule matches. They would stand in the way of the others call after call. Raises `UnknownConsumer`.
    """
    endpoints = await endpoints_of(connection, tenant, wanted.consumer)
    unrouted: set[UUID] = set()
    first = DeadPlace(wanted.since or LONG_AGO, UUID(int=0))
    stretch = _pick_stretch(connection, tenant, wanted, _pick_of(tenant, wanted, endpoints, redrivable), unrouted)
    page = await walk(stretch, max(first, after or first), limit, PICK_WINDOWS)
    return Picked(
        deliveries=tuple(place.id for place in page.items if place.id not in unrouted),
        unrouted=tuple(place.id for place in page.items if place.id in unrouted),
        next=page.next,
    )


def _routable(tenant: str, rules: RuleSet | None) -> tuple[bool, list[str], list[str]]:
    """Every event, or those of these types and of the types that begin so."""
    if rules is None:
        return True, [], []
    patterns = [types(pattern) for pattern in rules.patterns(tenant)]
    exact = [each.exact for each in patterns if each.exact is not None]
    prefixes = [each.prefix for each in patterns if each.prefix is not None]
    return len(exact) + len(prefixes) < len(patterns), exact, prefixes


def _pick_of(
    tenant: str, wanted: DeadLetterFilter, endpoints: list[UUID] | None, redrivable: RuleSet | None
) -> tuple[str, tuple[object, ...]]:
    living = redrivable is not None
    if endpoints is not None:
        return "pick_dead_letters_of_consumer", (living, endpoints, wanted.reason)
    if wanted.reason is DeadReason.NO_ROUTE:
        return "pick_unrouted", _routable(tenant, redrivable)
    if wanted.reason is not None:
        return "pick_dead_letters_of_reason", (living, wanted.reason)
    return "pick_dead_letters", (living, *_routable(tenant, redrivable))


def _pick_stretch(
    connection: Connection,
    tenant: str,
    wanted: DeadLetterFilter,
    picking: tuple[str, tuple[object, ...]],
    unrouted: set[UUID],
) -> Stretch[DeadPlace]:
    """Like `_stretch`, the other way."""
    name, more = picking
    kind = types(wanted.type)

    async def read(after: DeadPlace, window: int, most: int) -> tuple[DeadPlace | None, Sequence[DeadPlace]]:
        row = await connection.fetchrow(
            statements.text(name), tenant, *after, window, most, kind.exact, kind.prefix, *more
        )
        return _read(row, unrouted)

    return read


def _walk_of(wanted: DeadLetterFilter, endpoints: list[UUID] | None) -> tuple[str, tuple[object, ...]]:
    """The walk along the index that leaves the least to be looked at in vain."""
    if endpoints is not None:
        return "walk_dead_letters_of_consumer", (endpoints, wanted.reason)
    if wanted.reason is DeadReason.NO_ROUTE:
        return "walk_unrouted", ()
    if wanted.reason is not None:
        return "walk_dead_letters_of_reason", (wanted.reason,)
    return "walk_dead_letters", ()


def _stretch(
    connection: Connection,
    tenant: str,
    wanted: DeadLetterFilter,
    endpoints: list[UUID] | None,
    unrouted: set[UUID],
) -> Stretch[DeadPlace]:
    """Notes in `unrouted` which of the places are receipts rather than deliveries."""
    name, more = _walk_of(wanted, endpoints)
    kind = types(wanted.type)
    since = wanted.since or LONG_AGO

    async def read(before: DeadPlace, window: int, most: int) -> tuple[DeadPlace | None, Sequence[DeadPlace]]:
        row = await connection.fetchrow(
            statements.text(name), tenant, *before, since, window, most, kind.exact, kind.prefix, *more
        )
        return _read(row, unrouted)

    return read


def _read(row: asyncpg.Record | None, unrouted: set[UUID]) -> tuple[DeadPlace | None, Sequence[DeadPlace]]:
    """A stretch as its statement answers it."""
    assert row is not None, "a walk answers one row"
    unrouted.update(each for each, is_delivery in zip(row["ids"], row["deliveries"], strict=True) if not is_delivery)
    floor = DeadPlace(row["floor_at"], row["floor_id"]) if row["floor_at"] else None
    return floor, list(starmap(DeadPlace, zip(row["ats"], row["ids"], strict=True)))


async def _show(
    connection: Connection, tenant: str, places: Sequence[DeadPlace], unrouted: set[UUID]
) -> tuple[DeadLetter, ...]:
    deliveries = [place.id for place in places if place.id not in unrouted]
    receipts = [place.id for place in places if place.id in unrouted]
    shown: dict[UUID, DeadLetter] = {}
    if deliveries:
        rows = await connection.fetch(statements.text("show_dead_deliveries"), tenant, deliveries)
        shown |= {row["delivery_id"]: _dead(row) for row in rows}
    if receipts:
        rows = await connection.fetch(statements.text("show_unrouted"), tenant, receipts)
        shown |= {row["receipt_id"]: _no_route(row) for row in rows}
    return tuple(shown[place.id] for place in places)


def _dead(row: asyncpg.Record) -> DeadLetter:
    return DeadLetter(**{**dict(row), "reason": DeadReason(row["reason"])})


def _no_route(row: asyncpg.Record) -> DeadLetter:
    return DeadLetter(
        **dict(row),
        delivery_id=None,
        endpoint_id=None,
        consumer=None,
        reason=DeadReason.NO_ROUTE,
        last_error=None,
        attempts=0,
        display_url=None,
    )
