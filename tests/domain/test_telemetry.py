"""Claims about the vocabulary of what happens."""

import dataclasses

import pytest

from relay.domain import housekeeping, telemetry
from relay.domain.broadcast import Broadcast
from relay.domain.delivery import DeadReason
from relay.domain.outcome import Bury, OutcomeClass, OutcomeReason
from relay.domain.sending import ErrorClass
from relay.domain.telemetry import (
    KINDS,
    Happening,
    LeasesReaped,
    Loop,
    LoopStarted,
    attempts_recorded,
    name_of,
)
from tests.support.facts import attempt

ACKED = attempt("ledger")
DEAD = ACKED._replace(
    outcome_class=OutcomeClass.RETRYABLE,
    verdict=Bury(DeadReason.EXHAUSTED, OutcomeReason.BROKEN_OFF),
    status_code=None,
    error_class=ErrorClass.RESET,
    delivery_seconds=None,
)


def test_every_record_of_the_modules_that_can_happen_is_in_the_union() -> None:
    records = {
        thing
        for module in (telemetry, housekeeping)
        for thing in vars(module).values()
        if isinstance(thing, type) and dataclasses.is_dataclass(thing) and thing.__module__ == module.__name__
    }

    assert set(KINDS) == records


def test_what_happened_cannot_be_changed() -> None:
    reaped = LeasesReaped(3)

    with pytest.raises(dataclasses.FrozenInstanceError):
        reaped.count = 4  # type: ignore[misc]  # the claim is that this fails
    with pytest.raises(AttributeError):
        ACKED.attempt = 2  # type: ignore[misc]  # the claim is that this fails


def test_a_happening_has_the_name_of_its_kind_in_lines() -> None:
    assert name_of(LeasesReaped(1)) == "leases_reaped"
    assert name_of(LoopStarted(Loop.REAPER)) == "loop_started"


def test_a_batch_of_attempts_counts_each_class_the_absent_ones_too() -> None:
    recorded = attempts_recorded(iter([ACKED, DEAD, ACKED]), 0.004)

    assert recorded.attempts == (ACKED, DEAD, ACKED)
    assert recorded.counts == {"success": 2, "retryable": 1, "permanent": 0, "deferred": 0}
    assert recorded.seconds == 0.004


def test_a_broadcast_tells_each_listener_in_order() -> None:
    told: list[tuple[str, Happening]] = []
    tell = Broadcast((lambda h: told.append(("metrics", h)), lambda h: told.append(("log", h))))

    tell(LoopStarted(Loop.REAPER))

    assert told == [("metrics", LoopStarted(Loop.REAPER)), ("log", LoopStarted(Loop.REAPER))]
