"""The claimer: takes what is due, a little ahead of what can be sent.

Owns the cursors over the lanes and the pace. Which rows a claim takes is the store's statement; what is done with them
`boarding`'s. Invariant: a claim is asked for only when a wake-up, a permit, a due time or the poll calls for one, so
an idle dispatcher asks once per poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from relay.dispatcher.alarm import Alarm
from relay.dispatcher.boarding import Boarding
from relay.dispatcher.flights import Flights
from relay.dispatcher.recorder import Recorder
from relay.domain import ids
from relay.domain.ambient import Ambient
from relay.domain.telemetry import (
    DeferralsRecorded,
    DeliveriesClaimed,
    LaneFoundClosed,
    Listener,
    Loop,
    LoopSucceeded,
    PermitsAwaited,
)
from relay.store.queue import FIRST_LANE, Allowance, Claim, Queue

PACE_SECONDS = 0.010
"""The shortest time between two claims of which the first was not full. Under load it makes claims of many rows from
wake-ups for few; a fresh event in a quiet system does not wait for it."""


CONTENDED_SECONDS = 0.003
"""The same where somebody else was just taking from an open lane: that is over in some milliseconds."""


SLOW_SECONDS, SLOW_SECONDS_PER_ROW = 0.030, 0.000_150
"""A claim that takes longer passes over much that is no longer pending and cannot be cleaned away: somewhere a
transaction keeps an old snapshot open. Those after it are narrow, until another wide one is no more than a fortieth of
the time: it holds its lanes against the other processes all the while."""
NARROW_SECONDS, NARROW_FOR_EACH = 2.0, 40.0


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ClaimTuning:
    """`batch` rows at the most per claim, a lease of `lease_seconds`, a poll each `poll_seconds` when idle."""

    batch: int
    lease_seconds: float
    poll_seconds: float


class Claimer:
    """Claims for one process."""

    def __init__(
        self,
        *,
        queue: Queue,
        boarding: Boarding,
        flights: Flights,
        recorder: Recorder,
        alarm: Alarm,
        tuning: ClaimTuning,
        ambient: Ambient,
        emit: Listener,
    ) -> None:
        self._queue = queue
        self._boarding = boarding
        self._flights = flights
        self._recorder = recorder
        self._alarm = alarm
        self._tuning = tuning
        self._ambient = ambient
        self._emit = emit
        self._after = self._after_announced = FIRST_LANE
        self._empty_rounds = 0
        self._narrow_until = 0.0

    async def run(self, goes_on: Callable[[], bool] = _always) -> None:
        """Claim what is due until cancelled, or as long as it `goes_on`. Raises `StoreUnavailable`; what was claimed
        before stays under way."""
        while goes_on():
            await self.await_room()
            self._alarm.reset()
            asked_at = self._ambient.monotonic()
            claim = await self.take()
            if self._has_seen_every_lane_empty(claim):
                await self._rest()
            elif len(claim.deliveries) < self._tuning.batch:
                await self.pace(asked_at, claim)

    async def take(self, announced: Sequence[UUID] | None = None) -> Claim:
        """One claim, of these or of the next lanes, boarded. Raises `StoreUnavailable`."""
        asked_at = self._ambient.monotonic()
        claim = await self._asked(announced)
        if announced is None:
            self._after = claim.resume_after
            self._judge_pace(claim, asked_at)
        else:
            self._after_announced = claim.resume_after
        self._emit(LoopSucceeded(Loop.CLAIMER, len(claim.deliveries)))
        self._tell_closed(claim)
        if claim.deliveries:
            took = self._ambient.monotonic() - asked_at
            self._emit(DeliveriesClaimed(len(claim.deliveries), _lanes(claim), took))
            await self._boarding.board(claim, asked_at)
        else:
            await self._boarding.look_ahead()
        return claim

    async def strangers(self, announced: Sequence[UUID]) -> int:
        """How many of these are no deliveries of this installation. Raises `StoreUnavailable`."""
        return len(await self._queue.strangers(announced))

    async def mark_closed(self, after: UUID) -> None:
        """Tell of the closed lanes behind `after` in which something is due, and take nothing. Raises
        `StoreUnavailable`."""
        self._tell_closed(
            await self._queue.claim_due(
                after=after,
                batch=1,
                token=self._token(),
                lease_seconds=self._tuning.lease_seconds,
                allowance=Allowance(others=0),
            )
        )

    def _has_seen_every_lane_empty(self, claim: Claim) -> bool:
        """Whether no lane had anything to claim since something was claimed, or since the last rest. A lane from which
        somebody else was just claiming may have more."""
        if claim.deliveries or claim.contended:
            self._empty_rounds = 0
            return False
        if claim.resume_after != FIRST_LANE:
            # lanes by the hundred: one claim sees a part of them, and it began somewhere among them
            self._empty_rounds += claim.came_around
            if self._empty_rounds < 2:
                return False
        self._empty_rounds = 0
        return True

    async def _asked(self, announced: Sequence[UUID] | None) -> Claim:
        """Ask for a claim. A stop lets it finish and hands back what it took: nobody else knows of those leases."""
        asking = asyncio.ensure_future(self._claim(announced))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._boarding.give_up(await asking)
            raise

    async def _claim(self, announced: Sequence[UUID] | None) -> Claim:
        return await self._queue.claim_due(
            after=self._after if announced is None else self._after_announced,
            batch=self.batch,
            token=self._token(),
            lease_seconds=self._tuning.lease_seconds,
            allowance=self._flights.lanes.allowance(self._ambient.monotonic()),
            narrow=announced is None and self._is_narrow,
            announced=announced,
        )

    def _token(self) -> UUID:
        ambient = self._ambient
        return ids.uuid7(int(ambient.now().timestamp() * 1000), ambient.entropy(ids.ENTROPY_BYTES))

    @property
    def _is_narrow(self) -> bool:
        return self._ambient.monotonic() < self._narrow_until

    def _judge_pace(self, claim: Claim, asked_at: float) -> None:
        now = self._ambient.monotonic()
        took = now - asked_at
        if asked_at >= self._narrow_until and took > SLOW_SECONDS + SLOW_SECONDS_PER_ROW * len(claim.deliveries):
            self._narrow_until = now + max(NARROW_SECONDS, NARROW_FOR_EACH * took)

    def _tell_closed(self, claim: Claim) -> None:
        for consumer, reason in claim.found_closed:
            self._emit(LaneFoundClosed(consumer, reason))
        if claim.deferrals:
            self._emit(DeferralsRecorded(claim.deferrals))

    async def _rest(self) -> None:
        """Nothing is due in any lane: sleep until something may be. What is due by now and was not given (somebody else
        holds the rows, say) is asked for again after the usual pace. Where claims are narrow, that would be asked in
        vain for long: the poll will do."""
        if self._is_narrow:
            await self._alarm.wait(self._tuning.poll_seconds)
            return
        seconds = await self._queue.seconds_to_next_due(self._flights.lanes.allowance(self._ambient.monotonic()))
        poll = self._tuning.poll_seconds
        await self._alarm.wait(poll if seconds is None else min(max(seconds, PACE_SECONDS), poll))

    async def pace(self, asked_at: float, claim: Claim) -> None:
        """Let a moment pass since a claim that was not full was asked for."""
        seconds = CONTENDED_SECONDS if claim.contended else PACE_SECONDS
        left = asked_at + seconds - self._ambient.monotonic()
        if left > 0:
            await self._ambient.sleep(left)

    @property
    def room(self) -> int:
        """How many more may be claimed: outcomes that wait to be written count as if they were still under way."""
        return self._flights.room - self._recorder.unwritten

    @property
    def batch(self) -> int:
        """What the next claim takes at the most."""
        return max(1, min(self._tuning.batch, self.room))

    async def await_room(self) -> None:
        """Return once it is worth claiming."""
        wanted = max(1, self._tuning.batch // 2)
        if self.room >= wanted:
            return
        began = self._ambient.monotonic()
        while self.room < wanted:
            self._alarm.reset()
            await self._alarm.wait(self._tuning.poll_seconds)
        self._emit(PermitsAwaited(self._ambient.monotonic() - began))


def _lanes(claim: Claim) -> int:
    return len({delivery.endpoint_id for delivery in claim.deliveries})
