"""From what happens to log lines: how important each kind of `Happening` is, and what its line says.

Owns that table. How a delivery ended is one line with its ids and its times, at `info` or above; a batch's lines are
made together, and where `info` is not written its successes cost a comparison. A loop that is held up has a line when
that begins, at most one a minute while it goes on, and one when it is over. Invariant: every kind has a level; nothing
here waits, and a line is made only if its level is written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, assert_never

from relay.domain import housekeeping as h
from relay.domain import ids
from relay.domain import telemetry as t
from relay.domain.attempt import AckFact, AttemptFact
from relay.domain.breaker import BreakerState
from relay.domain.delivery import DeadReason
from relay.domain.outcome import Acked, Bury, HandBack, HandBackReason, OutcomeClass, Received, Retry
from relay.metrics.logs import Told

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

HELD_UP_EVERY_SECONDS = 60.0
"""The shortest time between two lines about one loop that is held up: an outage is tried at every few seconds."""

_TOLD_PER_ATTEMPT = frozenset({DeadReason.EXHAUSTED, DeadReason.PERMANENT_FAILURE, DeadReason.REFUSED})
"""Dead letters that come of an attempt, whose line has the ids."""

_TOLD_OTHERWISE = frozenset({HandBackReason.GATE, HandBackReason.LOCAL})
"""Hand-backs for which the gate, or the trouble of this machine, has a line."""


def _of_dead_letter(happening: t.DeadLettered) -> int:
    """debug where an attempt's line tells it, else warning"""
    return DEBUG if happening.reason in _TOLD_PER_ATTEMPT and not happening.delivery_ids else WARNING


def _of_hand_back(happening: t.DeliveriesHandedBack) -> int:
    """debug behind a gate and for trouble of this machine, else info"""
    return DEBUG if happening.reason in _TOLD_OTHERWISE else INFO


def _of_breaker(happening: t.BreakerMoved) -> int:
    """warning where it opens, else info"""
    return WARNING if happening.state is BreakerState.OPEN else INFO


def _of_broker(happening: t.BrokerModeChanged) -> int:
    """info where it is used again, warning where it is gone"""
    return INFO if happening.active else WARNING


LEVELS: dict[type[t.Happening], int | Callable[[Any], int]] = {
    t.RequestRefused: DEBUG,  # anybody can make as many as they like; they are counted
    t.RequestFailed: DEBUG,  # likewise; what is behind it has lines of its own
    t.RequestServed: DEBUG,
    t.EventsAccepted: DEBUG,
    t.IdempotentReplay: DEBUG,
    t.AppendCommitted: DEBUG,
    t.JournalCouldNotWrite: DEBUG,  # it is counted, and the append that failed has its line
    t.QuorumFailed: DEBUG,  # it is counted, and an outage has two lines of its own
    t.QuorumLost: ERROR,
    t.QuorumRegained: WARNING,
    t.DurabilityKnown: INFO,
    t.DeliveriesClaimed: DEBUG,
    t.AttemptsRecorded: INFO,  # a line for each attempt
    t.RetriesScheduled: DEBUG,
    t.LaneFoundClosed: DEBUG,
    t.DeferralsRecorded: DEBUG,
    t.DeliveriesHandedBack: _of_hand_back,
    t.SendsFailedHere: WARNING,
    t.DeliveryMetBug: ERROR,
    t.PermitsAwaited: DEBUG,
    t.InFlightChanged: DEBUG,
    t.ClockCompared: DEBUG,
    t.LeasesLost: WARNING,
    t.LeasesReaped: WARNING,
    t.DeadLettered: _of_dead_letter,
    t.DeliveriesAcked: INFO,  # a line for each ack
    t.ReceiptsClosed: DEBUG,
    t.ReceiptsRedriven: INFO,
    t.BreakerMoved: _of_breaker,
    t.LaneHeld: INFO,
    t.EndpointDisabled: WARNING,
    h.QueueMeasured: DEBUG,
    h.ReportingEnded: INFO,
    t.BrokerModeChanged: _of_broker,
    t.BrokerEmptied: WARNING,
    t.BrokerEntriesDropped: WARNING,
    h.BrokerStrangersFound: WARNING,
    h.DaysDropped: INFO,
    h.EventsPruned: INFO,
    t.LoopStarted: DEBUG,
    t.LoopSucceeded: DEBUG,
    t.LoopHeldUp: WARNING,
    t.LoopCrashed: ERROR,
    t.LoopStopped: DEBUG,
    t.SpansDropped: WARNING,  # at most one a minute
    t.LogLinesDropped: DEBUG,  # the stream itself tells it at the place of the gap
    t.ProcessStarted: INFO,
    t.ProcessDraining: INFO,
    t.ProcessStopped: INFO,
}


ATTEMPT_EVENTS = {
    "delivery_acked": ("info", "A delivery was acked, by the response to this attempt or by a call of its own."),
    "delivery_received": ("info", "An endpoint has the delivery and will ack it by a call of its own."),
    "delivery_retries": ("info", "An attempt failed; the delivery is due again `in_seconds`."),
    "delivery_dead": ("warning", "An attempt was the last: the delivery waits for a person."),
    "delivery_handed_back": ("info", "A delivery went back to its lane with its attempt unspent."),
}
"""How an attempt can end: the event of its line, the level and the meaning."""

LOOP_RESUMED = ("loop_resumed", "A loop that was held up goes on.")

_FOR_SPANS = "trace"
"""The field of a happening that no line has."""

MOST_SHOWN = 20
"""How many of a list a line has, of the ids of many deliveries for one; `count` says how many there are."""

Tell = Callable[[Sequence[Told]], None]


def log_listener(
    logger: logging.Logger | None = None, *, tell: Tell | None = None, clock: Callable[[], float] = time.monotonic
) -> t.Listener:
    """A listener that writes a line for whatever is worth one, to Relay's own logger unless another is given.

    Many lines of one moment go to `tell` together; without it each is a record of its own. `clock` counts seconds.
    """
    return _Lines(logging.getLogger("relay") if logger is None else logger, tell, clock)


class _Lines:
    def __init__(self, logger: logging.Logger, tell: Tell | None, clock: Callable[[], float]) -> None:
        self._logger = logger
        self._tell_many = self._tell_each if tell is None else tell
        self._clock = clock
        self._held_up_since: dict[t.Loop, float] = {}
        self._held_up_told: dict[t.Loop, float] = {}
        self._spans_untold = 0
        self._spans_told: float | None = None

    def __call__(self, happening: t.Happening) -> None:
        if type(happening) is t.AttemptsRecorded:
            self._attempts(happening)
            return
        if type(happening) is t.DeliveriesAcked:
            self._acks(happening)
            return
        if type(happening) is t.SpansDropped:
            told = self._dropped(happening)
            if told is None:
                return
            happening = told
        elif type(happening) is t.LoopHeldUp:
            if not self._is_news(happening.loop):
                return
        elif type(happening) is t.LoopSucceeded and happening.whole and happening.loop in self._held_up_since:
            self._resumed(happening.loop)
        level = LEVELS[type(happening)]
        level = level if isinstance(level, int) else level(happening)
        if self._logger.isEnabledFor(level):
            self._tell(level, happening)

    def _tell(self, level: int, happening: t.Happening) -> None:
        told: dict[str, object] = {
            column.name: getattr(happening, column.name) for column in fields(happening) if column.name != _FOR_SPANS
        }
        for column, value in told.items():
            if isinstance(value, tuple) and len(value) > MOST_SHOWN:
                told[column] = value[:MOST_SHOWN]
        error = told.get("error")
        self._write(level, t.name_of(happening), told, error if isinstance(error, BaseException) else None)

    def _is_news(self, loop: t.Loop) -> bool:
        """Whether a loop that is held up is worth a line now."""
        now = self._clock()
        told_at = self._held_up_told.get(loop)
        if told_at is not None and now - told_at < HELD_UP_EVERY_SECONDS:
            return False
        self._held_up_told[loop] = now
        self._held_up_since.setdefault(loop, now)
        return True

    def _dropped(self, happening: t.SpansDropped) -> t.SpansDropped | None:
        """What there is to tell of spans that were dropped, with those that were not told of; None if not now."""
        self._spans_untold += happening.count
        now = self._clock()
        if self._spans_told is not None and now - self._spans_told < HELD_UP_EVERY_SECONDS:
            return None
        told = t.SpansDropped(self._spans_untold)
        self._spans_untold, self._spans_told = 0, now
        return told

    def _resumed(self, loop: t.Loop) -> None:
        seconds = round(self._clock() - self._held_up_since.pop(loop), 1)
        if self._logger.isEnabledFor(INFO):
            self._write(INFO, LOOP_RESUMED[0], {"loop": loop, "held_up_seconds": seconds})

    def _attempts(self, happening: t.AttemptsRecorded) -> None:
        """A line for each attempt; where `info` is not written, for those that were the last of a dead letter."""
        if self._logger.isEnabledFor(INFO):
            self._tell_many([_of_attempt(attempt) for attempt in happening.attempts])
        elif happening.counts[OutcomeClass.SUCCESS] < len(happening.attempts):
            told = [_of_attempt(attempt) for attempt in happening.attempts if type(attempt.verdict) is Bury]
            if told and self._logger.isEnabledFor(WARNING):
                self._tell_many(told)

    def _acks(self, happening: t.DeliveriesAcked) -> None:
        if self._logger.isEnabledFor(INFO):
            self._tell_many([_of_ack(ack) for ack in happening.acks])

    def _tell_each(self, told: Sequence[Told]) -> None:
        for each in told:
            self._write(*each)

    def _write(self, level: int, name: str, told: dict[str, object], error: BaseException | None = None) -> None:
        """Make the record by hand: a line is about what happened, not about the place in this file that the
        logger would look for at every line."""
        exc_info = None if error is None else (type(error), error, error.__traceback__)
        logger = self._logger
        logger.handle(logger.makeRecord(logger.name, level, "", 0, name, (), exc_info, extra={"fields": told}))


def _of_attempt(attempt: AttemptFact) -> Told:
    """An attempt's line: which delivery, how it ended, and where its time went."""
    told: dict[str, object] = {
        "delivery_id": attempt.delivery_id,
        "receipt_id": ids.write(ids.RECEIPT, attempt.receipt_id),
        "event_id": attempt.event_id,
        "event_type": attempt.event_type,
        "tenant": attempt.tenant,
        "consumer": attempt.consumer,
        "attempt": attempt.attempt,
        "generation": attempt.generation,
        "outcome": attempt.outcome_class,
        "status_code": attempt.status_code,
        "error_class": attempt.error_class,
        "claim_ms": round(attempt.claim_seconds * 1000, 1),
        "gate_ms": round(attempt.gate_seconds * 1000, 1),
        "send_ms": round(attempt.send_seconds * 1000, 1),
        "persist_ms": round(attempt.persist_seconds * 1000, 1),
        "total_ms": round(attempt.total_seconds * 1000, 1),
    }
    if attempt.forwarded and (parent := attempt.forwarded[0])[0] == "traceparent":
        told["trace_id"] = parent[1][3:35]
    match attempt.verdict:
        case Acked():
            return Told(INFO, "delivery_acked", told)
        case Received():
            return Told(INFO, "delivery_received", told)
        case Retry(delay_seconds, reason):
            return Told(INFO, "delivery_retries", told | {"reason": reason, "in_seconds": round(delay_seconds, 3)})
        case Bury(dead_reason, reason):
            return Told(WARNING, "delivery_dead", told | {"reason": reason, "dead_reason": dead_reason})
        case HandBack(hand_back_reason):
            return Told(INFO, "delivery_handed_back", told | {"reason": hand_back_reason})
        case never:
            assert_never(never)


def _of_ack(ack: AckFact) -> Told:
    return Told(
        INFO,
        "delivery_acked",
        {
            "delivery_id": ack.delivery_id,
            "receipt_id": ids.write(ids.RECEIPT, ack.receipt_id),
            "consumer": ack.consumer,
            "outcome": OutcomeClass.SUCCESS,
            "total_ms": round(ack.seconds * 1000, 1),
        },
    )
