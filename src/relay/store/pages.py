"""Pages: a list is read down one index, from a place that the page before it ended at.

Owns the walk. Where no index has everything that is asked for, stretches of one are read, each longer than the last,
until a page is full or enough was looked at; such a page is short, perhaps empty, and tells where to go on. Invariant:
places are immutable keys, so a row that is there throughout is shown exactly once, whatever happens beside it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
P = TypeVar("P")

WINDOWS = (200, 1_000, 5_000, 5_000, 5_000, 5_000)
"""How many rows each stretch of one page's walk has."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T, P]):
    """A page of a list; `next` is where the next one begins, None: this was the last."""

    items: tuple[T, ...]
    next: P | None


Stretch = Callable[[P, int, int], Awaitable[tuple[P | None, Sequence[P]]]]
"""Reads a stretch: from a place, so many rows, at most so many wanted; answers where it ended (None: at the end of the
list) and the places of what was found."""


async def walk(stretch: Stretch[P], before: P, limit: int, windows: Sequence[int] = WINDOWS) -> Page[P, P]:
    """The places of one page."""
    found: list[P] = []
    for window in windows:
        floor, places = await stretch(before, window, limit + 1 - len(found))
        found.extend(places)
        if len(found) > limit:
            return Page(tuple(found[:limit]), found[limit - 1])
        if floor is None:
            return Page(tuple(found), None)
        before = floor
    return Page(tuple(found), before)
