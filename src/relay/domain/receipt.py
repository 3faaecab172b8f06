"""The receipt: when it closes, with which outcome, and the story that it tells.

Owns the outcomes, the boundaries and the order of a timeline. Invariant: a receipt closes once, when nothing that was
expected is left, and its timeline never runs backwards, even where two clocks disagree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class ReceiptOutcome(StrEnum):
    """How a receipt closed."""

    DELIVERED = "delivered"
    DELIVERED_AFTER_REDRIVE = "delivered_after_redrive"
    CLOSED_INCOMPLETE = "closed_incomplete"
    """A person discarded what was left."""
    EXPIRED = "expired"
    """It was pruned while still open."""


class Boundary(StrEnum):
    """A handoff on an event's way: gateway, journal, dispatcher, receipt."""

    B1 = "B1"
    B2 = "B2"
    B3 = "B3"
    B4 = "B4"


class TimelineWhat(StrEnum):
    """What a line of the timeline tells. Up to `routed` they are in the order in which an event meets them.

    `confirmed` is the moment at which as many copies of the journal as are asked for hold the event; with one copy that
    is its commit. `accepted` is the moment from which Relay owes the event: that of its confirmation, for then its 202
    is due, whether it reaches the sender or not. An event that was never confirmed has neither.
    """

    CHECKED = "checked"
    RECEIPT_ASSIGNED = "receipt_assigned"
    COMMITTED = "committed"
    CONFIRMED = "confirmed"
    ACCEPTED = "accepted"
    ROUTED = "routed"
    ACKED = "acked"
    DEAD_LETTERED = "dead_lettered"
    REDRIVEN = "redriven"
    CLOSED = "closed"


BOUNDARY_OF: dict[TimelineWhat, Boundary] = {
    TimelineWhat.CHECKED: Boundary.B1,
    TimelineWhat.RECEIPT_ASSIGNED: Boundary.B1,
    TimelineWhat.COMMITTED: Boundary.B2,
    TimelineWhat.CONFIRMED: Boundary.B2,
    TimelineWhat.ACCEPTED: Boundary.B1,
    TimelineWhat.ROUTED: Boundary.B3,
    TimelineWhat.ACKED: Boundary.B4,
    TimelineWhat.DEAD_LETTERED: Boundary.B3,
    TimelineWhat.REDRIVEN: Boundary.B4,
    TimelineWhat.CLOSED: Boundary.B4,
}

_ONCE = tuple(TimelineWhat)[: tuple(TimelineWhat).index(TimelineWhat.ROUTED) + 1]
_RANK = {what: rank for rank, what in enumerate(_ONCE)}


def closes(expected: int, acked: int, *, discarded: int = 0, redriven: bool = False) -> ReceiptOutcome | None:
    """The outcome with which a receipt closes at this progress, or None while something is still owed.

    `expected` counts the deliveries; an event that matched no rule has none, and its receipt stays open until it is
    routed anew or its one dead letter is discarded. `discarded` counts dead letters that a person gave up; `redriven`
    says whether anything of the receipt was ever sent again on demand.
    """
    if acked + discarded < max(expected, 1):
        return None
    if discarded:
        return ReceiptOutcome.CLOSED_INCOMPLETE
    return ReceiptOutcome.DELIVERED_AFTER_REDRIVE if redriven else ReceiptOutcome.DELIVERED


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to a receipt at an instant, to one consumer or (None) to the event as a whole."""

    what: TimelineWhat
    at: datetime
    consumer: str | None = None


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A line of the timeline: `at_ms` milliseconds after the request reached the gateway (at least 0)."""

    boundary: Boundary
    what: TimelineWhat
    at_ms: float
    consumer: str | None = None


def after(received_at: datetime, microseconds: int) -> datetime:
    """The instant so long after the request's arrival, by the gateway's clock."""
    return received_at + timedelta(microseconds=microseconds)


def timeline(received_at: datetime, moments: Iterable[Moment]) -> tuple[TimelineEntry, ...]:
    """Tell the moments in order.

    An event's way to its routing is told in its logical order, the rest by time, moments of one instant as they were
    given. `received_at` is the gateway's clock and most moments are PostgreSQL's: where a clock is behind, a moment is
    shown no earlier than the one that it follows.
    """
    ordered = sorted(moments, key=_place)
    entries: list[TimelineEntry] = []
    latest = 0.0
    for moment in ordered:
        latest = max(latest, (moment.at - received_at) / timedelta(milliseconds=1))
        entries.append(TimelineEntry(BOUNDARY_OF[moment.what], moment.what, latest, moment.consumer))
    return tuple(entries)


def _place(moment: Moment) -> tuple[int, datetime, bool]:
    """Where a moment stands: the way to routing first, then by time, a closing after what it closes."""
    return _RANK.get(moment.what, len(_ONCE)), moment.at, moment.what is TimelineWhat.CLOSED
