"""Places on the wire: how many requests may be there, in all and to one host and port, and who waits for one.

Owns the counts and the queues, one per origin, and knows nothing of what waits in them. Whoever asks for the next one
gets, of those whose origin has room, the one that waits longest; that costs the same however many wait. Invariant: an
origin that has both room and somebody waiting is offered, so no free place is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Origin(Generic[Item]):
    """A host and port: how many requests are on the wire to it, and which wait, with the number of their turn.

    `offered` is the turn with which it was last offered, 0 if it is not.
    """

    __slots__ = ("offered", "on_wire", "waiting")

    def __init__(self) -> None:
        self.on_wire = 0
        self.waiting: deque[tuple[int, Item]] = deque()
        self.offered = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on the wire to it, and nothing waits."""
        return not self.on_wire and not self.waiting


class Places(Generic[Item]):
    """The places of one sender: `total` of them, and at most `per_origin` for one host and port."""

    def __init__(self, *, total: int, per_origin: int) -> None:
        self._total = total
        self._per_origin = per_origin
        self._turns = 0
        self._offers: list[tuple[int, Origin[Item]]] = []
        self._crowded: dict[Origin[Item], None] = {}
        self.on_wire = 0

    def has_room(self, origin: Origin[Item]) -> bool:
        """Whether a request to the origin finds a place now."""
        return self.on_wire < self._total and origin.on_wire < self._per_origin

    def take(self, origin: Origin[Item]) -> None:
        """Take a place."""
        self.on_wire += 1
        origin.on_wire += 1

    def give_back(self, origin: Origin[Item]) -> None:
        """Give a place back; `next` tells who may have it."""
        self.on_wire -= 1
        origin.on_wire -= 1
        if origin.waiting:
            self._offer(origin)

    def wait(self, origin: Origin[Item], item: Item) -> None:
        """Stand in line."""
        self._turns += 1
        origin.waiting.append((self._turns, item))
        self._crowded[origin] = None
        self._offer(origin)

    @property
    def anyone_waits(self) -> bool:
        """Whether somebody stands in line."""
        return bool(self._crowded)

    def next(self) -> Item | None:
        """Take out of the line whoever is to have the next free place, which it has to take itself; None if there is
        nobody or no place."""
        while self._offers and self.on_wire < self._total:
            turn, origin = heappop(self._offers)
            if turn != origin.offered:
                continue  # whoever had that turn left the line
            origin.offered = 0
            if origin.waiting and origin.on_wire < self._per_origin:
                _, item = origin.waiting.popleft()
                self._settle(origin)
                return item
        return None

    def take_out(self, is_late: Callable[[Item], bool]) -> list[Item]:
        """Take everybody out of the line who is late."""
        late: list[Item] = []
        for origin in list(self._crowded):
            staying: deque[tuple[int, Item]] = deque()
            for turn, item in origin.waiting:
                if is_late(item):
                    late.append(item)
                else:
                    staying.append((turn, item))
            origin.waiting = staying
            self._settle(origin)
        return late

    def _settle(self, origin: Origin[Item]) -> None:
        """After somebody left the origin's line: offer the next one, or note that there is none."""
        if origin.waiting:
            self._offer(origin)
        else:
            del self._crowded[origin]

    def _offer(self, origin: Origin[Item]) -> None:
        turn = origin.waiting[0][0]
        if origin.offered != turn and origin.on_wire < self._per_origin:
            origin.offered = turn
            heappush(self._offers, (turn, origin))
