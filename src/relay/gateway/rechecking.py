"""Events that were checked by a catalogue which has changed before their append: they are checked anew.

Owns them between the line and the line, beside the appends, for a look may take its time. Invariant: each of them is
settled or put back into the line, the events of one batch together; none is put back unchecked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import groupby

from relay.domain.ambient import Ambient
from relay.gateway.schemas import Asked, Checks
from relay.gateway.submission import Checked, Submission
from relay.web.problems import ErrorCode, Problem
from relay.web.serving import BUG

RECHECKED_SECONDS = 5.0
"""How long an event is checked anew, because the catalogue keeps changing, before its sender is sent away."""

CHANGING = Problem(
    ErrorCode.DATABASE_UNAVAILABLE, "the schemas change faster than events can be checked; send the event again"
)
STOPPING = Problem(ErrorCode.DRAINING, "this gateway is stopping; send the event again, it will reach another")

logger = logging.getLogger(__name__)


class Rechecking:
    """The events of one process that are being checked anew; `rejoin` puts those into the line that still may be."""

    def __init__(self, *, checks: Checks, ambient: Ambient, rejoin: Callable[[Sequence[Submission]], None]) -> None:
        self._checks = checks
        self._ambient = ambient
        self._rejoin = rejoin
        self._tasks: dict[asyncio.Task[None], Sequence[Submission]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether any are being checked."""
        return bool(self._tasks)

    @property
    def waiting(self) -> int:
        """How many events there are."""
        return sum(map(len, self._tasks.values()))

    def take(self, outdated: Sequence[Submission]) -> None:
        """Check these anew, each request by itself."""
        for _, request in groupby(outdated, key=lambda each: each.batch or each):
            submissions = list(request)
            task = asyncio.create_task(self._check(submissions), name="check anew")
            self._tasks[task] = submissions
            task.add_done_callback(self._tasks.pop)

    async def drain(self, within: float) -> int:
        """Give up what is not checked within so many seconds; answers how many events that are."""
        if not self._tasks:
            return 0
        _, unfinished = await asyncio.wait(list(self._tasks), timeout=within)
        abandoned = [submission for task in unfinished for submission in self._tasks[task]]
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished)
        return len(abandoned)

    async def _check(self, submissions: Sequence[Submission]) -> None:
        try:
            still = [submission for submission in submissions if await self._may_still(submission)]
        except asyncio.CancelledError:
            _settle(submissions, STOPPING)
            raise
        except Exception:
            logger.exception("check_met_bug")
            _settle(submissions, BUG)
        else:
            self._rejoin(still)

    async def _may_still(self, submission: Submission) -> bool:
        """Whether the event may be appended by the newest catalogue; if not, its sender is told."""
        if submission.accepted_at <= self._ambient.monotonic() - RECHECKED_SECONDS:
            submission.settle(CHANGING)
            return False
        envelope = submission.envelope
        asked = Asked(
            envelope.tenant, envelope.source, submission.key, envelope.type, submission.wanted, envelope.payload
        )
        match await self._checks.check(asked):
            case Checked(schema, by):
                submission.envelope = envelope._replace(schema=schema)
                submission.checked_by = by
                return True
            case problem:
                submission.settle(problem)
                return False


def _settle(submissions: Sequence[Submission], problem: Problem) -> None:
    for submission in submissions:
        submission.settle(problem)
