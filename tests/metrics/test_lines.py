"""Claims about which lines what happens is worth."""

import logging
from collections.abc import Iterator
from uuid import UUID

import pytest

from relay.domain import telemetry as t
from relay.domain.attempt import AckFact
from relay.domain.breaker import BreakerState
from relay.domain.delivery import DeadReason
from relay.domain.failure import FailureReason
from relay.domain.outcome import Bury, HandBack, HandBackReason, OutcomeClass, OutcomeReason, Received, Retry
from relay.metrics.lines import LEVELS, MOST_SHOWN, log_listener
from relay.metrics.logs import Told
from tests.support.facts import DELIVERY, RECEIPT, attempt


class Kept(logging.Handler):
    """A handler that keeps records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.records.append(record)

    def told(self) -> list[tuple[str, str]]:
        """The level and the name of each record."""
        return [(record.levelname, record.getMessage()) for record in self.records]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """Make a logger at the default level that passes nothing on."""
    logger = logging.getLogger("relay.tests.lines")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    yield logger
    logger.handlers.clear()


@pytest.fixture
def kept(logger: logging.Logger) -> Kept:
    """Keep what the logger writes."""
    handler = Kept()
    logger.addHandler(handler)
    return handler


ACKED = attempt()
RECEIVED = attempt(verdict=Received())
RETRIED = attempt(
    verdict=Retry(2.1234, OutcomeReason.TIMED_OUT), outcome=OutcomeClass.RETRYABLE, status=None, send=0.0214
)
BURIED = attempt(
    verdict=Bury(DeadReason.EXHAUSTED, OutcomeReason.SERVER_ERROR), outcome=OutcomeClass.RETRYABLE, status=503
)
HANDED_BACK = attempt(verdict=HandBack(HandBackReason.LOCAL), outcome=OutcomeClass.DEFERRED, status=None)


def test_every_kind_of_happening_has_a_level() -> None:
    assert set(LEVELS) == set(t.KINDS)


def test_successes_make_no_line_where_only_warnings_are_written(logger: logging.Logger, kept: Kept) -> None:
    logger.setLevel(logging.WARNING)
    made: list[Told] = []
    log_listener(logger, tell=made.extend)(t.attempts_recorded([ACKED, RECEIVED] * 100, 0.01))
    log_listener(logger)(t.RequestServed(0.001))
    assert (made, kept.records) == ([], [])


def test_a_batch_of_attempts_is_told_at_once(logger: logging.Logger, kept: Kept) -> None:
    told: list[list[str]] = []
    listener = log_listener(logger, tell=lambda lines: told.append([line.name for line in lines]))
    listener(t.attempts_recorded([ACKED, RETRIED, BURIED], 0.01))
    assert (told, kept.records) == ([["delivery_acked", "delivery_retries", "delivery_dead"]], [])


def test_each_attempt_has_a_line_that_says_how_it_ended(logger: logging.Logger, kept: Kept) -> None:
    log_listener(logger)(t.attempts_recorded([ACKED, RECEIVED, RETRIED, BURIED, HANDED_BACK], 0.01))
    assert kept.told() == [
        ("INFO", "delivery_acked"),
        ("INFO", "delivery_received"),
        ("INFO", "delivery_retries"),
        ("WARNING", "delivery_dead"),
        ("INFO", "delivery_handed_back"),
    ]


def test_retries_are_not_written_where_only_warnings_are(logger: logging.Logger, kept: Kept) -> None:
    logger.setLevel(logging.WARNING)
    log_listener(logger)(t.attempts_recorded([RETRIED, BURIED], 0.01))
    assert kept.told() == [("WARNING", "delivery_dead")]


def test_a_dead_letter_has_no_line_where_only_errors_are_written(logger: logging.Logger, kept: Kept) -> None:
    logger.setLevel(logging.ERROR)
    log_listener(logger)(t.attempts_recorded([BURIED], 0.01))
    assert kept.told() == []


def test_an_ack_by_a_call_of_its_own_has_a_line_of_the_same_name(logger: logging.Logger, kept: Kept) -> None:
    log_listener(logger)(t.DeliveriesAcked((AckFact(DELIVERY, RECEIPT, "billing", 1.5),)))
    assert kept.told() == [("INFO", "delivery_acked")]
    fields = vars(kept.records[0])["fields"]
    assert (fields["delivery_id"], fields["total_ms"]) == (DELIVERY, 1500.0)


def test_a_line_about_very_many_deliveries_names_some(logger: logging.Logger, kept: Kept) -> None:
    deliveries = tuple(map(UUID, (f"{number:032x}" for number in range(1000))))
    log_listener(logger)(t.LeasesLost(1000, deliveries))
    fields = vars(kept.records[0])["fields"]
    assert fields == {"count": 1000, "delivery_ids": deliveries[:MOST_SHOWN]}


def test_a_bug_that_struck_one_delivery_names_it(logger: logging.Logger, kept: Kept) -> None:
    bug = ZeroDivisionError()
    log_listener(logger)(t.DeliveryMetBug(DELIVERY, "billing", bug))
    (record,) = kept.records
    assert kept.told() == [("ERROR", "delivery_met_bug")]
    assert (vars(record)["fields"]["delivery_id"], record.exc_info and record.exc_info[1]) == (DELIVERY, bug)


def test_an_attempts_line_says_which_what_when_again_and_where_its_time_went(
    logger: logging.Logger, kept: Kept
) -> None:
    log_listener(logger)(t.attempts_recorded([RETRIED], 0.01))
    (record,) = kept.records
    assert vars(record)["fields"] == {
        "delivery_id": DELIVERY,
        "receipt_id": "rcp_0000000000000000000000000000000e",
        "event_id": "order-7",
        "event_type": "invoice.paid",
        "tenant": "acct_default",
        "consumer": "billing",
        "attempt": 2,
        "generation": 1,
        "outcome": "retryable",
        "status_code": None,
        "error_class": "connect_timeout",
        "claim_ms": 3.1,
        "gate_ms": 0.2,
        "send_ms": 21.4,
        "persist_ms": 5.7,
        "total_ms": 30.4,
        "reason": "timed_out",
        "in_seconds": 2.123,
    }


def test_a_dead_letters_line_says_why(logger: logging.Logger, kept: Kept) -> None:
    log_listener(logger)(t.attempts_recorded([BURIED], 0.01))
    fields = vars(kept.records[0])["fields"]
    assert (fields["dead_reason"], fields["reason"], fields["status_code"]) == ("exhausted", "server_error", 503)


@pytest.mark.parametrize(
    ("happening", "level"),
    [
        (t.LeasesReaped(2), "WARNING"),
        (t.LeasesLost(1), "WARNING"),
        (t.EndpointDisabled("billing", "410 Gone"), "WARNING"),
        (t.QuorumLost("no standby confirms"), "ERROR"),
        (t.SendsFailedHere(3, "billing", "Too many open files"), "WARNING"),
        (t.DeadLettered("", DeadReason.NO_ROUTE), "WARNING"),
        (t.DeadLettered("billing", DeadReason.EXHAUSTED, 1, (DELIVERY,)), "WARNING"),
        (t.BreakerMoved("billing", BreakerState.OPEN, 1, 30.0), "WARNING"),
        (t.BrokerModeChanged(active=False, reason="gone"), "WARNING"),
        (t.BreakerMoved("billing", BreakerState.CLOSED, 0, 0.0), "INFO"),
        (t.BrokerModeChanged(active=True, reason=""), "INFO"),
        (t.DeliveriesHandedBack(3, HandBackReason.DRAINING), "INFO"),
        (t.ProcessStarted(t.Process.GATEWAY, "127.0.0.1:8080"), "INFO"),
    ],
    ids=lambda value: repr(value) if isinstance(value, t.KINDS) else "",
)
def test_what_a_person_should_know_has_a_line_with_its_fields(
    logger: logging.Logger, kept: Kept, happening: t.Happening, level: str
) -> None:
    log_listener(logger)(happening)
    assert kept.told() == [(level, t.name_of(happening))]
    fields = vars(kept.records[0])["fields"]
    assert fields == {name: getattr(happening, name) for name in happening.__dataclass_fields__}


@pytest.mark.parametrize(
    "happening",
    [
        t.DeadLettered("billing", DeadReason.EXHAUSTED),
        t.DeliveriesHandedBack(3, HandBackReason.GATE),
        t.DeliveriesHandedBack(3, HandBackReason.LOCAL),
        t.RequestRefused(t.RejectReason.SIZE),
        t.RequestFailed(FailureReason.INTERNAL),
        t.LoopSucceeded(t.Loop.REAPER),
    ],
    ids=repr,
)
def test_what_another_line_tells_or_anybody_can_cause_is_for_debug(
    logger: logging.Logger, kept: Kept, happening: t.Happening
) -> None:
    log_listener(logger)(happening)
    assert kept.records == []


def test_a_crash_comes_with_its_traceback(logger: logging.Logger, kept: Kept) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 // 0
    log_listener(logger)(t.LoopCrashed(t.Loop.MAINTAINER, caught.value, 5.0))
    (record,) = kept.records
    assert kept.told() == [("ERROR", "loop_crashed")]
    assert record.exc_info == (ZeroDivisionError, caught.value, caught.value.__traceback__)


class Clock:
    """A clock that moves when it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def held_up(loop: t.Loop = t.Loop.RECORDER) -> t.LoopHeldUp:
    """Tell of a database that is away."""
    return t.LoopHeldUp(loop, "the database did not answer: ConnectionRefusedError", 5.0)


def test_a_loop_that_is_held_up_has_one_line_with_the_reason_and_no_traceback(
    logger: logging.Logger, kept: Kept
) -> None:
    log_listener(logger)(held_up())
    (record,) = kept.records
    assert (record.levelname, record.getMessage(), record.exc_info) == ("WARNING", "loop_held_up", None)
    assert vars(record)["fields"]["reason"] == "the database did not answer: ConnectionRefusedError"


def test_a_long_outage_has_a_line_a_minute_and_loop(logger: logging.Logger, kept: Kept) -> None:
    clock = Clock()
    listener = log_listener(logger, clock=clock)
    for _ in range(3600 // 5):
        listener(held_up(t.Loop.RECORDER))
        listener(held_up(t.Loop.REAPER))
        clock.now += 5
    assert len(kept.records) == 2 * 60


def test_a_loop_that_goes_on_again_says_so_once(logger: logging.Logger, kept: Kept) -> None:
    clock = Clock()
    listener = log_listener(logger, clock=clock)
    listener(held_up())
    listener(t.LoopSucceeded(t.Loop.REAPER))
    clock.now += 12.5
    listener(held_up())
    for _ in range(2):
        listener(t.LoopSucceeded(t.Loop.RECORDER))
    assert kept.told() == [("WARNING", "loop_held_up"), ("INFO", "loop_resumed")]
    assert vars(kept.records[1])["fields"] == {"loop": t.Loop.RECORDER, "held_up_seconds": 12.5}


def test_a_loop_of_which_a_part_is_still_held_up_does_not_go_on_yet(logger: logging.Logger, kept: Kept) -> None:
    """The pruner's names go each minute, whatever holds up old events."""
    clock = Clock()
    listener = log_listener(logger, clock=clock)
    for _ in range(3):
        listener(held_up(t.Loop.PRUNER))
        clock.now += 70
        listener(t.LoopSucceeded(t.Loop.PRUNER, whole=False))
    listener(t.LoopSucceeded(t.Loop.PRUNER))
    assert kept.told() == 3 * [("WARNING", "loop_held_up")] + [("INFO", "loop_resumed")]
    assert vars(kept.records[-1])["fields"]["held_up_seconds"] == 210


def test_a_loop_that_goes_on_says_since_when_it_could_not_whatever_was_told_between(
    logger: logging.Logger, kept: Kept
) -> None:
    clock = Clock()
    listener = log_listener(logger, clock=clock)
    for _ in range(3):
        listener(held_up())
        clock.now += 70
    listener(t.LoopSucceeded(t.Loop.RECORDER))
    assert vars(kept.records[-1])["fields"]["held_up_seconds"] == 210


def test_a_database_that_comes_and_goes_writes_no_more_lines_than_one_that_stays_away(
    logger: logging.Logger, kept: Kept
) -> None:
    clock = Clock()
    listener = log_listener(logger, clock=clock)
    for _ in range(600):
        listener(held_up())
        listener(t.LoopSucceeded(t.Loop.RECORDER))
        clock.now += 1
    assert len(kept.records) == 2 * 10


def test_a_collector_that_is_away_has_a_line_a_minute_that_counts_every_span(
    logger: logging.Logger, kept: Kept
) -> None:
    clock = Clock()
    listener = log_listener(logger, clock=clock)
    for _ in range(24):
        listener(t.SpansDropped(10))
        clock.now += 5
    assert [vars(record)["fields"]["count"] for record in kept.records] == [10, 120]


def test_an_attempt_in_a_trace_names_it(logger: logging.Logger, kept: Kept) -> None:
    traced = ACKED._replace(forwarded=(("traceparent", f"00-{'ab' * 16}-{'cd' * 8}-01"),))
    log_listener(logger)(t.attempts_recorded([traced], 0.01))
    assert vars(kept.records[0])["fields"]["trace_id"] == "ab" * 16


def test_lines_go_to_relays_own_logger_unless_another_is_given(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="relay"):
        log_listener()(t.LeasesReaped(1))
    assert [record.name for record in caplog.records] == ["relay"]
