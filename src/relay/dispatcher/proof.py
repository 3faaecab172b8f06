"""What may be sent: nothing that a failover could still erase.

Owns the dispatcher's knowledge of how far the journal is on the quorum, and the wait for more of it. Who confirms what
is the store's question. Invariant: a delivery is sent only if a look at the standbys, after its claim or before, has
shown its event on so many machines; and if that look was so late that its sender may have been refused meanwhile, only
if it still bears its claim's token.

Events older than the last proof need no other, so a backlog costs nothing, and what was confirmed before the quorum was
lost is delivered while it is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from relay.domain.ambient import Ambient
from relay.domain.delivery import ClaimedDelivery
from relay.domain.telemetry import Listener, QuorumLost, QuorumRegained
from relay.store.queue import UNNUMBERED, Claim, Queue
from relay.store.quorum import VOID_AFTER_SECONDS, Horizon, Sight

FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.02
"""Between two looks: doubling from the first to the longest."""

NOTHING_PROVEN = Horizon(UNNUMBERED, xid=0)


class Proofs:
    """The proofs of one process. `quorum` counts machines, the primary included; a batch waits `seconds` at most."""

    def __init__(self, *, queue: Queue, quorum: int, seconds: float, ambient: Ambient, emit: Listener) -> None:
        self._queue = queue
        self._quorum = quorum
        self._seconds = seconds
        self._ambient = ambient
        self._emit = emit
        self._horizon = NOTHING_PROVEN
        self._unproven: Sight | None = None
        self._missing_since: float | None = None

    async def sendable(self, claim: Claim, asked_at: float) -> Sequence[ClaimedDelivery]:
        """Which of the claimed deliveries may be sent; `asked_at` is when the claim was asked for, in monotonic time.

        Raises `StoreUnavailable`.
        """
        if self._quorum == 1:
            return claim.deliveries
        fresh = {
            each.id: age
            for each, written_by, age in zip(claim.deliveries, claim.written_by, claim.event_ages, strict=True)
            if written_by is not None and not self._horizon.covers(claim.numbering, claim.before_xid, written_by)
        }
        if not fresh:
            return claim.deliveries
        is_first = self._horizon.numbering != claim.numbering
        # a server that was promoted meanwhile proves its own journal, and not what the lost one had
        proven = await self._prove() and self._horizon.numbering == claim.numbering
        doubtful = set(fresh)
        if proven:
            elapsed = self._ambient.monotonic() - asked_at
            # another server wrote down the ages of what it appended by another clock
            doubtful = {each for each, age in fresh.items() if is_first or age + elapsed >= VOID_AFTER_SECONDS}
            doubtful -= await self._held([each for each in claim.deliveries if each.id in doubtful])
        return [each for each in claim.deliveries if each.id not in doubtful]

    async def look_ahead(self) -> None:
        """See how far the quorum is while there is nothing to claim. Raises `StoreUnavailable`.

        What is accepted for a full lane is claimed later, maybe when the quorum is missing; whoever was woken for it
        knows by this that it was confirmed.
        """
        if self._quorum > 1:
            sight = await self._queue.look()
            if self._shows(sight, sight):
                self._learn(sight)

    async def _held(self, deliveries: Sequence[ClaimedDelivery]) -> set[object]:
        """Which of these were not taken back while their proof was waited for."""
        if not deliveries:
            return set()
        return set(await self._queue.still_held([(each.id, each.lease_token) for each in deliveries]))

    async def _prove(self) -> bool:
        """Whether everything that is committed by now is on the quorum; waits for it, but not while that is missing."""
        began = self._ambient.monotonic()
        ends = began + self._seconds if self._unproven is None else began
        if self._unproven is not None and self._shows(await self._queue.look(self._unproven.log_to), self._unproven):
            self._learn(self._unproven)
            ends = began + self._seconds
        first = sight = await self._queue.look()
        pause = FIRST_PAUSE_SECONDS
        while not self._shows(sight, first):
            if self._ambient.monotonic() >= ends:
                self._lose(first, sight)
                return False
            await self._ambient.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            sight = await self._queue.look(first.log_to)
        self._learn(first)
        return True

    def _shows(self, sight: Sight, first: Sight) -> bool:
        """Whether a look proves what the first one saw; on another server, the same place is another one."""
        return sight.proves(self._quorum) and sight.horizon.numbering == first.horizon.numbering

    def _learn(self, proven: Sight) -> None:
        self._horizon = proven.horizon
        self._unproven = None
        if self._missing_since is not None:
            self._emit(QuorumRegained(self._ambient.monotonic() - self._missing_since))
            self._missing_since = None

    def _lose(self, first: Sight, last: Sight) -> None:
        # the oldest that is not proven is the first that will be, on the server where it is
        if self._unproven is None or self._unproven.horizon.numbering != first.horizon.numbering:
            self._unproven = first
        if self._missing_since is None:
            self._missing_since = self._ambient.monotonic()
            self._emit(QuorumLost(last.missing(self._quorum)))
