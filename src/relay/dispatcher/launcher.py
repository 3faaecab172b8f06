"""The launcher: makes requests of claimed deliveries, hands them to the sender, and judges what comes back.

Owns the step between claim and record. It holds no lock and waits for nothing. Invariant: a flight that leaves here is
launched, buried or handed back, and one that lands gives its permits back even if judging it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from relay.dispatcher.alarm import Alarm
from relay.dispatcher.flights import Flight, Flights
from relay.dispatcher.recorder import Recorder
from relay.domain.ambient import Ambient
from relay.domain.delivery import DeadReason
from relay.domain.outcome import (
    Bury,
    HandBack,
    HandBackReason,
    Judgement,
    LaneNotice,
    OutcomeClass,
    OutcomeReason,
    judge,
)
from relay.domain.sending import OutboundRequest, Phases, SendFacts
from relay.domain.telemetry import DeliveryMetBug, InFlightChanged, Listener, SendsFailedHere
from relay.domain.trace import TRACE_ENTROPY_BYTES
from relay.sender import HttpSender

LOCAL_DELAY_SECONDS = 1.0
"""How long a delivery waits that this machine could not send."""

TOLD_EVERY_SECONDS = 10.0
"""How often trouble of this machine is told of while it lasts: every delivery meets it again each second."""

ABORTED_DELAY_SECONDS = 30.0
"""How long a delivery waits whose request could not be made: a bug does not go away within a second."""

Landing = tuple[Flight, SendFacts]


class Launcher:
    """Launches and lands the `flights` of one process. `sender` is given once it exists, before the first launch."""

    def __init__(
        self,
        *,
        flights: Flights,
        recorder: Recorder,
        alarm: Alarm,
        room_wanted: int,
        max_payload_bytes: int,
        ambient: Ambient,
        emit: Listener,
    ) -> None:
        self.flights = flights
        self._recorder = recorder
        self._alarm = alarm
        self._room_wanted = room_wanted
        self._max_payload_bytes = max_payload_bytes
        self._ambient = ambient
        self._emit = emit
        self._failed_here = 0
        self._told_at: float | None = None
        self.sender: HttpSender[Flight] | None = None

    def launch(self) -> None:
        """Hand to the sender what is waiting, as far as the process's limit allows."""
        assert self.sender is not None, "the sender is set before anything is claimed"
        # what is not sent after all leaves its place to the next
        while ready := self.flights.ready():
            self._launch(ready)

    def _launch(self, ready: list[Flight]) -> None:
        entropy = self._ambient.entropy(TRACE_ENTROPY_BYTES * len(ready))
        requests: list[tuple[Flight, OutboundRequest]] = []
        for place, flight in enumerate(ready):
            drawn = entropy[place * TRACE_ENTROPY_BYTES : (place + 1) * TRACE_ENTROPY_BYTES]
            try:
                request = self._request(flight, drawn)
            except Exception as fault:  # noqa: BLE001 - one flight's bug must not keep the others on the ground
                self._abort(flight, fault)
                continue
            if request is not None:
                requests.append((flight, request))
        if requests:
            self._submit(requests)
            self._emit(InFlightChanged(self.flights.launched))

    def _request(self, flight: Flight, entropy: bytes) -> OutboundRequest | None:
        """The request of a flight that is launched with it; None for one that must not be sent."""
        now = self._ambient.monotonic()
        if self._grounded(flight, now):
            return None
        timestamp = int(_instant(flight, now).timestamp())
        request = flight.address.ready.request(flight.claimed, timestamp=timestamp, entropy=entropy)
        flight.trace_entropy = entropy
        self.flights.launch(flight, now)
        return request

    def _submit(self, requests: list[tuple[Flight, OutboundRequest]]) -> None:
        assert self.sender is not None, "the sender is set before anything is claimed"
        try:
            self.sender.submit(requests)
        except Exception as fault:  # noqa: BLE001 - permits are returned whatever happens to their flights
            for flight, _ in requests:
                self._abort(flight, fault)

    def _abort(self, flight: Flight, fault: Exception) -> None:
        """Give up on a flight that a bug has stopped: its permits and its lease go back, and the bug is told."""
        self.flights.land(flight)
        self._recorder.hand_back([flight.lease], HandBackReason.LOCAL, ABORTED_DELAY_SECONDS)
        self._emit(DeliveryMetBug(flight.claimed.id, flight.address.consumer, fault))

    def landed(self, landings: Sequence[Landing]) -> None:
        """Judge what came back, pass it on to be recorded, and launch what waited for the permits."""
        now = self._ambient.monotonic()
        for flight, facts in landings:
            if flight.landed:
                continue
            self.flights.land(flight)
            try:
                self._judge(flight, facts, _instant(flight, now))
            except Exception as fault:  # noqa: BLE001 - one flight's bug must not keep the others from landing
                self._emit(DeliveryMetBug(flight.claimed.id, flight.address.consumer, fault))
        self._emit(InFlightChanged(self.flights.launched))
        self.launch()
        if self.flights.room >= self._room_wanted:
            self._alarm.ring()

    def _judge(self, flight: Flight, facts: SendFacts, now: datetime) -> None:
        claimed, address = flight.claimed, flight.address
        assert flight.launched_at is not None, "only launched flights land"
        facts = address.ready.read(facts)
        judgement = judge(
            facts,
            ack=address.ack,
            retry=address.retry,
            generation_attempt=claimed.generation_attempt,
            generation_age=claimed.generation_age,
            draw=self._ambient.draw(),
            now=now,
        )
        if isinstance(judgement.verdict, HandBack):
            self._recorder.hand_back([flight.lease], judgement.verdict.reason, LOCAL_DELAY_SECONDS)
            self._tell_trouble(flight, facts.detail)
            return
        self._recorder.add(flight, facts, judgement, wait_ms=(flight.launched_at - flight.claimed_at) * 1000)
        self._teach(flight, judgement.lane, in_order=facts.error_class is None)

    def _teach(self, flight: Flight, notice: LaneNotice | None, *, in_order: bool) -> None:
        """What this process's part of the lane learns; the database hears of it with the record."""
        if notice is None or flight.lane is None:
            return
        lanes, now = self.flights.lanes, self._ambient.monotonic()
        if notice.hold_seconds:
            lanes.throttled(flight.lane, now)
        elif notice.answered:
            lanes.answered(flight.lane, now, in_order=in_order)
        else:
            lanes.failed(flight.lane, now)
        if notice.disable or notice.hold_seconds:
            lanes.shut(flight.claimed.endpoint_id)

    def _tell_trouble(self, flight: Flight, detail: str) -> None:
        """Tell at once, and while it goes on now and then, that this machine cannot send."""
        self._failed_here += 1
        now = self._ambient.monotonic()
        if self._told_at is None or now - self._told_at >= TOLD_EVERY_SECONDS:
            self._told_at = now
            self._emit(SendsFailedHere(self._failed_here, flight.address.consumer, detail, flight.claimed.id))
            self._failed_here = 0

    def _grounded(self, flight: Flight, now: float) -> bool:
        """Deal with a flight that must not be sent; answers whether it was one."""
        claimed, address = flight.claimed, flight.address
        lanes = self.flights.lanes
        if lanes.is_shut(claimed.endpoint_id) or lanes.is_closed_since(claimed.endpoint_id, flight.asked_at):
            self.flights.land(flight)
            self._recorder.hand_back([flight.lease], HandBackReason.GATE, 0.0)
        elif flight.lease_ends_at - now < address.ready.timeout_seconds:
            self.flights.land(flight)
            self._recorder.hand_back([flight.lease], HandBackReason.LEASE, 0.0)
        elif len(claimed.payload) > self._max_payload_bytes:
            self._bury(flight, DeadReason.TOO_LARGE, "the payload is larger than RELAY_MAX_PAYLOAD_BYTES")
        elif claimed.generation_attempt > address.retry.max_attempts:
            # ending a generation is the judge's: this one's last attempt never came to it, or fewer are allowed since
            made = f"{claimed.generation_attempt - 1} attempts were made and {address.retry.max_attempts} are allowed"
            why = "the last one ended without an answer on record, or the retry rule was changed"
            self._bury(flight, DeadReason.EXHAUSTED, f"{made}: {why}")
        else:
            return False
        return True

    def _bury(self, flight: Flight, dead_reason: DeadReason, detail: str) -> None:
        self.flights.land(flight)
        judgement = Judgement(
            OutcomeClass.PERMANENT, OutcomeReason.REJECTED, Bury(dead_reason, OutcomeReason.REJECTED), None
        )
        self._recorder.add(flight, SendFacts(detail=detail, phases=Phases()), judgement, wait_ms=0.0)


def _instant(flight: Flight, monotonic: float) -> datetime:
    """The database's instant at a moment of this process: this machine's own date is nobody's business here. A sender
    whose clock is wrong still signs with the right time, and reads a date in `Retry-After` as whoever wrote it."""
    return flight.claimed.claimed_at + timedelta(seconds=monotonic - flight.claimed_at)
