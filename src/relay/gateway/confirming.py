"""From an append to the right to say yes: groups that are on this server's disk and wait for the quorum.

Owns the wait and what becomes of a group whose quorum does not come in time. Waiting itself is the barrier's, the
wording of a yes `answers`'. Invariant: an event of such a group ends as one of three: proven, and its sender
hears 202; void, and nothing of it is ever delivered unless it is sent again under its name; or unknown, and its sender
is told that it may count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never
from uuid import UUID

from relay.domain import ids
from relay.domain.ambient import Ambient
from relay.domain.telemetry import Listener, QuorumFailed
from relay.gateway.groups import Group, Member
from relay.store.barrier import Barrier, ended
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
UNCERTAIN = Problem(
    ErrorCode.JOURNAL_QUORUM,
    "whether enough copies of the journal have the event is not certain, and it may count;"
    " send it again, with the same Idempotency-Key so that it cannot count twice",
)
UNPROVEN = Problem(
    ErrorCode.DATABASE_UNAVAILABLE,
    "the event is stored, and whether enough copies of the journal have it is not known: it may count;"
    " send it again, with the same Idempotency-Key so that it cannot count twice",
)

_WRITTEN_HERE = frozenset({AppendResult.APPENDED, AppendResult.REVIVED})

Finish = Callable[[Group, Sequence[Appended]], None]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What was found out about a group: whether the quorum has it; what became of the events that it wrote, if it does
    not; and which of the events that were sent again stand, None if nobody knows.
    """

    proven: bool
    fates: Mapping[UUID, Voided]
    standing: set[UUID] | None

    def against(self, receipt: UUID, result: AppendResult) -> Problem | None:
        """What keeps an event from being answered with yes, None if nothing does."""
        match result:
            case AppendResult.CONFLICT:
                return None
            case AppendResult.REPLAYED:
                if self.standing is not None and receipt not in self.standing:
                    return MISSED
                if self.standing is None:
                    return UNPROVEN
                return None if self.proven else UNCERTAIN
            case AppendResult.APPENDED | AppendResult.REVIVED:
                fate = self.fates.get(receipt)
                if self.proven or fate is Voided.CONFIRMED:
                    return None
                if fate is None:
                    return UNPROVEN
                return MISSED if fate is Voided.VOID else UNCERTAIN
            case _:
                assert_never(result)


class Confirming:
    """The groups of one process that wait for the quorum. `finish` is told of what may be answered with yes."""

    def __init__(self, *, journal: Journal, barrier: Barrier, finish: Finish, ambient: Ambient, emit: Listener) -> None:
        self._journal = journal
        self._barrier = barrier
        self._finish = finish
        self._ambient = ambient
        self._emit = emit
        self._tasks: dict[asyncio.Task[Any], int] = {}
        self.waiting = 0
        """How many senders wait."""
        self.payload_bytes = 0
        """The bytes of their events' payloads."""

    @property
    def is_busy(self) -> bool:
        """Whether anything is waited for, or still taken back."""
        return bool(self._tasks)

    def take(self, group: Group, appended: Sequence[Appended]) -> None:
        """Wait for the quorum beside whatever else is appended, then answer the group's senders."""
        task = asyncio.create_task(self._confirm(group, appended), name="confirm")
        senders, size = len(group.submissions), sum([len(each.envelope.payload) for each in group.submissions])
        self.waiting += senders
        self.payload_bytes += size

        def forget(ended: asyncio.Task[None]) -> None:
            del self._tasks[ended]
            self.waiting -= senders
            self.payload_bytes -= size

        self._tasks[task] = senders
        task.add_done_callback(forget)

    async def drain(self, within: float) -> int:
        """Finish what was taken, for `within` seconds; answers how many senders had to be given up."""
        if not self._tasks:
            return 0
        _, unfinished = await asyncio.wait(set(self._tasks), timeout=within)
        given_up = sum(self._tasks[task] for task in unfinished)
        for task in unfinished:
            await ended(task)
        return given_up

    async def _confirm(self, group: Group, appended: Sequence[Appended]) -> None:
        appended_at = self._ambient.monotonic()
        timeline = max((result.timeline for result in appended), default=0) or None
        try:
            proven = await self._barrier.confirmed(timeline)
            fates = {} if proven else await self._miss(group, appended, appended_at)
            found = Found(proven, fates, await self._standing(appended))
            self._answer(group, appended, found)
        except asyncio.CancelledError:
            _give_up(group)
            raise
        except Exception:
            logger.exception("confirmation_met_bug")
            _give_up(group)

    def _answer(self, group: Group, appended: Sequence[Appended], found: Found) -> None:
        kept: list[tuple[Member, Appended]] = []
        for member, result in zip(group.members, appended, strict=True):
            problem = found.against(_receipt(member, result), result.result)
            if problem is None:
                kept.append((member, result))
            else:
                for submission in (member.submission, *member.followers):
                    submission.settle(problem)
        self._finish(Group([member for member, _ in kept], (), group.lost), [result for _, result in kept])

    async def _standing(self, appended: Sequence[Appended]) -> set[UUID] | None:
        """Which of the events that are sent again are not void by now, None if that cannot be found out.

        The request that wrote one may have been answered with no while this one's proof was waited for.
        """
        replayed = {each.earlier for each in appended if each.result is AppendResult.REPLAYED and each.earlier}
        if not replayed:
            return set()
        try:
            return await self._journal.standing(sorted(replayed))
        except StoreUnavailable as fault:
            logger.warning("standing_unknown", extra={"fields": {"count": len(replayed), "detail": str(fault)}})
            return None

    async def _miss(self, group: Group, appended: Sequence[Appended], appended_at: float) -> Mapping[UUID, Voided]:
        """The quorum did not come: take back what this group wrote, and answer what became of it, as far as known."""
        self._emit(QuorumFailed(len(group.submissions)))
        # dispatchers count on it that nothing is void sooner
        await self._ambient.sleep(max(0.0, appended_at + VOID_AFTER_SECONDS - self._ambient.monotonic()))
        pairs = zip(group.members, appended, strict=True)
        written = {_receipt(member, result): result for member, result in pairs if result.result in _WRITTEN_HERE}
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
                timeline=max(result.timeline for result in written.values()),
                standbys=self._barrier.standbys_needed,
                names=self._barrier.names,
                promise=self._barrier.promise,
            )
        except (StoreUnavailable, StoreRefused) as fault:
            first = ids.write(ids.RECEIPT, min(written))
            told = {"count": len(written), "receipt_id": first, "detail": str(fault)}
            logger.warning("void_failed", extra={"fields": told})
            return {}


def _give_up(group: Group) -> None:
    """Of whoever is not answered by now, nobody knows whether the event counts."""
    for submission in group.submissions:
        submission.settle(UNPROVEN)


def _receipt(member: Member, result: Appended) -> UUID:
    return result.earlier or member.submission.envelope.receipt_id
