"""From an append to the right to say yes: groups that are on this server's disk and wait for the quorum.

Owns the wait and what becomes of a group whose quorum does not come in time. Waiting itself is the barrier's, the
wording of answers the appender's. Invariant: an event of such a group ends as one of three: proven, and its sender
hears 202; void, and nothing of it is ever delivered unless it is sent again under its name; or unknown, and its sender
is told that it may count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from relay.domain import ids
from relay.domain.ambient import Ambient
from relay.domain.telemetry import Listener, QuorumFailed
from relay.gateway.groups import Group, Member
from relay.store.barrier import Barrier
from relay.store.faults import StoreRefused, StoreUnavailable
from relay.store.journal import Appended, AppendResult, Journal, Voided
from relay.store.quorum import VOID_AFTER_SECONDS
from relay.web.problems import ErrorCode, Problem

VOID_SECONDS = 0.5
"""How long senders wait for the void to be written; then they are told that nobody knows, and it is still written."""

MISSED = Problem(
    ErrorCode.JOURNAL_QUORUM,
    "not enough copies of the journal confirmed the event in time, and it does not count;"
    " send it again, with the same Idempotency-Key if it had one",
)
MISSING = Problem(
    ErrorCode.JOURNAL_QUORUM, "the journal has no quorum at present, so nothing is accepted; send the event again"
)
UNPROVEN = Problem(
    ErrorCode.DATABASE_UNAVAILABLE,
    "the event is stored, and whether enough copies of the journal have it is not known: it may count;"
    " send it again, with the same Idempotency-Key so that it cannot count twice",
)

_WRITTEN_HERE = frozenset({AppendResult.APPENDED, AppendResult.REVIVED})

Finish = Callable[[Group, Sequence[Appended]], None]

logger = logging.getLogger(__name__)


class Confirming:
    """The groups of one process that wait for the quorum. `finish` is told of what may be answered with yes."""

    def __init__(self, *, journal: Journal, barrier: Barrier, finish: Finish, ambient: Ambient, emit: Listener) -> None:
        self._journal = journal
        self._barrier = barrier
        self._finish = finish
        self._ambient = ambient
        self._emit = emit
        self._tasks: dict[asyncio.Task[Any], int] = {}

    @property
    def waiting(self) -> int:
        """How many senders wait."""
        return sum(self._tasks.values())

    @property
    def is_busy(self) -> bool:
        """Whether anything is waited for, or still taken back."""
        return bool(self._tasks)

    def take(self, group: Group, appended: Sequence[Appended]) -> None:
        """Wait for the quorum beside whatever else is appended, then answer the group's senders."""
        task = asyncio.create_task(self._confirm(group, appended), name="confirm")
        self._tasks[task] = len(group.submissions)
        task.add_done_callback(self._tasks.__delitem__)

    async def drain(self, within: float) -> int:
        """Finish what was taken, for `within` seconds; answers how many senders had to be given up."""
        if not self._tasks:
            return 0
        _, unfinished = await asyncio.wait(set(self._tasks), timeout=within)
        given_up = sum(self._tasks[task] for task in unfinished)
        for task in unfinished:
            task.cancel()
            await asyncio.wait([task])
        return given_up

    async def _confirm(self, group: Group, appended: Sequence[Appended]) -> None:
        appended_at = self._ambient.monotonic()
        try:
            if await self._barrier.confirmed(max((result.timeline for result in appended), default=0) or None):
                self._finish(group, appended)
            else:
                await self._miss(group, appended, appended_at)
        except asyncio.CancelledError:
            _give_up(group)
            raise
        except Exception:
            logger.exception("a confirmation met a bug")
            _give_up(group)

    async def _miss(self, group: Group, appended: Sequence[Appended], appended_at: float) -> None:
        """The quorum did not come: take back what this group wrote, and say so to whom it concerns."""
        self._emit(QuorumFailed(len(group.submissions)))
        # dispatchers count on it that nothing is void sooner
        await self._ambient.sleep(max(0.0, appended_at + VOID_AFTER_SECONDS - self._ambient.monotonic()))
        pairs = list(zip(group.members, appended, strict=True))
        fates = await self._fates({_receipt(member, result): result for member, result in pairs})
        kept: list[tuple[Member, Appended]] = []
        for member, result in pairs:
            problem = _told(result, fates.get(_receipt(member, result)))
            if problem is None:
                kept.append((member, result))
            else:
                for submission in (member.submission, *member.followers):
                    submission.settle(problem)
        self._finish(Group([member for member, _ in kept], (), group.lost), [result for _, result in kept])

    async def _fates(self, results: Mapping[UUID, Appended]) -> Mapping[UUID, Voided]:
        """What became of the events that were written by this append, once they are to be void."""
        written = {receipt: result for receipt, result in results.items() if result.result in _WRITTEN_HERE}
        if not written:
            return {}
        voiding = asyncio.create_task(self._void(written), name="void")
        self._tasks[voiding] = 0
        voiding.add_done_callback(self._tasks.__delitem__)
        await asyncio.wait([voiding], timeout=VOID_SECONDS)
        return voiding.result() if voiding.done() else {}

    async def _void(self, written: Mapping[UUID, Appended]) -> Mapping[UUID, Voided]:
        try:
            return await self._journal.void(
                sorted(written),
                log_from=min(result.log_from for result in written.values()),
                standbys=self._barrier.standbys_needed,
                names=self._barrier.names,
                promise=self._barrier.promise,
            )
        except (StoreUnavailable, StoreRefused) as fault:
            first = ids.write(ids.RECEIPT, min(written))
            logger.warning("%d events from %s on could not be declared void: %s", len(written), first, fault)
            return {}


def _give_up(group: Group) -> None:
    """Of whoever is not answered by now, nobody knows whether the event counts."""
    for submission in group.submissions:
        submission.settle(UNPROVEN)


def _receipt(member: Member, result: Appended) -> UUID:
    return result.earlier or member.submission.envelope.receipt_id


def _told(result: Appended, fate: Voided | None) -> Problem | None:
    """What the senders of an event are told whose quorum did not come, None if it can be answered as ever."""
    if result.result is AppendResult.CONFLICT or fate is Voided.CONFIRMED:
        return None
    if result.result is AppendResult.REPLAYED:
        return MISSED  # whoever appended it decides what becomes of it
    return MISSED if fate is Voided.VOID else UNPROVEN
