"""From what happens to log lines: how important each kind of `Happening` is, and what its line says.

Owns that table. Failures have lines of their own with ids, at `info` or above; successes show at `debug`,
and below it they cost a comparison per batch. A loop that is held up has a line when that begins, at most one a
minute while it goes on, and one when it is over. Invariant: every kind has a level; nothing here waits for
anything but the stream, and a line is made only if its level is written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any, assert_never

from relay.domain import housekeeping as h
from relay.domain import ids
from relay.domain import telemetry as t
from relay.domain.breaker import BreakerState
from relay.domain.delivery import DeadReason
from relay.domain.outcome import Acked, Bury, HandBack, HandBackReason, OutcomeClass, Received, Retry

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

HELD_UP_EVERY_SECONDS = 60.0
"""The shortest time between two lines about one loop that is held up: an outage is tried at every few seconds."""

_TOLD_PER_ATTEMPT = frozenset({DeadReason.EXHAUSTED, DeadReason.PERMANENT_FAILURE, DeadReason.REFUSED})
"""Dead letters that come of an attempt, whose line has the ids."""

_TOLD_OTHERWISE = frozenset({HandBackReason.GATE, HandBackReason.LOCAL})
"""Hand-backs for which the gate, or the trouble of this machine, has a line."""


def _of_dead_letter(happening: t.DeadLettered) -> int:
    return DEBUG if happening.reason in _TOLD_PER_ATTEMPT else WARNING


def _of_hand_back(happening: t.DeliveriesHandedBack) -> int:
    return DEBUG if happening.reason in _TOLD_OTHERWISE else INFO


def _of_breaker(happening: t.BreakerMoved) -> int:
    return WARNING if happening.state is BreakerState.OPEN else INFO


def _of_broker(happening: t.BrokerModeChanged) -> int:
    return INFO if happening.active else WARNING


LEVELS: dict[type[t.Happening], int | Callable[[Any], int]] = {
    t.RequestRefused: DEBUG,  # anybody can make as many as they like; they are counted
    t.RequestFailed: DEBUG,  # likewise; what is behind it has lines of its own
    t.RequestServed: DEBUG,
    t.EventsAccepted: DEBUG,
    t.IdempotentReplay: DEBUG,
    t.AppendCommitted: DEBUG,
    t.QuorumFailed: DEBUG,  # it is counted, and an outage has two lines of its own
    t.QuorumLost: ERROR,
    t.QuorumRegained: WARNING,
    t.DurabilityKnown: INFO,
    t.DeliveriesClaimed: DEBUG,
    t.AttemptsRecorded: DEBUG,  # its failures have lines of their own
    t.RetriesScheduled: DEBUG,
    t.LaneFoundClosed: DEBUG,
    t.DeferralsRecorded: DEBUG,
    t.DeliveriesHandedBack: _of_hand_back,
    t.SendsFailedHere: WARNING,
    t.PermitsAwaited: DEBUG,
    t.InFlightChanged: DEBUG,
    t.ClockCompared: DEBUG,
    t.LeasesLost: WARNING,
    t.LeasesReaped: WARNING,
    t.DeadLettered: _of_dead_letter,
    t.DeliveriesAcked: DEBUG,
    t.ReceiptsClosed: DEBUG,
    t.ReceiptsRedriven: INFO,
    t.BreakerMoved: _of_breaker,
    t.LaneHeld: INFO,
    t.EndpointDisabled: WARNING,
    h.QueueMeasured: DEBUG,
    h.ReportingEnded: INFO,
    t.BrokerModeChanged: _of_broker,
    h.DaysDropped: INFO,
    h.EventsPruned: INFO,
    t.LoopStarted: DEBUG,
    t.LoopSucceeded: DEBUG,
    t.LoopHeldUp: WARNING,
    t.LoopCrashed: ERROR,
    t.LoopStopped: DEBUG,
    t.ProcessStarted: INFO,
    t.ProcessDraining: INFO,
    t.ProcessStopped: INFO,
}


def log_listener(logger: logging.Logger | None = None, *, clock: Callable[[], float] = time.monotonic) -> t.Listener:
    """A listener that writes a line for whatever is worth one, to Relay's own logger unless another is
    given. `clock` counts seconds."""
    return _Lines(logging.getLogger("relay") if logger is None else logger, clock)


class _Lines:
    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        self._logger = logger
        self._clock = clock
        self._held_up_since: dict[t.Loop, float] = {}
        self._held_up_told: dict[t.Loop, float] = {}

    def __call__(self, happening: t.Happening) -> None:
        if type(happening) is t.AttemptsRecorded:
            self._attempts(happening)
            return
        if type(happening) is t.LoopHeldUp:
            if not self._is_news(happening.loop):
                return
        elif type(happening) is t.LoopSucceeded and happening.loop in self._held_up_since:
            self._resumed(happening.loop)
        level = LEVELS[type(happening)]
        level = level if isinstance(level, int) else level(happening)
        if self._logger.isEnabledFor(level):
            self._tell(level, happening)

    def _tell(self, level: int, happening: t.Happening) -> None:
        told: dict[str, object] = {column.name: getattr(happening, column.name) for column in fields(happening)}
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

    def _resumed(self, loop: t.Loop) -> None:
        seconds = round(self._clock() - self._held_up_since.pop(loop), 1)
        if self._logger.isEnabledFor(INFO):
            self._write(INFO, "loop_resumed", {"loop": loop, "held_up_seconds": seconds})

    def _attempts(self, happening: t.AttemptsRecorded) -> None:
        """A line for each attempt that failed; for the others too where `debug` is written."""
        detailed = self._logger.isEnabledFor(DEBUG)
        if not detailed and happening.counts[OutcomeClass.SUCCESS] == len(happening.attempts):
            return
        for attempt in happening.attempts:
            if detailed or attempt.outcome_class is not OutcomeClass.SUCCESS:
                level, name, told = _of_attempt(attempt)
                if self._logger.isEnabledFor(level):
                    self._write(level, name, told)

    def _write(self, level: int, name: str, told: dict[str, object], error: BaseException | None = None) -> None:
        """Make the record by hand: a line is about what happened, not about the place in this file that the
        logger would look for at every line."""
        exc_info = None if error is None else (type(error), error, error.__traceback__)
        logger = self._logger
        logger.handle(logger.makeRecord(logger.name, level, "", 0, name, (), exc_info, extra={"fields": told}))


def _of_attempt(attempt: t.AttemptFact) -> tuple[int, str, dict[str, object]]:
    """The level, the name and the fields of an attempt's line."""
    told: dict[str, object] = {
        "delivery_id": str(attempt.delivery_id),
        "receipt_id": ids.write(ids.RECEIPT, attempt.receipt_id),
        "consumer": attempt.consumer,
        "attempt": attempt.attempt,
        "generation": attempt.generation,
        "outcome": attempt.outcome_class,
        "status_code": attempt.status_code,
        "error_class": attempt.error_class,
        "send_ms": round(attempt.send_seconds * 1000, 1),
    }
    match attempt.verdict:
        case Acked():
            return DEBUG, "delivery_acked", told
        case Received():
            return DEBUG, "delivery_received", told
        case Retry(delay_seconds, reason):
            return INFO, "delivery_retries", told | {"reason": reason, "in_seconds": round(delay_seconds, 3)}
        case Bury(dead_reason, reason):
            return WARNING, "delivery_dead", told | {"reason": reason, "dead_reason": dead_reason}
        case HandBack(hand_back_reason):
            return INFO, "delivery_handed_back", told | {"reason": hand_back_reason}
        case never:
            assert_never(never)
