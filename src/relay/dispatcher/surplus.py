"""What a consumer holds of a lane beyond what it has use for, and passes on to the others of its fleet.

Owns how much is kept and how often the rest goes on; announcing it is the consumer's. Invariant: what two windows here
take is kept, nothing is passed on where nobody else is, and of one lane something is passed on a few times at first and
then once in `LONGEST_PASS_SECONDS`, so a fleet whose windows are all full does not pass it round.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from relay.dispatcher.lanes import Lanes

KEPT_WINDOWS = 2
"""How many windows of a lane's deliveries are kept for it here. As much is announced for each dispatcher."""

PASS_SECONDS, LONGEST_PASS_SECONDS = 0.1, 2.0
"""For how long nothing more of a lane is passed on after something was: doubling up to the longest while there is
always something to pass on."""


class Surplus:
    """What of the lanes is for others, who may have room for it: what two windows here do not take.
    Times are this process's monotonic seconds."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self.is_wanted = False
        """Whether there is another dispatcher, which may have room."""
        self._pauses: dict[UUID, tuple[float, float]] = {}
        """Of a lane from which something was passed on: until when nothing more is, and how long that pause is."""

    def of(self, left_over: Iterable[tuple[UUID, UUID]], now: float) -> list[UUID]:
        """What to pass on now of what is left over, in the order in which it is to be claimed."""
        if not self.is_wanted:
            return []
        by_lane: dict[UUID, list[UUID]] = {}
        for delivery, endpoint in left_over:
            by_lane.setdefault(endpoint, []).append(delivery)
        self._pauses = {lane: each for lane, each in self._pauses.items() if now < each[0] + LONGEST_PASS_SECONDS}
        passed: list[UUID] = []
        for endpoint, deliveries in by_lane.items():
            surplus = deliveries[KEPT_WINDOWS * self._lanes.reach(endpoint) :]
            if surplus and self._is_over(endpoint, now):
                passed += surplus
        return passed

    def _is_over(self, endpoint: UUID, now: float) -> bool:
        """Whether the lane's pause is over; then the next one begins."""
        until, pause = self._pauses.get(endpoint, (now, PASS_SECONDS / 2))
        if now < until:
            return False
        pause = min(2 * pause, LONGEST_PASS_SECONDS)
        self._pauses[endpoint] = (now + pause, pause)
        return True
