"""Re-drives and discards: what waits for a person, in the hands of one.

Owns these changes. Each request is one transaction, with its name if it has one. Invariant: what is being sent right
now is left alone, so no re-drive takes a delivery from its holder; and a receipt is open exactly while something of it
is owed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from relay.domain import ids
from relay.domain.audit import AuditAction, Author
from relay.domain.receipt import ReceiptOutcome
from relay.domain.routing import Rule, RuleSet
from relay.domain.telemetry import Happening, ReceiptsClosed, ReceiptsRedriven
from relay.store import audit, request_keys, statements
from relay.store.database import Connection, Database
from relay.store.dead_letters import DeadPlace, Picked, pick
from relay.store.filters import DeadLetterFilter, endpoints_of
from relay.store.receipts import DeliveryView, delivery_view
from relay.store.request_keys import KeptAnswer, RequestKey

MOST_FAN_OUT = 20_000
"""How many deliveries one bulk call makes for events that had matched no rule; those of the first are made anyway."""

_RULES = msgspec.json.Decoder(list[tuple[UUID, str, tuple[str, ...]]])

Entropy = Callable[[int], bytes]


class NotRedrivable(Exception):
    """The delivery cannot be sent again as it stands; the text says why."""


@dataclass(frozen=True, slots=True)
class Redriven:
    """A delivery that is sent again."""

    id: UUID
    endpoint_id: UUID
    consumer: str
    generation: int


@dataclass(frozen=True, slots=True)
class Counted:
    """How many dead letters a bulk call was about, and whether there are more of them.

    `next` is what the next call goes on after; None: it begins with the oldest.
    """

    count: int
    more: bool
    next: DeadPlace | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change brings about outside of the database: whether something is due anew, and what to tell."""

    owes_anew: bool = False
    happenings: tuple[Happening, ...] = ()


@dataclass(frozen=True, slots=True)
class Performed:
    """What a request is answered; `replayed` if an earlier one of that name did the work."""

    answer: KeptAnswer
    replayed: bool
    effect: Effect


@dataclass(slots=True)
class _Notes:
    """What a transaction did so far."""

    owes_anew: bool = False
    redriven: set[UUID] = field(default_factory=set)
    closed: int = 0

    def effect(self) -> Effect:
        happenings: list[Happening] = []
        if self.redriven:
            happenings.append(ReceiptsRedriven(len(self.redriven)))
        if self.closed:
            happenings.append(ReceiptsClosed(ReceiptOutcome.CLOSED_INCOMPLETE, self.closed))
        return Effect(self.owes_anew, tuple(happenings))


class _Owed(NamedTuple):
    """A delivery made for an event that had matched no rule."""

    id: UUID
    receipt_id: UUID
    endpoint_id: UUID
    consumer: str
    day: date


class Redrive:
    """The changes that one request may make, inside its transaction and for its tenant alone."""

    def __init__(self, connection: Connection, tenant: str, entropy: Entropy, author: Author | None = None) -> None:
        self._connection = connection
        self._tenant = tenant
        self._entropy = entropy
        self._author = author
        self._notes = _Notes()

    @property
    def effect(self) -> Effect:
        """What these changes bring about once they are committed."""
        return self._notes.effect()

    async def receipt(self, receipt: UUID, *, consumer: str | None = None) -> tuple[Redriven, ...] | None:
        """Send again what of the receipt is not acknowledged and not being sent right now; None if there is none.

        Dead letters come back, given up or not, and what waits for a retry or an explicit ack starts over. An event
        that had matched no rule is routed anew by the rules now in force, to all that they name or to the one consumer
        alone. Raises `UnknownConsumer`, and `NotRedrivable` where that one subscribes to no such event.
        """
        endpoints = await endpoints_of(self._connection, self._tenant, consumer)
        found = await self._connection.fetchrow(statements.text("find_receipt"), self._tenant, receipt)
        if found is None:
            return None
        if found["expected"] > 0:
            redriven = await self._redrive_unacked(receipt, endpoints)
        else:
            redriven = await self._route(receipt, endpoints)
        if redriven:
            details = {"consumer": consumer, "count": len(redriven)}
            await self._enter(AuditAction.RECEIPT_REDRIVE, ids.write(ids.RECEIPT, receipt), details)
        return redriven

    async def _redrive_unacked(self, receipt: UUID, endpoints: list[UUID] | None) -> tuple[Redriven, ...]:
        owed = await self._connection.fetch(
            statements.text("deliveries_of_receipt"), self._tenant, receipt, *ids.delivery_range(receipt), endpoints
        )
        return await self._redrive([row["id"] for row in owed], "unacked")

    async def delivery(self, delivery: UUID) -> DeliveryView | None:
        """Send this one again, even if it was delivered; answers how it stands then, None if there is none.

        Raises `NotRedrivable` while it is being sent, and where its endpoint was removed.
        """
        held = await self._connection.fetchrow(statements.text("lock_delivery"), self._tenant, delivery)
        if held is None:
            return None
        if held["leased"]:
            raise NotRedrivable("the delivery is being sent right now; wait for the outcome")
        if held["removed"]:
            raise NotRedrivable("the delivery's endpoint was removed")
        await self._redrive([delivery], "any")
        row = await self._connection.fetchrow(statements.text("get_delivery"), self._tenant, delivery)
        assert row is not None, "the row is locked"
        view = delivery_view(row)
        await self._enter(AuditAction.DELIVERY_REDRIVE, str(delivery), {"consumer": view.consumer})
        return view

    async def redrive_dead_letters(
        self, wanted: DeadLetterFilter, *, limit: int = 1000, after: DeadPlace | None = None, dry_run: bool = False
    ) -> Counted:
        """Send the oldest `limit` dead letters of these again, or (`dry_run`) count them.

        Those of removed endpoints are neither sent nor counted, nor are events that still match no rule. Raises
        `UnknownConsumer`.
        """
        rules = await self._rules()
        picked = await pick(self._connection, self._tenant, wanted, limit=limit, after=after, redrivable=rules)
        if dry_run:
            return Counted(picked.count, picked.next is not None, picked.next)
        counted = await self._redrive_picked(picked, rules, after)
        await self._enter_bulk(AuditAction.DEAD_LETTERS_REDRIVE, wanted, counted)
        return counted

    async def discard_dead_letters(
        self, wanted: DeadLetterFilter, *, limit: int = 1000, after: DeadPlace | None = None, dry_run: bool = False
    ) -> Counted:
        """Give the oldest `limit` dead letters of these up, or (`dry_run`) count them.

        A receipt of which nothing else is owed closes as incomplete. Raises `UnknownConsumer`.
        """
        picked = await pick(self._connection, self._tenant, wanted, limit=limit, after=after)
        if dry_run:
            return Counted(picked.count, picked.next is not None, picked.next)
        rows = await self._connection.fetch(
            statements.text("discard_deliveries"), self._tenant, list(picked.deliveries)
        )
        given_up = Counter(row["receipt_id"] for row in rows)
        held = await self._lock({*given_up, *picked.unrouted})
        given_up.update(row["id"] for row in held if row["unrouted"])
        closed = await self._connection.fetch(
            statements.text("give_up_receipts"), self._tenant, list(given_up), list(given_up.values())
        )
        self._notes.closed += sum(row["closed"] for row in closed)
        counted = Counted(given_up.total(), picked.next is not None, picked.next)
        await self._enter_bulk(AuditAction.DEAD_LETTERS_DISCARD, wanted, counted)
        return counted

    async def _enter_bulk(self, action: AuditAction, wanted: DeadLetterFilter, counted: Counted) -> None:
        """What found nothing has changed nothing."""
        if counted.count:
            asked = {name: value for name, value in asdict(wanted).items() if value is not None}
            await self._enter(action, None, {"count": counted.count, **asked})

    async def _enter(self, action: AuditAction, subject: str | None, details: Mapping[str, object]) -> None:
        await audit.append(self._connection, self._author, self._tenant, action, subject, details=details)

    async def _redrive_picked(self, picked: Picked, rules: RuleSet, after: DeadPlace | None) -> Counted:
        rows = await self._connection.fetch(
            statements.text("redrive_deliveries"), self._tenant, list(picked.deliveries), "dead"
        )
        held = await self._lock({*(row["receipt_id"] for row in rows), *picked.unrouted})
        await self._reopen(rows)
        routed, left = await self._make([row for row in held if row["unrouted"]], rules)
        # what was left stands before that place
        following = after if left else picked.next
        count = len(rows) + len({each.receipt_id for each in routed})
        return Counted(count, left or picked.next is not None, following)

    async def _redrive(self, deliveries: Sequence[UUID], which: str) -> tuple[Redriven, ...]:
        rows = await self._connection.fetch(
            statements.text("redrive_deliveries"), self._tenant, list(deliveries), which
        )
        await self._lock({row["receipt_id"] for row in rows})
        await self._reopen(rows)
        return tuple(Redriven(row["id"], row["endpoint_id"], row["consumer"], row["generation"]) for row in rows)

    async def _reopen(self, rows: Sequence[asyncpg.Record]) -> None:
        """Take back from the receipts what these deliveries had counted there."""
        acks: Counter[UUID] = Counter()
        discards: Counter[UUID] = Counter()
        for row in rows:
            acks[row["receipt_id"]] += row["acked"]
            discards[row["receipt_id"]] += row["discarded"]
        receipts = list(acks)
        await self._connection.execute(
            statements.text("reopen_receipts"),
            self._tenant,
            receipts,
            [acks[receipt] for receipt in receipts],
            [discards[receipt] for receipt in receipts],
        )
        self._notes.redriven.update(receipts)
        self._notes.owes_anew |= bool(rows)

    async def _route(self, receipt: UUID, endpoints: Sequence[UUID] | None) -> tuple[Redriven, ...]:
        """Route an event anew that had matched no rule, given up or not; if endpoints are given, to these alone."""
        rules = await self._rules()
        if endpoints is not None:
            rules = RuleSet(rules.version, tuple(rule for rule in rules.rules if rule.endpoint_id in endpoints))
        held = [row for row in await self._lock({receipt}) if row["unrouted"] or row["given_up"]]
        made, _ = await self._make(held, rules)
        if endpoints is not None and held and not made:
            raise NotRedrivable(f"the consumer does not subscribe to {held[0]['type']}; give it the event type first")
        return tuple(Redriven(each.id, each.endpoint_id, each.consumer, 0) for each in made)

    async def _make(self, held: Sequence[asyncpg.Record], rules: RuleSet) -> tuple[list[_Owed], bool]:
        """Make the deliveries of these events; answers them, and whether some events were left for another call."""
        made: list[_Owed] = []
        fan_outs: dict[UUID, int] = {}
        left = False
        for row in held:
            wanted = rules.route(self._tenant, row["type"])
            if fan_outs and len(made) + len(wanted) > MOST_FAN_OUT:
                left = True
                break
            made += self._owed(row, wanted)
            if wanted:
                fan_outs[row["id"]] = len(wanted)
        await self._connection.execute(
            statements.text("owe_anew"),
            self._tenant,
            [each.id for each in made],
            [each.receipt_id for each in made],
            [each.endpoint_id for each in made],
            [each.day for each in made],
        )
        await self._connection.execute(
            statements.text("route_receipts"), self._tenant, list(fan_outs), list(fan_outs.values()), rules.version
        )
        self._notes.redriven.update(fan_outs)
        self._notes.owes_anew |= bool(made)
        return made, left

    def _owed(self, row: asyncpg.Record, wanted: Sequence[Rule]) -> list[_Owed]:
        drawn = ids.delivery_ids(row["id"], len(wanted), self._entropy)
        return [
            _Owed(delivery, row["id"], rule.endpoint_id, rule.consumer, row["journal_day"])
            for delivery, rule in zip(drawn, wanted, strict=True)
        ]

    async def _lock(self, receipts: Iterable[UUID]) -> Sequence[asyncpg.Record]:
        """Lock receipts, all of a change at once, in their order."""
        rows: Sequence[asyncpg.Record] = await self._connection.fetch(
            statements.text("lock_receipts"), self._tenant, list(receipts)
        )
        return rows

    async def _rules(self) -> RuleSet:
        """The tenant's rules as they are now."""
        row = await self._connection.fetchrow(statements.text("tenant_rules"), self._tenant)
        assert row is not None, "the first migration writes the versions row"
        return RuleSet(
            row["rules"],
            tuple(
                Rule(endpoint_id=endpoint, consumer=name, tenant=self._tenant, patterns=patterns)
                for endpoint, name, patterns in _RULES.decode(row["rules_json"] or "[]")
            ),
        )


class Redrives:
    """The re-drives and discards of one database."""

    def __init__(self, database: Database, *, entropy: Entropy, key_retention_seconds: float) -> None:
        self._database = database
        self._entropy = entropy
        self._key_retention_seconds = key_retention_seconds

    async def perform(
        self,
        tenant: str,
        key: RequestKey | None,
        work: Callable[[Redrive], Awaitable[KeptAnswer]],
        author: Author | None = None,
    ) -> Performed:
        """Do what a request asks for, in one transaction; once, if it has a name. What it does is the author's.

        What a request of that name did is not done again, and its answer given again. Whatever `work` raises undoes all
        of it, the name's claim included. Raises `RequestKeyReused`, `RequestUnderWay` while one of that name is carried
        out, and `StoreBusy` where nothing was done because of others' locks.
        """
        async with self._database.transaction() as connection:
            if key is not None:
                kept = await request_keys.claim(connection, tenant, key, self._key_retention_seconds)
                if kept is not None:
                    return Performed(kept, replayed=True, effect=Effect())
            redrive = Redrive(connection, tenant, self._entropy, author)
            answer = await work(redrive)
            if key is not None:
                await request_keys.keep(connection, tenant, key, answer)
        return Performed(answer, replayed=False, effect=redrive.effect)
