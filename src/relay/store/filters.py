"""What lists and bulk calls may be asked for, and how a filter's words become what statements compare.

Owns the filters of receipts and dead letters. The form of a pattern is checked by whoever takes it in. Invariant: a
type means here what it means in routing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from relay.domain.delivery import DeadReason
from relay.domain.routing import ALL
from relay.store import statements
from relay.store.database import Connection

MOST_OF_A_NAME = 100
"""How many endpoints one name stands for: the one that bears it, and those removed last. Each is one walk more."""


class UnknownConsumer(ValueError):
    """No endpoint of the tenant bears that name, and none that was removed did."""


@dataclass(frozen=True, slots=True)
class ReceiptFilter:
    """Which receipts: `type` is a pattern as endpoints have them, `since` is included and `until` is not."""

    open: bool | None = None
    type: str | None = None
    event_id: str | None = None
    consumer: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters: `type` is a pattern as endpoints have them, `since` is included."""

    consumer: str | None = None
    reason: DeadReason | None = None
    type: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Types:
    """A pattern as statements compare it: the type itself, or what it begins with; both None for every type."""

    exact: str | None = None
    prefix: str | None = None


def types(pattern: str | None) -> Types:
    """The pattern in these words."""
    if pattern is None or pattern == ALL:
        return Types()
    if pattern.endswith("." + ALL):
        return Types(prefix=pattern.removesuffix(ALL))
    return Types(exact=pattern)


async def endpoints_of(connection: Connection, tenant: str, consumer: str | None) -> list[UUID] | None:
    """The tenant's endpoints of that name, removed ones included (the last ones of many); None where no name is given.

    Raises `UnknownConsumer`.
    """
    if consumer is None:
        return None
    rows = await connection.fetch(statements.text("endpoints_named"), tenant, consumer, MOST_OF_A_NAME)
    if not rows:
        raise UnknownConsumer(f"no endpoint is or was named {consumer}")
    return [row[0] for row in rows]
