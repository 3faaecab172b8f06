"""What `relay verify` asks of the database: how far the journal goes, and whether a stretch of it is right.

Owns the reading of rows into faults and sums. Where the walk goes, and what a fault that is seen means, are decided
above. Invariants: each question is one statement, so it sees one moment and holds no snapshot longer than it takes; it
looks at no more than the stretch that it is given; and nothing is written but what a verification that is over found.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from uuid import UUID

import asyncpg

from relay.domain import ids
from relay.domain.envelope import JournalPosition
from relay.domain.verification import Fault, FaultKind, Tally, Verification, stretch
from relay.store import statements
from relay.store.database import Database

MOST_STRAYS = 1_000
"""How many strays of a partition or a day are looked at; what there is beyond them is as wrong as they are."""

_OF_DELIVERIES = {
    FaultKind.DELIVERY_WITHOUT_RECEIPT,
    FaultKind.MISPLACED_DELIVERY,
    FaultKind.DELIVERY_DIFFERS,
    FaultKind.DELIVERY_WITHOUT_ENDPOINT,
    FaultKind.IMPOSSIBLE_STATE,
    FaultKind.VOID_MISMATCH,
    FaultKind.LEFTOVER_DELIVERY,
}


@dataclass(frozen=True, slots=True)
class Extent:
    """How far the journal went at one moment: each partition's next number, and the last id, None without any.

    `positions` is how many a walk meets: those that were given, without the pruned ones.
    """

    next_numbers: dict[int, int]
    last_id: UUID | None
    positions: int


@dataclass(frozen=True, slots=True)
class Positions:
    """A stretch of one partition, up to before `below`: how many events there are, and what is missing between them."""

    below: int
    events: int
    first: int | None
    last: int | None
    pruned: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Strays:
    """What lies where it cannot be met on the way."""

    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Records:
    """What lies in a stretch of ids, and what is wrong with it."""

    tally: Tally
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where a walk over the idempotency keys stands."""

    tenant: str = ""
    source: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Keys:
    """What is wrong with some idempotency keys, and where the walk goes on; None: it is over."""

    after: KeyPlace | None
    faults: tuple[Fault, ...]


class Verifying:
    """Questions to one database. All raise `StoreUnavailable`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def extent(self) -> Extent:
        """How far the journal goes now.

        Every number below a partition's next one is settled: an append holds the partition's head from taking its
        numbers to its commit, so whoever took a lower one has committed, or its numbers were given anew. A number that
        is missing there will not come any more.
        """
        row = await self._row("measure_extent")
        heads = dict(zip(row["partitions"], row["next_numbers"], strict=True))
        return Extent(heads, row["last_id"], max(sum(heads.values()) - len(heads) - row["pruned"], 0))

    async def strays(self) -> Strays:
        """Positions that no partition's head has given."""
        rows = await self._rows("stray_positions", MOST_STRAYS)
        positions = (JournalPosition(row["partition"], row["number"]) for row in rows)
        return Strays(tuple(Fault(FaultKind.STRAY_POSITION, str(position)) for position in positions))

    async def positions(self, partition: int, start: int, below: int, window: int) -> Positions:
        """The next `window` events of a partition from a number on, below another; and the numbers between them."""
        row = await self._row("walk_positions", partition, start, below, window)
        missing = list(zip(row["missing_firsts"], row["missing_lasts"], strict=True))
        risen = list(zip(row["risen_firsts"], row["risen_lasts"], strict=True))
        twins = [(number, number) for number in row["twins"]]
        faults = [
            Fault(kind, stretch(partition, first, last), last - first + 1)
            for kind, stretches in (
                (FaultKind.MISSING_POSITION, missing),
                (FaultKind.PRUNED_POSITION, risen),
                (FaultKind.DUPLICATE_POSITION, twins),
            )
            for first, last in stretches
        ]
        return Positions(
            below=row["below"],
            events=row["rows"],
            first=row["first"],
            last=row["last"],
            pruned=row["pruned"],
            faults=tuple(faults),
        )

    async def next_day(self, day: date) -> date | None:
        """The first day from this one on that has anything in it, None if there is none."""
        row = await self._row("next_records", ids.first_of(day), day)
        found = [ids.day_of(each) for each in (row["receipt"], row["delivery"]) if each is not None]
        if row["day"] is not None:
            found.append(row["day"])
        return min(found, default=None)

    async def events_of_other_days(self, day: date) -> Strays:
        """Events that lie in a day although their ids say another one."""
        rows = await self._rows("events_of_other_days", day, ids.first_of(day), ids.last_of(day), MOST_STRAYS)
        return Strays(tuple(_fault(FaultKind.WRONG_DAY, row["receipt_id"]) for row in rows))

    async def end_of_window(self, day: date, first: UUID, last: UUID, window: int) -> UUID:
        """The last id of a stretch that has about `window` rows of each table, and whole families of ids; or `last`."""
        row = await self._row("end_of_window", first, last, day, window)
        beyond: UUID | None = row[0]
        if beyond is None:
            return last
        start = ids.delivery_range(beyond)[0]
        if start <= first:  # one family is more than the window
            return min(ids.delivery_range(first)[1], last)
        return UUID(int=start.int - 1)

    async def records(self, day: date, first: UUID, last: UUID) -> Records:
        """Everything of one day whose ids lie between these, compared."""
        row = await self._row("examine_records", first, last, day)
        faults = (
            _fault(FaultKind(kind), identity, deliveries)
            for kind, identity, deliveries in zip(row["kinds"], row["ids"], row["deliveries"], strict=True)
        )
        return Records(
            Tally(
                events=row["events"],
                void=row["void"],
                matched=row["matched"],
                delivered=row["delivered"],
                waiting=row["waiting"],
                dead=row["dead"],
                discarded=row["discarded"],
                no_route=row["no_route"],
            ),
            tuple(faults),
        )

    async def keys(self, after: KeyPlace, window: int) -> Keys:
        """The next `window` idempotency keys behind a place."""
        row = await self._row("examine_keys", after.tenant, after.source, after.key, window)
        named = zip(row["tenants"], row["sources"], row["keys"], strict=True)
        faults = tuple(Fault(FaultKind.KEY_WITHOUT_EVENT, " ".join(parts)) for parts in named)
        if row["last_tenant"] is None:
            return Keys(None, faults)
        return Keys(KeyPlace(row["last_tenant"], row["last_source"], row["last_key"]), faults)

    async def keep(self, verification: Verification) -> None:
        """Write down what a verification that is over found, for the gauge."""
        async with self._database.connection() as connection:
            await connection.execute(
                statements.text("keep_verification"),
                verification.ok,
                verification.tally.events,
                verification.unaccounted,
                sum(found.count for found in verification.faults),
            )

    async def _rows(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        async with self._database.connection() as connection:
            return list(await connection.fetch(statements.text(statement), *arguments))

    async def _row(self, statement: str, *arguments: object) -> asyncpg.Record:
        (row,) = await self._rows(statement, *arguments)
        return row


def _fault(kind: FaultKind, identity: UUID, deliveries: int = 0) -> Fault:
    place = str(identity) if kind in _OF_DELIVERIES else ids.write(ids.RECEIPT, identity)
    return Fault(kind, place, deliveries=deliveries)
