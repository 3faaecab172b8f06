"""Whether events are taken and delivered now, asked of the database once for many who ask.

Owns the checks, their words, their bound in time and how long an answer is good for. Whether they are taken can be
asked alone, by whoever sends senders here. Invariant: however many ask, one round of checks of each kind is under way
at the most, the database has rest between two of them, and what keeps deliveries waiting delays no answer about intake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

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


Checks = Mapping[str, str]


class Readiness:
    """The checks of one process. `intake` asks by the way that events take, `health` by one of its own, on which
    somebody's lock may keep a look at the queue. `late_seconds` is how late the oldest due delivery may be."""

    def __init__(
        self, *, health: Health, intake: Health, barrier: Barrier, ambient: Ambient, late_seconds: float
    ) -> None:
        self._health = health
        self._intake = intake
        self._barrier = barrier
        self._late_seconds = late_seconds
        self._whole = _Round(self._check, ambient, self._is_missing)
        self._part = _Round(self._check_intake, ambient, self._is_missing)
        self._looked_until = FIRST_LANE
        self._late_so_far = self._late_before = 0.0

    async def checks(self) -> Checks:
        """Each check by its name: `ok`, or the fault in words. The answer may be a few seconds old, but not older than
        what is known of the quorum."""
        return await self._whole.answer()

    async def checks_of_intake(self) -> Checks:
        """Those checks alone that say whether an event that is posted now can be accepted."""
        return await self._part.answer()

    def _is_missing(self) -> bool:
        return self._barrier.missing is not None

    async def _check(self) -> Checks:
        taken, dispatcher, queue = await asyncio.gather(
            self._taken(self._health), _checked(self._dispatcher()), _checked(self._queue())
        )
        return {**taken, "dispatcher": dispatcher, "queue": queue}

    async def _check_intake(self) -> Checks:
        return await self._taken(self._intake)

    async def _taken(self, health: Health) -> Checks:
        database, journal = await asyncio.gather(_checked(self._database(health)), _checked(self._journal()))
        if journal == OK and not self._barrier.standbys_needed:
            journal = database  # of a quorum of one, the journal is there when its database is
        return {"database": database, "journal": journal}

    async def _database(self, health: Health) -> str:
        await health.writes()
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


class _Round:
    """A round of checks, and its answer for as long as that is good. `is_missing`: whether the quorum is, as far as is
    known; an answer from before that changed is good no longer."""

    def __init__(
        self, check: Callable[[], Awaitable[Checks]], ambient: Ambient, is_missing: Callable[[], bool]
    ) -> None:
        self._check = check
        self._ambient = ambient
        self._is_missing = is_missing
        self._task: asyncio.Task[Checks] | None = None
        self._good_until = 0.0
        self._was_missing = False

    async def answer(self) -> Checks:
        """The answer of the round that is under way, of the last one, or of a new one."""
        if self._task is None or (self._task.done() and not self._is_good()):
            self._task = asyncio.create_task(self._run(), name="readiness")
        # whoever leaves does not end it for the others
        return await asyncio.shield(self._task)

    def _is_good(self) -> bool:
        return self._ambient.monotonic() < self._good_until and self._was_missing == self._is_missing()

    async def _run(self) -> Checks:
        began = self._ambient.monotonic()
        try:
            return await self._check()
        finally:
            ended = self._ambient.monotonic()
            self._was_missing = self._is_missing()
            self._good_until = ended + min(max(REST_SECONDS, REST * (ended - began)), LONGEST_REST_SECONDS)


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
