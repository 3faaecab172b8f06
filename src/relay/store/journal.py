"""The append: an event, its receipt, its key and its fan-out in one transaction and one round trip.

Owns the group's shape and the answers, and the void, which takes events back that no quorum confirmed. Routing and the
wording of the 202 belong to the gateway. Invariant: either every event of a group that is `appended` is on this
server's disk with its whole fan-out when `append` returns, or none is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from uuid import UUID

import msgspec

from relay.domain import ids
from relay.domain.envelope import Envelope, JournalPosition
from relay.domain.signed import KEPT_SECONDS
from relay.store import statements
from relay.store.database import Database


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The sender's name for a request, with the answer that later requests of that name get.

    The position is the only part of the answer that the append itself assigns: the answer is
    `answer_head + str(position) + answer_tail`. `signed` says that the request's signature may come again.
    """

    key: str
    fingerprint: bytes
    answer_head: bytes
    answer_tail: bytes
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Addition:
    """One event to append: `partition` is its tenant's, `fan_out` pairs each delivery's id with its endpoint's."""

    envelope: Envelope
    partition: int
    key: IdempotencyKey | None
    fan_out: tuple[tuple[UUID, UUID], ...]


@dataclass(frozen=True, slots=True)
class Versions:
    """What a gateway's snapshot was made of; the append refuses to work from an older one."""

    rules: int
    credentials: int
    schemas: int


class AppendResult(StrEnum):
    """What became of one event of a group."""

    APPENDED = "appended"
    REVIVED = "revived"
    """It was there and void, and counts from now on."""
    REPLAYED = "replayed"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Appended:
    """`answer` is the first answer's exact bytes for a replay and a revival, else None; then `earlier` is that event's
    receipt. `position` is None only for a conflict. `log_from` is a place in the log before the end of the append, and
    `timeline` the server's, which changes with each failover; 0 for a conflict.
    """

    result: AppendResult
    position: JournalPosition | None
    answer: bytes | None
    earlier: UUID | None = None
    log_from: int = 0
    timeline: int = 0


class Voided(StrEnum):
    """What became of an event that is to be void."""

    VOID = "void"
    """Nothing of it was sent, nor will be."""
    CONFIRMED = "confirmed"
    """It is on the quorum after all."""
    UNKNOWN = "unknown"
    """It may be on the quorum, and may have been sent; it stays."""


class StaleSnapshot(Exception):
    """Rules, credentials or schemas have changed since the snapshot. Nothing is written: load it and start over."""


class Journal:
    """The journal of one database.

    A name is remembered for `key_retention_seconds`, and whatever shares an append with a signed request at least as
    long as that is known again: its name must not be free while anybody could send it once more.
    """

    def __init__(self, database: Database, *, key_retention_seconds: float) -> None:
        self._database = database
        self._key_retention_seconds = key_retention_seconds

    async def append(self, versions: Versions, group: Sequence[Addition]) -> list[Appended]:
        """Append a group; answers one result per event, in order.

        No two events of a group may bear the same tenant, source and key. Raises `StaleSnapshot` if `versions` are not
        the newest, `StoreUnavailable` if the database did not answer (then the events may or may not be durable),
        `StoreBusy` and `StoreRefused` if it refused (then none of them is).
        """
        seconds = self._key_retention_seconds
        if any(addition.key is not None and addition.key.signed for addition in group):
            seconds = max(seconds, KEPT_SECONDS)
        arguments = _arguments(versions, seconds, group)
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("append_events"), *arguments)
        if rows and rows[0]["ordinal"] == 0:
            raise StaleSnapshot
        assert len(rows) == len(group), "a key that was found taken stays locked until its row is read"
        results: list[Appended] = [_UNSET] * len(group)
        for ordinal, result, number, head, tail, earlier, log_from, timeline in rows:
            position = None if number is None else JournalPosition(group[ordinal - 1].partition, number)
            results[ordinal - 1] = _appended(result, position, head, tail, earlier, log_from, timeline)
        return results

    async def void(
        self,
        receipts: Sequence[UUID],
        *,
        log_from: int,
        timeline: int,
        standbys: int,
        names: Sequence[str],
        promise: str | None,
    ) -> dict[UUID, Voided]:
        """Take events back that were appended or revived behind `log_from` of `timeline`, and not confirmed in time.

        They are kept if `standbys` of the `names` have them on disk by now, and the server still has the list of
        standbys that was its `promise`. Raises `StoreUnavailable`; then it may still happen.
        """
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                statements.text("void_events"), list(receipts), log_from, timeline, standbys, list(names), promise
            )
        return {receipt: Voided(result) for receipt, result in rows}

    async def standing(self, receipts: Sequence[UUID]) -> set[UUID]:
        """Which of these events are not void, seen behind whoever is about to declare them so."""
        async with self._database.transaction() as connection:
            return {row[0] for row in await connection.fetch(statements.text("lock_standing"), list(receipts))}


_UNSET = Appended(AppendResult.CONFLICT, None, None)


def _appended(
    result: str,
    position: JournalPosition | None,
    head: bytes | None,
    tail: bytes | None,
    earlier: UUID | None,
    log_from: int,
    timeline: int,
) -> Appended:
    if result == AppendResult.CONFLICT:
        return _UNSET
    assert position is not None, "a day that a living key points to is not dropped"
    answer = None if head is None or tail is None else head + str(position).encode() + tail
    return Appended(AppendResult(result), position, answer, earlier, log_from, timeline)


def _arguments(versions: Versions, key_seconds: float, group: Sequence[Addition]) -> tuple[object, ...]:
    envelopes = [addition.envelope for addition in group]
    keys = [addition.key for addition in group]
    return (
        versions.rules,
        versions.credentials,
        versions.schemas,
        key_seconds,
        [e.receipt_id for e in envelopes],
        [ids.day_of(e.receipt_id) for e in envelopes],
        [addition.partition for addition in group],
        [e.tenant for e in envelopes],
        [e.source for e in envelopes],
        [e.event_id for e in envelopes],
        [e.type for e in envelopes],
        [e.schema for e in envelopes],
        [e.received_at for e in envelopes],
        [e.content_type for e in envelopes],
        [e.payload for e in envelopes],
        [e.payload_sha256 for e in envelopes],
        [msgspec.json.encode(e.forwarded).decode() if e.forwarded else None for e in envelopes],
        [e.hops for e in envelopes],
        [e.checked_us for e in envelopes],
        [e.assigned_us for e in envelopes],
        [len(addition.fan_out) for addition in group],
        [k.key if k else None for k in keys],
        [k.fingerprint if k else None for k in keys],
        [k.answer_head if k else None for k in keys],
        [k.answer_tail if k else None for k in keys],
        list(chain.from_iterable([n] * len(addition.fan_out) for n, addition in enumerate(group, 1))),
        [delivery for addition in group for delivery, _ in addition.fan_out],
        list(chain.from_iterable([a.envelope.receipt_id] * len(a.fan_out) for a in group)),
        [endpoint for addition in group for _, endpoint in addition.fan_out],
    )
