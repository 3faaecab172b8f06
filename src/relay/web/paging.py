"""Pages of a list: how many items, and where the next page begins.

Owns the form of cursors and the bounds of a page. A cursor holds the id of the last item shown, so a page costs the
same wherever it begins, and rows that come or go between two pages make none appear twice. Invariant: a cursor is good
for the list that gave it and for no other.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from relay.web.problems import ErrorCode, refuse

DEFAULT_LIMIT = 50
LARGEST_LIMIT = 100

T = TypeVar("T")

_VERSION = b"\x01"
_CURSOR_CHARACTERS = 256


def write_cursor(listing: str, place: UUID) -> str:
    """The cursor for what comes after `place` in this list; `listing` is its name, in ASCII."""
    return urlsafe_b64encode(_VERSION + place.bytes + listing.encode()).rstrip(b"=").decode()


def read_cursor(listing: str, text: str) -> UUID:
    """The place that `write_cursor` wrote down. Raises `Refused` (`bad_cursor`) for anything else."""
    try:
        raw = urlsafe_b64decode(text[:_CURSOR_CHARACTERS].encode("ascii") + b"=" * (-len(text) % 4))
    except ValueError:
        raw = b""
    place = UUID(bytes=raw[1:17]) if len(raw) >= 17 else UUID(int=0)
    if write_cursor(listing, place) != text:
        raise refuse(ErrorCode.BAD_CURSOR, "the cursor is not from this list; start again without one")
    return place


def page(listing: str, rows: Sequence[T], limit: int, place_of: Callable[[T], UUID]) -> tuple[Sequence[T], str | None]:
    """The page and the next one's cursor, from up to `limit` + 1 rows: the one too many tells that there is more."""
    shown = rows[:limit]
    return shown, write_cursor(listing, place_of(shown[-1])) if len(rows) > limit else None
