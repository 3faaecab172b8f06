"""The recorder: writes what came of attempts, many per transaction, and tells what it wrote.

Owns the outcomes that are judged but not yet written. One batch is under way at a time; what lands meanwhile shares the
next. Invariant: an outcome leaves the buffer only when it is written (or the database refuses even its bare form), so
a crash or a lost connection repeats a batch and never drops one.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never
from uuid import UUID

from relay.dispatcher.alarm import Alarm
from relay.dispatcher.directory import Address
from relay.dispatcher.flights import Flight, Flights
from relay.domain.ambient import Ambient
from relay.domain.attempt import AttemptFact, AttemptRecord, snippet_text, words_of
from relay.domain.delivery import DeadReason, DeliveryMove
from relay.domain.outcome import (
    Acked,
    Bury,
    HandBack,
    HandBackReason,
    Judgement,
    OutcomeReason,
    Received,
    Retry,
    of_another_configuration,
)
from relay.domain.sending import SendFacts
from relay.domain.telemetry import (
    BreakerMoved,
    DeadLettered,
    DeliveriesHandedBack,
    DeliveryMetBug,
    EndpointDisabled,
    LaneHeld,
    LeasesLost,
    Listener,
    Loop,
    LoopSucceeded,
    ReceiptsClosed,
    RetriesScheduled,
    attempts_recorded,
)
from relay.store.faults import StoreRefused
from relay.store.queue import LaneMove, Queue, Recorded

BATCH = 500
"""Attempts per transaction at the most."""

QUIET_SECONDS = 30.0
"""How long there may be nothing to write before a round without work says that the loop is there."""

PACE_SECONDS = 0.010
"""The shortest time between the starts of two small batches."""

SMALL = 100
"""A batch below this size waits for its pace."""

DETAIL_LIMIT = 500
"""Characters of an error's text that are stored."""


class Outcome(NamedTuple):
    """A judged attempt that is not written yet. A tuple, since one is made per delivery.

    `accepted_at` is the event's acceptance on this process's own clock, reckoned back from the claim by the database's:
    the date of this machine is nobody's business here. `landed_at` is when the attempt came here, by the same clock.
    """

    record: AttemptRecord
    judgement: Judgement
    address: Address
    event_id: str
    event_type: str
    claim_seconds: float
    gate_seconds: float
    send_seconds: float
    accepted_at: float
    landed_at: float
    forwarded: tuple[tuple[str, str], ...]
    trace_entropy: bytes

    @property
    def consumer(self) -> str:
        """The endpoint's name."""
        return self.address.consumer


@dataclass(frozen=True, slots=True)
class Return:
    """Leases to hand back unsent."""

    leases: tuple[tuple[UUID, UUID], ...]
    reason: HandBackReason
    delay_seconds: float

    def is_like(self, other: Return) -> bool:
        """Whether both can be written together."""
        return (self.reason, self.delay_seconds) == (other.reason, other.delay_seconds)


class Recorder:
    """Records for one process."""

    def __init__(self, *, queue: Queue, flights: Flights, alarm: Alarm, ambient: Ambient, emit: Listener) -> None:
        self._queue = queue
        self._flights = flights
        self._alarm = alarm
        self._ambient = ambient
        self._emit = emit
        self._outcomes: list[Outcome] = []
        self._returns: list[Return] = []
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    @property
    def unwritten(self) -> int:
        """How many outcomes and returns wait to be written."""
        return len(self._outcomes) + len(self._returns)

    def add(self, flight: Flight, facts: SendFacts, judgement: Judgement, *, wait_ms: float) -> None:
        """Take a judged attempt; it is written soon."""
        self._outcomes.append(_outcome(flight, facts, judgement, wait_ms, self._ambient.monotonic()))
        self._changed()

    def hand_back(self, leases: Sequence[tuple[UUID, UUID]], reason: HandBackReason, delay_seconds: float) -> None:
        """Take leases that are given back unsent, due again after the delay."""
        self._returns.append(Return(tuple(leases), reason, delay_seconds))
        self._changed()

    async def run(self) -> None:
        """Write until cancelled. Raises `StoreUnavailable`; nothing is lost by that."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._filled.wait()
            began = self._ambient.monotonic()
            # outcomes first: a hold must stand before deliveries of its lane are given back
            await self._write_outcomes()
            await self._write_returns()
            self._emit(LoopSucceeded(Loop.RECORDER))
            if not self.unwritten:
                self._filled.clear()
                self._emptied.set()
            left = began + PACE_SECONDS - self._ambient.monotonic()
            if left > 0 and len(self._outcomes) < SMALL:
                await self._ambient.sleep(left)

    async def drain(self) -> None:
        """Return when everything taken so far is written; `run` must be running."""
        await self._emptied.wait()

    def _changed(self) -> None:
        self._filled.set()
        self._emptied.clear()

    async def _write_returns(self) -> None:
        while self._returns:
            first = self._returns[0]
            alike = [each for each in self._returns if each.is_like(first)]
            leases = [lease for each in alike for lease in each.leases]
            await self._queue.hand_back(leases, delay_seconds=first.delay_seconds)
            # more may have come meanwhile
            written = set(map(id, alike))
            self._returns = [each for each in self._returns if id(each) not in written]
            self._emit(DeliveriesHandedBack(len(leases), first.reason, tuple([delivery for delivery, _ in leases])))
            self._alarm.expect(first.delay_seconds)

    async def _write_outcomes(self) -> None:
        batch = self._outcomes[:BATCH]
        if not batch:
            return
        pressed = len(self._outcomes) >= SMALL
        try:
            await self._write(await self._reconsidered(batch), batch)
        except StoreRefused:
            await self._write_alone(batch[0])
        if pressed:
            # the claimer counts what is unwritten against its room
            self._alarm.ring()

    async def _write_alone(self, outcome: Outcome) -> None:
        """The database refused a batch: find the culprit by writing one by one, a refused one without its texts."""
        try:
            await self._write(await self._reconsidered([outcome]), [outcome])
        except StoreRefused:
            bare = outcome.record._replace(snippet="", reason=None, status_code=None)
            try:
                await self._write([outcome._replace(record=bare)], [outcome])
            except StoreRefused as fault:
                # the reaper returns the delivery to its lane; the crash tells of it
                self._drop([outcome])
                self._emit(DeliveryMetBug(outcome.record.delivery_id, outcome.consumer, fault))
                raise

    async def _reconsidered(self, batch: list[Outcome]) -> list[Outcome]:
        """The batch, with what was turned away for good by an endpoint that has been changed since tried again instead.

        A receiver may hold the new secret, and none but that, from the moment of the rotation's answer on, and what is
        on its way then was signed before it. What such an answer says is about a configuration that is gone.
        """
        doubted = {o.record.endpoint_id: o.address.revision for o in batch if _is_turned_away(o)}
        changed = await self._queue.changed_since(doubted) if doubted else set()
        if not changed:
            return batch
        return [_tried_again(o) if _is_turned_away(o) and o.record.endpoint_id in changed else o for o in batch]

    async def _write(self, batch: list[Outcome], taken: list[Outcome]) -> None:
        """Write a batch, drop what it was taken from, then tell: a listener's bug must not repeat what is written."""
        began = self._ambient.monotonic()
        recorded = await self._queue.record([outcome.record for outcome in batch])
        self._drop(taken)
        self._ground(batch, recorded)
        self._tell(batch, recorded, self._ambient.monotonic() - began)

    def _drop(self, taken: list[Outcome]) -> None:
        del self._outcomes[: len(taken)]
        for outcome in taken:
            if _closes_its_lane(outcome):
                self._flights.lanes.reopen(outcome.record.endpoint_id)

    def _ground(self, batch: list[Outcome], recorded: Recorded) -> None:
        """What was claimed for a lane before it closed, and is not sent yet, goes back, also what has yet to board."""
        shut = recorded.shut.union(each.record.endpoint_id for each in batch if _closes_its_lane(each))
        self._flights.lanes.close(shut, self._ambient.monotonic())
        if shut and (grounded := self._flights.ground(shut)):
            self.hand_back([flight.lease for flight in grounded], HandBackReason.GATE, 0.0)

    def _tell(self, batch: list[Outcome], recorded: Recorded, seconds: float) -> None:
        emit = self._emit
        now = self._ambient.monotonic()
        emit(attempts_recorded([_fact(outcome, now) for outcome in batch], seconds))
        if recorded.lost:
            emit(LeasesLost(len(recorded.lost), tuple([delivery for delivery, _ in recorded.lost])))
        if unmoved := recorded.lost | recorded.acked_meanwhile:
            batch = [o for o in batch if (o.record.delivery_id, o.record.lease_token) not in unmoved]
        delays = [o.record.delay_seconds for o in batch if o.record.move is DeliveryMove.RETRY]
        if delays:
            emit(RetriesScheduled(len(delays)))
            self._alarm.expect(min(delays))
        for outcome, count in Counter(recorded.closed.values()).items():
            emit(ReceiptsClosed(outcome, count))
        for (consumer, reason), count in _dead(batch).items():
            emit(DeadLettered(consumer, reason, count))
        self._tell_lanes(batch, recorded.breakers)

    def _tell_lanes(self, batch: list[Outcome], breakers: Sequence[LaneMove]) -> None:
        names = {outcome.record.endpoint_id: outcome.consumer for outcome in batch}
        for move in breakers:
            self._emit(BreakerMoved(names[move.endpoint_id], move.state, move.trips, move.cooldown_seconds))
            # a lane that opens has more to give
            self._alarm.ring()
        held: dict[UUID, float] = {}
        gone: dict[UUID, str] = {}
        for outcome in filter(_closes_its_lane, batch):
            notice, endpoint = outcome.judgement.lane, outcome.record.endpoint_id
            assert notice is not None, "only a notice closes a lane"
            held[endpoint] = max(held.get(endpoint, 0.0), math.inf if notice.disable else notice.hold_seconds)
            if notice.disable:
                gone.setdefault(endpoint, outcome.record.reason or "")
        for endpoint, seconds in held.items():
            if seconds == math.inf:
                self._emit(EndpointDisabled(names[endpoint], gone[endpoint]))
            else:
                self._emit(LaneHeld(names[endpoint], seconds))
                self._alarm.expect(seconds)


def _is_turned_away(outcome: Outcome) -> bool:
    return outcome.record.dead_reason is DeadReason.PERMANENT_FAILURE


def _tried_again(outcome: Outcome) -> Outcome:
    judgement = of_another_configuration(outcome.judgement)
    move, delay_seconds, dead_reason = _move(judgement)
    record = outcome.record._replace(
        outcome_class=judgement.outcome_class,
        move=move,
        delay_seconds=delay_seconds,
        dead_reason=dead_reason,
        reason=f"{outcome.record.reason}; the endpoint was changed meanwhile",
        lane=judgement.lane,
    )
    return outcome._replace(record=record, judgement=judgement)


def _closes_its_lane(outcome: Outcome) -> bool:
    notice = outcome.judgement.lane
    return notice is not None and (notice.disable or notice.hold_seconds > 0)


def _dead(batch: list[Outcome]) -> Counter[tuple[str, DeadReason]]:
    return Counter((o.consumer, o.record.dead_reason) for o in batch if o.record.dead_reason is not None)


def _fact(outcome: Outcome, now: float) -> AttemptFact:
    record, judgement = outcome.record, outcome.judgement
    total_seconds = max(now - outcome.accepted_at, 0.0)
    return AttemptFact(
        record.delivery_id,
        record.receipt_id,
        outcome.event_id,
        outcome.event_type,
        outcome.address.tenant,
        outcome.address.consumer,
        record.attempt,
        record.generation,
        record.outcome_class,
        judgement.verdict,
        record.status_code,
        record.error_class,
        outcome.claim_seconds,
        outcome.gate_seconds,
        outcome.send_seconds,
        persist_seconds=now - outcome.landed_at,
        total_seconds=total_seconds,
        delivery_seconds=total_seconds if record.move is DeliveryMove.ACK else None,
        forwarded=outcome.forwarded,
        trace_entropy=outcome.trace_entropy,
        display_url=record.display_url,
    )


def _outcome(flight: Flight, facts: SendFacts, judgement: Judgement, wait_ms: float, landed_at: float) -> Outcome:
    claimed, address = flight.claimed, flight.address
    move, delay_seconds, dead_reason = _move(judgement)
    # by place: names would cost four times as much, for each delivery
    record = AttemptRecord(
        claimed.id,
        claimed.lease_token,
        claimed.receipt_id,
        claimed.endpoint_id,
        claimed.claimed_at,
        claimed.attempt,
        claimed.generation,
        judgement.outcome_class,
        move,
        delay_seconds,
        dead_reason,
        None if move is DeliveryMove.ACK else _reason(facts, judgement),
        facts.status_code,
        facts.error_class,
        snippet_text(facts.snippet) if facts.snippet else "",
        facts.phases._replace(wait_ms=wait_ms),
        address.ready.display_url,
        judgement.lane,
    )
    age_at_claim = (claimed.claimed_at - claimed.received_at).total_seconds()
    return Outcome(
        record,
        judgement,
        address,
        claimed.event_id,
        claimed.type,
        claim_seconds=flight.claimed_at - flight.asked_at,
        gate_seconds=wait_ms / 1000,
        send_seconds=facts.phases.total_ms / 1000,
        accepted_at=flight.claimed_at - age_at_claim,
        landed_at=landed_at,
        forwarded=claimed.forwarded,
        trace_entropy=flight.trace_entropy,
    )


def _move(judgement: Judgement) -> tuple[DeliveryMove, float, DeadReason | None]:
    match judgement.verdict:
        case Acked():
            return DeliveryMove.ACK, 0.0, None
        case Received():
            return DeliveryMove.RECEIVE, 0.0, None
        case Retry(delay_seconds=delay):
            return DeliveryMove.RETRY, delay, None
        case Bury(dead_reason=reason):
            return DeliveryMove.BURY, 0.0, reason
        case HandBack():
            raise AssertionError("a hand-back is not an attempt")
        case verdict:
            assert_never(verdict)


def _reason(facts: SendFacts, judgement: Judgement) -> str:
    """Why it was not an ack: what came, what it means, and where that is the end of it, the receiver's own words."""
    came = str(facts.status_code) if facts.status_code is not None else str(facts.error_class or "not sent")
    detail = f": {facts.detail}" if facts.detail else f" ({judgement.reason})"
    if isinstance(judgement.verdict, Bury) and judgement.reason is OutcomeReason.REJECTED:
        words = words_of(facts.snippet)
        detail += f": {words}" if words else ""
    return (came + detail).replace("\x00", "")[:DETAIL_LIMIT]
