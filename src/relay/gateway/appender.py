"""The group commit: what arrives while an append is under way shares the next one.

Owns the events that wait and the one append in flight; groups wait for their quorum in `confirming`, beside the next
append. What a group holds and what its senders are told is decided in
`groups`; how it is written is the store's. Invariant: an event that was taken in is appended whatever becomes of its
sender's connection, and its sender is told exactly once, after the append and, where a quorum is asked for, its proof;
what the database has against one event is told to that one's sender alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from relay.domain import ids
from relay.domain.ambient import Ambient
from relay.domain.backoff import doubled
from relay.domain.credentials import Credentials
from relay.domain.delivery import DeadReason
from relay.domain.telemetry import (
    AppendCommitted,
    DeadLettered,
    EventsAccepted,
    JournalCouldNotWrite,
    Listener,
    QuorumFailed,
)
from relay.gateway.confirming import MISSING, Confirming
from relay.gateway.groups import NO_ENDPOINT, Group, Member, take_group, verdicts
from relay.gateway.pacing import Pace
from relay.gateway.rechecking import Rechecking
from relay.gateway.routes import Routes
from relay.gateway.schemas import Checks
from relay.gateway.submission import Line, Outcome, Submission
from relay.gateway.wakeups import Wakeups
from relay.store.barrier import Barrier
from relay.store.faults import CannotWrite, DataRefused, StoreBusy, StoreRefused, StoreUnavailable
from relay.store.journal import Appended, AppendResult, Journal, StaleSnapshot
from relay.web.credentials import Register
from relay.web.problems import ErrorCode, Problem
from relay.web.serving import BUG

MOST_WAITING = 10_000
MOST_WAITING_BYTES = 128 * 1024 * 1024
"""What may wait for its append: past either bound a sender is better served by a quick no."""

REDONE_SECONDS = 5.0
"""How long an event is tried anew, because the rules keep changing, because of others' locks, or because it shared an
append that was refused, before its sender is sent away."""

APPEND_SECONDS = 4.0
"""What one append may take, and one reading of the rules: the bound with which their pool is to be opened."""

ANSWER_SECONDS = 5.0
"""How long a sender waits for its answer while the database says nothing. Whoever could not be answered by then, were
the next append to hang like the last, is sent away with that one."""

FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.5
"""How long to keep away from a database that refuses because of others' locks: doubling from the first to the longest
pause, of which chance takes up to a half, so that those who got into each other's way do not meet again."""

_READINGS = 4
"""How often routes and credentials are read until they are of one version."""

DRAINING = Problem(ErrorCode.DRAINING, "this gateway is stopping; send the event again, it will reach another")
OVERLOADED = Problem(ErrorCode.OVERLOADED, "too many events wait to be stored; send the event again in a moment")
UNAVAILABLE = Problem(
    ErrorCode.DATABASE_UNAVAILABLE,
    "the database did not answer; send the event again, with the same Idempotency-Key so that it cannot count twice",
)
STALE = Problem(
    ErrorCode.DATABASE_UNAVAILABLE, "the routing rules change faster than events can be routed; send the event again"
)
BUSY = Problem(
    ErrorCode.DATABASE_UNAVAILABLE, "others' locks in the database kept the event from being stored; send it again"
)
UNSTORABLE = Problem(ErrorCode.UNSTORABLE, "the database cannot hold what is in this event; it was not stored")

logger = logging.getLogger(__name__)


class Appender:
    """The appends of one process."""

    def __init__(
        self,
        *,
        journal: Journal,
        register: Register,
        checks: Checks,
        wakeups: Wakeups,
        ambient: Ambient,
        emit: Listener,
        barrier: Barrier,
        most_waiting: int,
    ) -> None:
        self._journal = journal
        self._snapshots = checks.snapshots
        self._register = register
        self._wakeups = wakeups
        self._ambient = ambient
        self._emit = emit
        self._barrier = barrier
        self._confirming = Confirming(journal=journal, barrier=barrier, finish=self._finish, ambient=ambient, emit=emit)
        self._rechecking = Rechecking(checks=checks, ambient=ambient, rejoin=self._rejoin)
        self._most_waiting = most_waiting
        self._line = Line()
        self._pace = Pace()
        self._appending: asyncio.Task[None] | None = None
        self._draining = False
        self._abandoned = 0
        self._races_lost = 0

    def take(self, submission: Submission) -> None:
        """Have an event made durable; its outcome tells what came of it, at once where it is not even tried.

        Whoever no longer waits for the outcome only misses that; the event goes its way.
        """
        refusal = self._refusal(1, len(submission.envelope.payload))
        if refusal is not None:
            submission.settle(refusal)
            return
        self._line.join(submission)
        self._get_going()

    def take_batch(self, submissions: Sequence[Submission]) -> None:
        """`take` for the events of one request: all of them are taken, one behind the other, or none is."""
        refusal = self._refusal(len(submissions), sum([len(each.envelope.payload) for each in submissions]))
        if refusal is not None:
            _settle(submissions, refusal)
            return
        batch = object()
        for submission in submissions:
            submission.batch = batch
            self._line.join(submission)
        self._get_going()

    async def drain(self, within: float) -> int:
        """Take nothing more and finish what was taken, for `within` seconds; answers how many were given up then."""
        self._draining = True
        ends = self._ambient.monotonic() + within
        given_up = 0
        # what waits for its quorum may put a request of the same name back into the line
        while self._appending is not None or self._confirming.is_busy or self._rechecking.is_busy:
            given_up += await self._rechecking.drain(self._left(ends))
            if self._appending is not None:
                _, unfinished = await asyncio.wait([self._appending], timeout=self._left(ends))
                for task in unfinished:
                    task.cancel()
                    await asyncio.wait([task])
            given_up += await self._confirming.drain(self._left(ends))
        return self._abandoned + given_up

    def _left(self, ends: float) -> float:
        return max(0.0, ends - self._ambient.monotonic())

    def _refusal(self, count: int, size: int) -> Problem | None:
        """Why so many more events of so many bytes together are not taken, None if they are."""
        if self._draining:
            return DRAINING
        if self._barrier.missing is not None:
            self._emit(QuorumFailed(count))
            return MISSING
        # the first are always taken, however large: what one request may have is checked before
        waiting = len(self._line) + self._confirming.waiting + self._rechecking.waiting
        waiting_bytes = self._line.payload_bytes + self._confirming.payload_bytes
        if waiting and (waiting + count > self._most_waiting or waiting_bytes + size > MOST_WAITING_BYTES):
            return OVERLOADED
        return None

    def _get_going(self) -> None:
        if self._line and self._appending is None:
            self._appending = asyncio.create_task(self._append_all(), name="append")

    async def _append_all(self) -> None:
        """Append group after group until nobody waits."""
        try:
            while self._line:
                await self._append_next()
        finally:
            self._appending = None

    async def _gather(self) -> None:
        """Let more join the next append, unless this process is about to stop."""
        rest = self._pace.rest(self._ambient.monotonic())
        if rest and not self._draining:
            await self._ambient.sleep(rest)

    async def _append_next(self) -> None:
        routes: Routes | None = None
        group: Group | None = None
        try:
            await self._gather()
            await self._keep_away()
            if self._barrier.missing is not None:
                self._turn_away()
                return
            routes, credentials = await self._of_one_version()
            self._rechecking.take(self._line.take_outdated(routes.catalogue.version))
            if not self._line:
                return
            still_holds = partial(self._register.still_holds, credentials)
            group = take_group(self._line, routes, self._barrier.durability, self._ambient.entropy, still_holds)
            for submission, refusal in group.refused:
                submission.settle(refusal)
            await self._append(routes, group)
            self._races_lost = 0
        except StaleSnapshot:
            if routes is not None:
                self._snapshots.forget(routes)
            self._try_again(self._concerned(group), STALE)
        except StoreBusy:
            self._races_lost += 1
            self._try_again(self._concerned(group), BUSY)
        except StoreUnavailable as fault:
            self._tell_of(fault)
            _settle(self._concerned(group), UNAVAILABLE)
            _settle(self._line.take_older(self._ambient.monotonic() - (ANSWER_SECONDS - APPEND_SECONDS)), UNAVAILABLE)
        except asyncio.CancelledError:
            self._abandon(group)
            raise
        except Exception:
            logger.exception("append_met_bug")
            _settle(self._concerned(group), BUG)

    def _tell_of(self, fault: StoreUnavailable) -> None:
        logger.warning("append_failed", extra={"fields": {"detail": str(fault)}})
        if isinstance(fault, CannotWrite):
            self._emit(JournalCouldNotWrite())

    async def _of_one_version(self) -> tuple[Routes, Credentials]:
        """Routes and credentials that agree with each other. Raises `StaleSnapshot`, and `StoreUnavailable`."""
        for _ in range(_READINGS):
            routes, credentials = await self._snapshots.current(), await self._register.known()
            if credentials.version == routes.versions.credentials:
                return routes, credentials
            if credentials.version < routes.versions.credentials:
                await self._register.newest()
            else:
                self._snapshots.forget(routes)
        raise StaleSnapshot

    async def _append(self, routes: Routes, group: Group) -> None:
        began = self._ambient.monotonic()
        try:
            appended = await self._journal.append(routes.versions, [member.addition for member in group.members])
        except StoreRefused as fault:
            self._divide(group, fault)
        else:
            self._pace.ended(began, self._ambient.monotonic(), group.requests)
            self._confirm(group, appended)

    def _confirm(self, group: Group, appended: Sequence[Appended]) -> None:
        """Answer those whose events are durable by now, and have the others wait for their quorum."""
        if self._barrier.standbys_needed:
            self._confirming.take(group, appended)
        else:
            self._finish(group, appended)

    def _concerned(self, group: Group | None) -> Sequence[Submission]:
        """Whom a fault meets: the group, or before there was one everybody who waits."""
        return self._line.take(len(self._line)) if group is None else group.submissions

    async def _keep_away(self) -> None:
        """Let those pass whose locks the last append met."""
        if self._races_lost:
            pause = doubled(FIRST_PAUSE_SECONDS, self._races_lost - 1, LONGEST_PAUSE_SECONDS)
            await self._ambient.sleep(pause * (1 - self._ambient.draw() / 2))

    def _rejoin(self, submissions: Sequence[Submission]) -> None:
        for submission in submissions:
            self._line.join(submission)
        self._get_going()

    def _turn_away(self) -> None:
        """Nothing is written while the quorum is missing: what waits would only become void."""
        waiting = self._line.take(len(self._line))
        self._emit(QuorumFailed(len(waiting)))
        _settle(waiting, MISSING)

    def _try_again(self, submissions: Sequence[Submission], otherwise: Problem) -> None:
        """Put those back that have not been tried for too long; nothing of theirs was written."""
        accepted_after = self._ambient.monotonic() - REDONE_SECONDS
        self._line.put_back([each for each in submissions if each.accepted_at > accepted_after])
        _settle([each for each in submissions if each.accepted_at <= accepted_after], otherwise)

    def _divide(self, group: Group, fault: StoreRefused) -> None:
        """Find the event that the database refuses: what shared an append shares the next ones by halves.

        One guilty event among n costs some 2 log n appends, n of them 2 n, and the time of each event is bounded as for
        any other that is tried anew. An event that was alone is the guilty one; requests of its name are then tried for
        themselves, since they may differ.
        """
        suspects = group.submissions
        if len(group.members) == 1:
            leader = group.members[0].submission
            suspects = [*group.members[0].followers, *group.lost]
            told = {"receipt_id": ids.write(ids.RECEIPT, leader.envelope.receipt_id), "detail": str(fault)}
            logger.error("event_refused_by_database", extra={"fields": told})
            leader.settle(UNSTORABLE if isinstance(fault, DataRefused) else BUG)
        for suspect in suspects:
            suspect.company = (len(group.members) + 1) // 2
        self._try_again(suspects, OVERLOADED)

    def _abandon(self, group: Group | None) -> None:
        """The time to finish is over: of a group under way nobody knows whether it is durable."""
        under_way = () if group is None else group.submissions
        waiting = self._line.take(len(self._line))
        self._abandoned += len(under_way) + len(waiting)
        _settle(under_way, UNAVAILABLE)
        _settle(waiting, DRAINING)

    def _finish(self, group: Group, appended: Sequence[Appended]) -> None:
        new: list[Member] = []
        again: list[Submission] = []
        for member, result in zip(group.members, appended, strict=True):
            if result.result is AppendResult.APPENDED or result.result is AppendResult.REVIVED:
                new.append(member)
            for submission, outcome in verdicts(member, result):
                if outcome is None:
                    again.append(submission)
                else:
                    submission.settle(outcome)
        self._line.put_back(again)
        self._get_going()
        # only now it is certain that the rules by which there is no such endpoint are the newest
        _settle(group.lost, NO_ENDPOINT)
        if new:
            self._tell(new)

    def _tell(self, new: Sequence[Member]) -> None:
        """Wake the dispatchers if anything became due, and say what happened."""
        fan_outs = [member.addition.fan_out for member in new]
        deliveries = sum(map(len, fan_outs))
        if deliveries:
            self._wakeups.announce()
        now = self._ambient.monotonic()
        unrouted = fan_outs.count(())
        self._emit(
            AppendCommitted(len(new), deliveries, tuple([now - member.submission.accepted_at for member in new]))
        )
        self._emit(EventsAccepted(len(new), deliveries, unrouted))
        if unrouted:
            self._emit(DeadLettered("", DeadReason.NO_ROUTE, unrouted))


def _settle(submissions: Sequence[Submission], outcome: Outcome) -> None:
    for submission in submissions:
        submission.settle(outcome)
