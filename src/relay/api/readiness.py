"""Whether events are taken and delivered now, asked of the database once for many who ask.

Owns the checks, their words, their bound in time and how long an answer is good for. Invariant: however many ask, one
round of checks is under way at the most, and the database has rest between two of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping

from relay.domain.ambient import Ambient
from relay.store.barrier import Barrier
from relay.store.faults import CannotWrite, StoreUnavailable
from relay.store.health import DISPATCHER, Health
from relay.store.queue import FIRST_LANE

CHECK_SECONDS = 2.0
"""How long one check may take before that itself is the fault."""

DISPATCHER_SECONDS = 30.0
"""How long ago a dispatcher may have reported."""

REST_SECONDS = 1.0
LONGEST_REST_SECONDS = 5.0
REST = 50
"""How long an answer is good for: so many times as long as it took, between these bounds. With deliveries pending in a
few lanes it takes 2 ms, with some in each of 10,000 lanes 80 ms: that is repeated after 4 s."""

OK = "ok"


class Readiness:
    """The checks of one process. `late_seconds` is how late the oldest due delivery may be."""

    def __init__(self, *, health: Health, barrier: Barrier, ambient: Ambient, late_seconds: float) -> None:
        self._health = health
        self._barrier = barrier
        self._ambient = ambient
        self._late_seconds = late_seconds
        self._round: asyncio.Task[Mapping[str, str]] | None = None
        self._good_until = 0.0
        self._was_missing = False
        self._looked_until = FIRST_LANE
        self._late_so_far = self._late_before = 0.0

    async def checks(self) -> Mapping[str, str]:
        """Each check by its name: `ok`, or the fault in words. The answer may be a few seconds old, but not older than
        what is known of the quorum."""
        if self._round is None or (self._round.done() and not self._is_good()):
            self._round = asyncio.create_task(self._check(), name="readiness")
        # whoever leaves does not end it for the others
        return await asyncio.shield(self._round)

    def _is_good(self) -> bool:
        return self._ambient.monotonic() < self._good_until and self._was_missing == self._is_missing()

    def _is_missing(self) -> bool:
        return self._barrier.missing is not None

    async def _check(self) -> Mapping[str, str]:
        began = self._ambient.monotonic()
        try:
            database, journal, dispatcher, queue = await asyncio.gather(
                _checked(self._database()),
                _checked(self._journal()),
                _checked(self._dispatcher()),
                _checked(self._queue()),
            )
        finally:
            ended = self._ambient.monotonic()
            self._was_missing = self._is_missing()
            self._good_until = ended + min(max(REST_SECONDS, REST * (ended - began)), LONGEST_REST_SECONDS)
        if journal == OK and not self._barrier.standbys_needed:
            journal = database  # of a quorum of one, the journal is there when its database is
        return {"database": database, "journal": journal, "dispatcher": dispatcher, "queue": queue}

    async def _database(self) -> str:
        await self._health.writes()
        return OK

    async def _journal(self) -> str:
        if await self._barrier.confirmed(now=True):
            return OK
        return self._barrier.missing or OK

    async def _dispatcher(self) -> str:
        ago = await self._health.seconds_since(DISPATCHER)
        if ago is None:
            return "no dispatcher has ever reported; start one with `relay dispatcher`"
        if ago > DISPATCHER_SECONDS:
            return f"no dispatcher has reported for {ago:.0f} s"
        return OK

    async def _queue(self) -> str:
        late = await self._lateness()
        if late > self._late_seconds:
            return (
                f"the oldest due delivery is {late:.0f} s late; RELAY_READY_LATE_SECS allows {self._late_seconds:g} s"
            )
        return OK

    async def _lateness(self) -> float:
        """By how much the oldest due delivery is late. Of very many lanes each answer looks at some, the next ones at
        those behind; the others are as late as they were in the round before."""
        look = await self._health.look_for_late(self._looked_until)
        self._late_so_far = max(self._late_so_far, look.late or 0.0)
        found = max(self._late_so_far, self._late_before)
        if look.go_on_behind is None:
            found = self._late_so_far if self._looked_until == FIRST_LANE else found
            self._late_before, self._late_so_far = self._late_so_far, 0.0
        self._looked_until = look.go_on_behind or FIRST_LANE
        return found


async def _checked(check: Awaitable[str]) -> str:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await check
    except TimeoutError:
        return f"the database did not answer within {CHECK_SECONDS:g} s"
    except CannotWrite:
        return "the database answers and cannot write: its disk is full, or it is a standby"
    except StoreUnavailable:
        return "the database does not answer"
