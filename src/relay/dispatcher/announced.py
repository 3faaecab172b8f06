"""What has been announced: the memory of the one dispatcher that tells the broker of what is due.

Owns which deliveries are worth a word now. Nothing here is on record: a new leader begins with an empty memory.
Invariant: what is remembered is pending still, as far as the last look at its lane knew, and all of it together is no
more than `MOST`; so stream and pending list are bounded by who writes to them, and nothing is ever cut off from them.

Lanes in doubt have a tenth of the memory, which nobody may claim for long, and the other ones the rest, whatever hangs.
Half of that is for lanes that hold one row, and of the other half a lane may hold half of what the others leave: so no
number of deep and slow lanes keeps one that had nothing yet from its first word. Where a part is full and a lane waits
for a place in it, lanes that have places get no more until those are given back: so places go around, among any number
of lanes.
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
    is_doubtful: bool
    rows: Mapping[Row, float] = field(default_factory=dict)


class Announced:
    """The memory of one leader. Times are its monotonic seconds."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lanes: dict[UUID, _Lane] = {}
        self._in_doubt = max(1, most // 10)  # what lanes in doubt may hold
        self._sizes = {False: 0, True: 0}
        self._refused = self._refused_before = frozenset[bool]()

    @property
    def size(self) -> int:
        """How many deliveries are remembered."""
        return sum(self._sizes.values())

    def news(self, look: Look, now: float, *, stale_before: float | None = None) -> list[UUID]:
        """What is to be announced after this look, lane by lane; it counts as announced from now on.

        Only what was not announced since it was last claimed, or since its lane was last closed; with `stale_before`
        also what was announced before then. What a look at its lane shows no more is forgotten.
        """
        if look.after == FIRST_LANE:
            self._refused_before, self._refused = self._refused, frozenset()
        self._forget_passed(look)
        fresh: list[UUID] = []
        for lane in look.lanes:
            fresh += self._news_of(lane, now, stale_before)
        return fresh

    def _news_of(self, lane: ReadyLane, now: float, stale_before: float | None) -> list[UUID]:
        known = self._pop(lane.endpoint_id)
        told = known.rows if known is not None and known.closings == lane.closings else {}
        kept = {row: told[row] for row in lane.rows if row in told and not _is_stale(told[row], stale_before)}
        share = self._share(lane.is_doubtful)
        if known is not None and lane.is_doubtful in self._refused | self._refused_before:
            share = 0
        fresh = [row for row in lane.rows if row not in kept][: max(0, share - len(kept))]
        kept.update(dict.fromkeys(fresh, now))
        if kept:
            self._lanes[lane.endpoint_id] = _Lane(lane.closings, lane.is_doubtful, kept)
            self._sizes[lane.is_doubtful] += len(kept)
        elif lane.rows and known is None:
            self._refused |= {lane.is_doubtful}
        return [delivery for delivery, _ in fresh]

    def _share(self, is_doubtful: bool) -> int:
        """What one lane may hold beside all others."""
        part = self._in_doubt if is_doubtful else self._most - self._in_doubt
        size = self._sizes[is_doubtful]
        # lanes that have come to doubt with what they had may leave the others less than their part
        free = min(part - size, self._most - self.size)
        return min(free, 1 if is_doubtful else max(1, (part // 2 - size) // 2))

    def _pop(self, endpoint: UUID) -> _Lane | None:
        """Forget a lane; answers what was remembered of it."""
        known = self._lanes.pop(endpoint, None)
        if known is not None:
            self._sizes[known.is_doubtful] -= len(known.rows)
        return known

    def _forget_passed(self, look: Look) -> None:
        """Forget the lanes that a look has passed without seeing anything of them: all that was pending is claimed."""
        seen = {lane.endpoint_id for lane in look.lanes}
        for endpoint in [each for each in self._lanes if each not in seen and _is_passed(each, look)]:
            self._pop(endpoint)


def _is_stale(announced_at: float, stale_before: float | None) -> bool:
    return stale_before is not None and announced_at < stale_before


def _is_passed(endpoint: UUID, look: Look) -> bool:
    return look.after < endpoint and (look.resume_after == FIRST_LANE or endpoint <= look.resume_after)


def batches(deliveries: Sequence[UUID]) -> list[Sequence[UUID]]:
    """Deliveries as messages carry them."""
    return [deliveries[first : first + MESSAGE_DELIVERIES] for first in range(0, len(deliveries), MESSAGE_DELIVERIES)]
