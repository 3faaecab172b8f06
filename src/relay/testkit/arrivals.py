"""What arrived: the record of received requests.

Owns the arrivals, their order, and how often each delivery id came. It leaves to others what was answered and
how it is shown. Invariant: the newest arrivals are kept, at most `keep` of them and at most `keep_bytes` of
headers and bodies; whatever was let go is counted, so a reader knows whether the record is complete.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

KEEP = 100_000
KEEP_BYTES = 256 * 1024 * 1024
KEEP_IDS = 500_000

_ID_HEADERS = (b"relay-delivery-id", b"webhook-id", b"x-github-delivery")
_LONGEST_ID = 200


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request that came in whole.

    `number` counts arrivals from 1 since the record was last cleared; `at` is Unix seconds when the body was
    complete; `count` is how often its delivery id had come by then, itself included (0 without an id).
    `status` is what it was answered with, None where no status line was sent. `refusal` says why `/verify`
    turned it down. `body` is None unless it was kept.
    """

    number: int
    at: float
    method: str
    path: str
    query: str
    delivery_id: str | None
    count: int
    size: int
    sha256: str
    status: int | None
    refusal: str | None
    body: bytes | None = field(repr=False)
    header_lines: bytes = field(repr=False)

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Every header line as it came, in order; names in lower case, values as ISO 8859-1."""
        lines = self.header_lines.decode("latin-1").split("\r\n") if self.header_lines else []
        pairs = (line.partition(": ") for line in lines)
        return tuple((name, value) for name, _, value in pairs)

    def header(self, name: str) -> str | None:
        """The value of the header (its name in lower case), lines of one name joined by commas; None without
        it.
        """
        values = [value for known, value in self.headers if known == name]
        return ", ".join(values) if values else None

    @property
    def weight(self) -> int:
        """The bytes that it occupies in the record's budget."""
        return len(self.header_lines) + len(self.query) + len(self.path) + len(self.body or b"")


@dataclass(frozen=True, slots=True)
class Incoming:
    """A complete request on its way into the record; see `Arrival` for the fields."""

    at: float
    method: str
    path: str
    query: str
    headers: Iterable[tuple[bytes, bytes]]
    body: bytes
    status: int | None
    refusal: str | None
    keep_body: bool


def delivery_id_of(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The delivery's id, from the first header that bears one under any signature profile."""
    found = {name: value for name, value in headers if name in _ID_HEADERS}
    for name in _ID_HEADERS:
        if 0 < len(found.get(name, b"")) <= _LONGEST_ID:
            return found[name].decode("latin-1")
    return None


class ArrivalLog:
    """The arrivals since the last clearing. Belongs to one event loop; nothing in it waits."""

    def __init__(self, *, keep: int = KEEP, keep_bytes: int = KEEP_BYTES, keep_ids: int = KEEP_IDS) -> None:
        self._keep, self._keep_bytes, self._keep_ids = keep, keep_bytes, keep_ids
        self.clear()

    def clear(self) -> None:
        """Start over, as if nothing had ever arrived."""
        self._kept: deque[Arrival] = deque()
        self._kept_bytes = 0
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._latest: dict[str, Arrival] = {}
        self.total = 0
        self.dropped = 0
        self.forgotten_ids = 0
        self.incomplete = 0

    def add(self, incoming: Incoming) -> Arrival:
        """Record a complete request; lets the oldest go where a bound is passed."""
        delivery_id = delivery_id_of(incoming.headers)
        self.total += 1
        arrival = Arrival(
            number=self.total,
            at=incoming.at,
            method=incoming.method,
            path=incoming.path,
            query=incoming.query,
            delivery_id=delivery_id,
            count=0 if delivery_id is None else self._count(delivery_id),
            size=len(incoming.body),
            sha256=hashlib.sha256(incoming.body).hexdigest(),
            status=incoming.status,
            refusal=incoming.refusal,
            body=incoming.body if incoming.keep_body else None,
            header_lines=b"\r\n".join([b"%b: %b" % header for header in incoming.headers]),
        )
        self._kept.append(arrival)
        self._kept_bytes += arrival.weight
        if delivery_id is not None:
            self._latest[delivery_id] = arrival
        while len(self._kept) > self._keep or self._kept_bytes > self._keep_bytes:
            self._let_go()
        return arrival

    def note_incomplete(self) -> None:
        """Count a request whose sender left, or sent too much, before its body was complete."""
        self.incomplete += 1

    def kept(self) -> list[Arrival]:
        """The arrivals that are still known, oldest first; a copy that later arrivals do not change."""
        return list(self._kept)

    def latest(self, delivery_id: str) -> Arrival | None:
        """The newest kept arrival with this delivery id."""
        return self._latest.get(delivery_id)

    def count(self, delivery_id: str) -> int:
        """How often this delivery id came since the last clearing; 0 if never, or so long ago that it is
        forgotten.
        """
        return self._counts.get(delivery_id, 0)

    def counts(self) -> dict[str, int]:
        """How often each known delivery id came, longest unseen first; a copy."""
        return dict(self._counts)

    def _count(self, delivery_id: str) -> int:
        count = self._counts.get(delivery_id, 0) + 1
        self._counts[delivery_id] = count
        self._counts.move_to_end(delivery_id)
        if len(self._counts) > self._keep_ids:
            self._counts.popitem(last=False)
            self.forgotten_ids += 1
        return count

    def _let_go(self) -> None:
        oldest = self._kept.popleft()
        self._kept_bytes -= oldest.weight
        self.dropped += 1
        if oldest.delivery_id is not None and self._latest.get(oldest.delivery_id) is oldest:
            del self._latest[oldest.delivery_id]
