"""What has been announced: the memory of the one dispatcher that tells the broker of what is due.

Owns which deliveries are worth a word now. Nothing here is on record: a new leader begins with an empty memory.
Invariant: what is remembered is pending still, as far as the last look at its lane knew, and all of it together is no
more than `MOST`; so stream and pending list are bounded by who writes to them, and nothing is ever cut off from them.

Half of the memory is for lanes that hold one row, and of the other half a lane may hold half of what the others leave:
so no number of deep and slow lanes keeps one that had nothing yet from its first word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from relay.broker import MESSAGE_DELIVERIES
from relay.store.announcing import Look, ReadyLane, Row
from relay.store.queue import FIRST_LANE

MOST = 10_000
"""Deliveries that are announced and not claimed yet, in the whole fleet."""


@dataclass(frozen=True, slots=True)
class _Lane:
    closings: str | None
    rows: Mapping[Row, float] = field(default_factory=dict)


class Announced:
    """The memory of one leader. Times are its monotonic seconds."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lanes: dict[UUID, _Lane] = {}
        self.size = 0

    def news(self, look: Look, now: float, *, stale_before: float | None = None) -> list[UUID]:
        """What is to be announced after this look, lane by lane; it counts as announced from now on.

        Only what was not announced since it was last claimed, or since its lane was last closed; with `stale_before`
        also what was announced before then. What a look at its lane shows no more is forgotten.
        """
        self._forget_passed(look)
        fresh: list[UUID] = []
        for lane in look.lanes:
            fresh += self._news_of(lane, now, stale_before)
        return fresh

    def _news_of(self, lane: ReadyLane, now: float, stale_before: float | None) -> list[UUID]:
        known = self._lanes.pop(lane.endpoint_id, None)
        told: Mapping[Row, float] = {}
        if known is not None:
            self.size -= len(known.rows)
            told = known.rows if known.closings == lane.closings else {}
        kept = {row: told[row] for row in lane.rows if row in told and not _is_stale(told[row], stale_before)}
        room = self._share() - len(kept)
        fresh = [row for row in lane.rows if row not in kept][: max(0, room)]
        kept.update(dict.fromkeys(fresh, now))
        if kept:
            self._lanes[lane.endpoint_id] = _Lane(lane.closings, kept)
            self.size += len(kept)
        return [delivery for delivery, _ in fresh]

    def _share(self) -> int:
        """What one lane may hold beside all others."""
        return max(1, (self._most // 2 - self.size) // 2) if self.size < self._most else 0

    def _forget_passed(self, look: Look) -> None:
        """Forget the lanes that a look has passed without seeing anything of them: all that was pending is claimed."""
        seen = {lane.endpoint_id for lane in look.lanes}
        for endpoint in [each for each in self._lanes if each not in seen and _is_passed(each, look)]:
            self.size -= len(self._lanes.pop(endpoint).rows)


def _is_stale(announced_at: float, stale_before: float | None) -> bool:
    return stale_before is not None and announced_at < stale_before


def _is_passed(endpoint: UUID, look: Look) -> bool:
    return look.after < endpoint and (look.resume_after == FIRST_LANE or endpoint <= look.resume_after)


def batches(deliveries: Sequence[UUID]) -> list[Sequence[UUID]]:
    """Deliveries as messages carry them."""
    return [deliveries[first : first + MESSAGE_DELIVERIES] for first in range(0, len(deliveries), MESSAGE_DELIVERIES)]
