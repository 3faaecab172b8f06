"""Pages of a list: how many items, and where the next page begins.

Owns the form of cursors and the bounds of a page. A cursor holds the place of the last item shown, so a page costs the
same wherever it begins, and rows that come or go between two pages make none appear twice. Invariant: a cursor is good
for the list that gave it, asked for the same things, and for no other.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar
from uuid import UUID

import msgspec

from relay.domain import ids
from relay.web.problems import ErrorCode, refuse

DEFAULT_LIMIT = 50
LARGEST_LIMIT = 100

T = TypeVar("T")
P = TypeVar("P")

_VERSION = b"\x02"
_BINDING_BYTES = 8
_CURSOR_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class Places(Generic[P]):
    """How a place becomes bytes and comes back; `read` raises `ValueError` for bytes that are none."""

    write: Callable[[P], bytes]
    read: Callable[[bytes], P]


BY_ID: Places[UUID] = Places(lambda place: place.bytes, lambda raw: UUID(bytes=raw))
"""The places of a list that is in the order of its items' ids."""

M = TypeVar("M", bound=tuple[datetime, UUID])

_INSTANT_BYTES = 8
_MICROSECOND = timedelta(microseconds=1)


def by_instant(make: Callable[[datetime, UUID], M]) -> Places[M]:
    """The places of a list in the order of an instant and an id; each comes back to the microsecond."""

    def write(place: M) -> bytes:
        since_epoch: int = (place[0] - ids.EPOCH) // _MICROSECOND
        return since_epoch.to_bytes(_INSTANT_BYTES, "big", signed=True) + place[1].bytes

    def read(raw: bytes) -> M:
        try:
            at = ids.EPOCH + timedelta(microseconds=int.from_bytes(raw[:_INSTANT_BYTES], "big", signed=True))
        except OverflowError:
            raise ValueError("no such instant") from None
        return make(at, UUID(bytes=raw[_INSTANT_BYTES:]))

    return Places(write, read)


@dataclass(frozen=True, slots=True)
class Listing(Generic[P]):
    """A list as it was asked for: its name, and whatever selects its items."""

    name: str
    places: Places[P]
    filter: Sequence[str | None] = ()

    def write_cursor(self, place: P) -> str:
        """The cursor for what comes after the place."""
        return _text(self._bound() + self.places.write(place))

    def read_cursor(self, text: str) -> P:
        """The place that `write_cursor` wrote down. Raises `Refused` (`bad_cursor`) for anything else."""
        try:
            raw = urlsafe_b64decode(text[:_CURSOR_CHARACTERS].encode("ascii") + b"=" * (-len(text) % 4))
            bound = self._bound()
            if _text(raw) == text and raw.startswith(bound):
                return self.places.read(raw[len(bound) :])
        except ValueError:
            pass
        raise refuse(ErrorCode.BAD_CURSOR, "the cursor is not from this list with this filter; start again without one")

    def page(self, rows: Sequence[T], limit: int, place_of: Callable[[T], P]) -> tuple[Sequence[T], str | None]:
        """The page and the next one's cursor, from up to `limit` + 1 rows: the one too many tells of more."""
        shown = rows[:limit]
        return shown, self.write_cursor(place_of(shown[-1])) if len(rows) > limit else None

    def _bound(self) -> bytes:
        asked = msgspec.json.encode([self.name, *self.filter])
        return _VERSION + hashlib.sha256(asked).digest()[:_BINDING_BYTES]


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
