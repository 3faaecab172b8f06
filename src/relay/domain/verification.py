"""The verification: what can be wrong with a journal and what is owed for it, and the sum of what was found.

Owns the kinds of faults, the account of a walk and its verdict. How the rows are read and compared is the store's.
Invariant: the account stays small however many faults there are: of each kind it keeps the number, and the first few
by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from relay.domain.envelope import JournalPosition

NAMED = 20
"""How many faults of each kind are named."""


class FaultKind(StrEnum):
    """What can be wrong."""

    MISSING_POSITION = "missing_position"
    DUPLICATE_POSITION = "duplicate_position"
    STRAY_POSITION = "stray_position"
    PRUNED_POSITION = "pruned_position"
    HASH_MISMATCH = "hash_mismatch"
    WRONG_DAY = "wrong_day"
    EVENT_WITHOUT_RECEIPT = "event_without_receipt"
    RECEIPT_WITHOUT_EVENT = "receipt_without_event"
    RECEIPT_DIFFERS = "receipt_differs"
    MISSING_DELIVERIES = "missing_deliveries"
    SURPLUS_DELIVERIES = "surplus_deliveries"
    COUNTERS_DIFFER = "counters_differ"
    CLOSED_BUT_OWED = "closed_but_owed"
    OPEN_BUT_SETTLED = "open_but_settled"
    WRONG_OUTCOME = "wrong_outcome"
    UNEXPLAINED_NO_ROUTE = "unexplained_no_route"
    DELIVERY_WITHOUT_RECEIPT = "delivery_without_receipt"
    MISPLACED_DELIVERY = "misplaced_delivery"
    DELIVERY_DIFFERS = "delivery_differs"
    DELIVERY_WITHOUT_ENDPOINT = "delivery_without_endpoint"
    IMPOSSIBLE_STATE = "impossible_state"
    VOID_MISMATCH = "void_mismatch"
    LEFTOVER_RECEIPT = "leftover_receipt"
    LEFTOVER_DELIVERY = "leftover_delivery"
    KEY_WITHOUT_EVENT = "key_without_event"


MEANINGS: Mapping[FaultKind, str] = {
    FaultKind.MISSING_POSITION: "a number below the partition's head that no event bears and that was not pruned",
    FaultKind.DUPLICATE_POSITION: "a number of a partition that several events bear",
    FaultKind.STRAY_POSITION: "a number that the partition's head has not given: not yet, below 1, or of no partition",
    FaultKind.PRUNED_POSITION: "an event that is there although its position is recorded as pruned",
    FaultKind.HASH_MISMATCH: "an event whose payload is not the one that was hashed when it came",
    FaultKind.WRONG_DAY: "an event that lies in another day than its receipt id's, where nothing looks for it",
    FaultKind.EVENT_WITHOUT_RECEIPT: "an event whose receipt is gone, and with it how many deliveries it is owed",
    FaultKind.RECEIPT_WITHOUT_EVENT: "a receipt whose event is not in the journal, of a day that was not pruned",
    FaultKind.RECEIPT_DIFFERS: "a receipt with another tenant, day, type or event id than its event",
    FaultKind.MISSING_DELIVERIES: "an event with fewer deliveries than its receipt expects",
    FaultKind.SURPLUS_DELIVERIES: "an event with more deliveries than its receipt expects",
    FaultKind.COUNTERS_DIFFER: "a receipt that counts other acks or discards than its deliveries have",
    FaultKind.CLOSED_BUT_OWED: "a closed receipt of which something is still owed or dead",
    FaultKind.OPEN_BUT_SETTLED: "an open receipt of which every delivery is acknowledged or given up",
    FaultKind.WRONG_OUTCOME: "a closed receipt with another outcome than its deliveries make",
    FaultKind.UNEXPLAINED_NO_ROUTE: "an event owed to nobody that is no dead letter, or one that is and is owed",
    FaultKind.DELIVERY_WITHOUT_RECEIPT: "a delivery that belongs to no receipt and no event",
    FaultKind.MISPLACED_DELIVERY: "a delivery whose id is not among its receipt's, which does not find it",
    FaultKind.DELIVERY_DIFFERS: "a delivery with another tenant or day than its event",
    FaultKind.DELIVERY_WITHOUT_ENDPOINT: "a delivery to an endpoint that never was, or is another tenant's",
    FaultKind.IMPOSSIBLE_STATE: "a delivery in a state that nothing leads to, and perhaps nothing leads out of",
    FaultKind.VOID_MISMATCH: "a void delivery of an event that is not void, or the other way round",
    FaultKind.LEFTOVER_RECEIPT: "a receipt of a day that was pruned more than a day ago, or of which something is owed",
    FaultKind.LEFTOVER_DELIVERY: "a delivery of a day that was pruned more than a day ago, or that is owed",
    FaultKind.KEY_WITHOUT_EVENT: "an idempotency key, not yet over, whose event is not there or is another source's",
}
"""Each kind in words, for the page and for people."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: where it is, how many things it is about, how many deliveries it leaves unaccounted for."""

    kind: FaultKind
    place: str
    count: int = 1
    deliveries: int = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """What was counted. Void events and theirs are in `void` alone.

    `matched` is how many deliveries the receipts expect; `dead` includes those that were given up (`discarded`).
    `no_route` events are owed to nobody.
    """

    events: int = 0
    void: int = 0
    matched: int = 0
    delivered: int = 0
    waiting: int = 0
    dead: int = 0
    discarded: int = 0
    no_route: int = 0

    def __add__(self, other: Tally) -> Tally:
        """The sum of two."""
        return Tally(
            self.events + other.events,
            self.void + other.void,
            self.matched + other.matched,
            self.delivered + other.delivered,
            self.waiting + other.waiting,
            self.dead + other.dead,
            self.discarded + other.discarded,
            self.no_route + other.no_route,
        )

    @property
    def is_even(self) -> bool:
        """Whether accepted × matched = delivered + waiting + dead."""
        return self.matched == self.delivered + self.waiting + self.dead


@dataclass(frozen=True, slots=True)
class PartitionAccount:
    """The positions of one partition.

    `first` and `last` are those of the events that are there, None if there are none. `gaps` counts the stretches that
    are missing without having been pruned, `missing` and `pruned` their positions.
    """

    partition: int
    first: int | None = None
    last: int | None = None
    gaps: int = 0
    missing: int = 0
    pruned: int = 0


@dataclass(frozen=True, slots=True)
class FaultsFound:
    """The faults of one kind: how many there are, and where the first few."""

    kind: FaultKind
    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verification:
    """What a walk over the whole journal found."""

    tally: Tally
    partitions: tuple[PartitionAccount, ...]
    faults: tuple[FaultsFound, ...]
    unaccounted: int

    @property
    def ok(self) -> bool:
        """Whether everything is there, whole and accounted for."""
        return not self.faults and not self.unaccounted and self.tally.is_even

    @property
    def gapless(self) -> bool:
        """Whether no position is missing but those that were pruned."""
        return not self.count(FaultKind.MISSING_POSITION)

    def count(self, kind: FaultKind) -> int:
        """How many faults of a kind there are."""
        return sum(found.count for found in self.faults if found.kind is kind)


@dataclass(slots=True)
class Account:
    """A walk's account while it is kept."""

    tally: Tally = field(default_factory=Tally)
    unaccounted: int = 0
    _counts: Counter[FaultKind] = field(default_factory=Counter)
    _places: dict[FaultKind, list[str]] = field(default_factory=dict)

    def add(self, faults: Iterable[Fault]) -> None:
        """Take faults in."""
        for fault in faults:
            self._counts[fault.kind] += fault.count
            self.unaccounted += fault.deliveries
            places = self._places.setdefault(fault.kind, [])
            if len(places) < NAMED:
                places.append(fault.place)

    def closed(self, partitions: Sequence[PartitionAccount]) -> Verification:
        """The account of the walk that is over."""
        faults = (
            FaultsFound(kind, self._counts[kind], tuple(self._places[kind]))
            for kind in FaultKind
            if kind in self._counts
        )
        return Verification(self.tally, tuple(partitions), tuple(faults), self.unaccounted)


def stretch(partition: int, first: int, last: int) -> str:
    """One or several positions in a row, as they are shown: `p06:17` or `p06:17-p06:19`."""
    if first == last:
        return str(JournalPosition(partition, first))
    return f"{JournalPosition(partition, first)}-{JournalPosition(partition, last)}"


def reference() -> str:
    """The kinds of faults as a Markdown table, for `docs/verify.md`."""
    rows = [f"| `{kind}` | {MEANINGS[kind]} |" for kind in FaultKind]
    return "\n".join(["| fault | what it is |", "|---|---|", *rows]) + "\n"
