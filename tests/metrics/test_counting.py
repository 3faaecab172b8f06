"""Claims about what each happening counts."""

from collections.abc import Callable
from math import inf, isnan, nan
from uuid import UUID

import pytest

from relay.domain import housekeeping as h
from relay.domain import telemetry as t
from relay.domain.breaker import BreakerState
from relay.domain.delivery import DeadReason
from relay.domain.failure import FailureReason
from relay.domain.outcome import DeferralReason, HandBackReason, OutcomeClass
from relay.domain.receipt import ReceiptOutcome
from relay.metrics import Metrics, names
from relay.metrics.counting import NOT_COUNTED, Counting
from relay.metrics.layout import closed_series, lay_out
from relay.metrics.names import Kind, Metric
from relay.metrics.roster import Roster
from tests.metrics.reading import scrape
from tests.support.facts import attempt

GATEWAY, DISPATCHER = t.Process.GATEWAY, t.Process.DISPATCHER
NOW = 1_700_000_000.5

REPORT = h.QueueMeasured(
    pending=3,
    in_flight=2,
    dead=7,
    oldest_pending_age=1.5,
    oldest_open_receipt_age=61.0,
    dead_by_consumer=(("billing", 4), ("ledger", 3)),
    open_breakers=("ledger",),
    default_partition_rows=1,
    journal_default_partition_rows=2,
    leases_expired=5,
    unaccounted=None,
    days_ahead=((h.DayTable.JOURNAL, 14), (h.DayTable.ATTEMPTS, 13)),
)


def metrics_of(process: t.Process, consumers: int = 10) -> Metrics:
    """Metrics of a process that is alone, on a clock that stands."""
    return Metrics(process, consumers=consumers, clock=lambda: NOW)


def _name(value: object) -> str:
    """What stands for a parameter in a test's id."""
    if isinstance(value, type):
        return value.__name__
    return str(value) if isinstance(value, t.Process) else type(value).__name__


@pytest.mark.parametrize(
    ("process", "happening", "expected"),
    [
        (GATEWAY, t.RequestRefused(t.RejectReason.SIZE), {"gateway_rejects_total{reason=size}": 1}),
        (GATEWAY, t.RequestFailed(FailureReason.INTERNAL), {"gateway_failures_total{reason=internal}": 1}),
        (GATEWAY, t.RequestServed(0.004), {"gateway_request_seconds_count": 1, "gateway_request_seconds_sum": 0.004}),
        (GATEWAY, t.IdempotentReplay(), {"idempotent_replays_total": 1}),
        (GATEWAY, t.AppendCommitted(2, 4, (0.006, 0.009)),
         {"journal_commit_seconds_count": 2, "journal_commit_seconds_sum": 0.015, "journal_batch_size": 2}),
        (GATEWAY, t.JournalCouldNotWrite(), {"journal_cannot_write_total": 1}),
        (GATEWAY, t.QuorumFailed(5), {"journal_quorum_failures_total": 1}),
        (GATEWAY, t.DurabilityKnown(2, 3), {"journal_durability{what=confirmed}": 2, "journal_durability{what=of}": 3}),
        (GATEWAY, t.DeadLettered("", DeadReason.NO_ROUTE, 2), {"dlq_inflow_total{consumer=,reason=no_route}": 2}),
        (GATEWAY, t.ReceiptsClosed(ReceiptOutcome.DELIVERED, 3), {"receipts_closed_total{outcome=delivered}": 3}),
        (GATEWAY, t.ReceiptsRedriven(1), {"receipts_redriven_total": 1}),
        (DISPATCHER, t.RetriesScheduled(4), {"relay_retries_scheduled_total": 4}),
        (DISPATCHER, t.DeferralsRecorded(3), {"relay_delivery_attempts_total{outcome=deferred}": 3}),
        (DISPATCHER, t.LaneFoundClosed("crm", DeferralReason.PAUSED),
         {"relay_deliveries_deferred_total{reason=paused}": 1}),
        (DISPATCHER, t.DeliveriesHandedBack(4, HandBackReason.LOCAL),
         {"relay_deliveries_handed_back_total{reason=local}": 4}),
        (DISPATCHER, t.PermitsAwaited(0.25),
         {"relay_global_wait_seconds_sum": 0.25, "relay_global_wait_seconds_count": 1}),
        (DISPATCHER, t.InFlightChanged(17), {"relay_in_flight": 17}),
        (DISPATCHER, t.ClockCompared(-301.5), {"relay_clock_skew_seconds": -301.5}),
        (DISPATCHER, t.LeasesLost(2), {"relay_leases_lost_total": 2}),
        (GATEWAY, t.LogLinesDropped(7), {"relay_log_lines_dropped_total": 7}),
        (DISPATCHER, t.SpansDropped(4), {"relay_spans_dropped_total": 4}),
        (DISPATCHER, t.LeasesReaped(3), {"relay_leases_reaped_total": 3}),
        (DISPATCHER, t.DeadLettered("billing", DeadReason.REFUSED),
         {"dlq_inflow_total{consumer=billing,reason=refused}": 1}),
        (DISPATCHER, t.ReceiptsClosed(ReceiptOutcome.EXPIRED, 1), {"receipts_closed_total{outcome=expired}": 1}),
        (DISPATCHER, t.BrokerModeChanged(active=True, reason=""), {"relay_broker_mode": 1}),
        (DISPATCHER, t.BrokerEmptied(), {"relay_broker_emptied_total": 1}),
        (DISPATCHER, t.BrokerEntriesDropped(3), {"relay_broker_entries_dropped_total": 3}),
        (DISPATCHER, h.BrokerStrangersFound(5), {"relay_broker_strangers_total": 5}),
        (DISPATCHER, h.DaysDropped(h.DayTable.JOURNAL, 2), {"relay_partitions_dropped_total{table=journal}": 2}),
        (DISPATCHER, h.EventsPruned("2026-11-30", 7, 1), {"relay_events_pruned_total": 7}),
        (DISPATCHER, t.LoopHeldUp(t.Loop.PRUNER, "busy", 60.0), {"relay_loop_held_up_total{loop=pruner}": 1}),
        (DISPATCHER, t.LoopSucceeded(t.Loop.REAPER), {"relay_loop_last_success_timestamp_seconds{loop=reaper}": NOW}),
        (DISPATCHER, t.LoopStarted(t.Loop.CLAIMER), {"relay_loop_last_success_timestamp_seconds{loop=claimer}": NOW}),
        (DISPATCHER, REPORT,
         {"relay_queue_depth{status=pending}": 3, "relay_queue_depth{status=in_flight}": 2,
          "relay_queue_depth{status=dead}": 7, "relay_queue_oldest_pending_age_seconds": 1.5,
          "receipts_open_age_seconds{stat=max}": 61, "relay_attempt_default_partition_rows": 1,
          "relay_journal_default_partition_rows": 2, "relay_leases_expired": 5,
          "relay_partitions_ahead{table=journal}": 14, "relay_partitions_ahead{table=delivery_attempts}": 13,
          "dlq_depth{consumer=billing}": 4, "dlq_depth{consumer=ledger}": 3, "relay_breaker_open{consumer=ledger}": 1}),
    ],
    ids=_name,
)  # fmt: skip
def test_what_happened_moves_these_numbers_and_no_others(
    process: t.Process, happening: t.Happening, expected: dict[str, float]
) -> None:
    metrics = metrics_of(process)
    metrics.listener(happening)
    moved = {
        name + ("{" + ",".join(f"{key}={value}" for key, value in labels) + "}" if labels else ""): value
        for (name, labels), value in scrape(metrics).values.items()
        if value and not isnan(value) and not name.endswith("_bucket")
    }
    assert moved == expected


def test_every_kind_of_happening_is_counted_or_listed_as_not_counted() -> None:
    layout = lay_out(DISPATCHER, 1)
    cells = memoryview(bytearray(layout.size * 8)).cast("d")
    counted = set(Counting(layout, cells, Roster(1), lambda: NOW).table())
    assert counted | NOT_COUNTED == set(t.KINDS)
    assert not counted & NOT_COUNTED


@pytest.mark.parametrize("process", t.Process)
@pytest.mark.parametrize("kind", sorted(NOT_COUNTED, key=_name), ids=_name)
def test_what_is_not_counted_moves_nothing(process: t.Process, kind: type[t.Happening]) -> None:
    example: dict[type[t.Happening], t.Happening] = {
        t.EventsAccepted: t.EventsAccepted(1, 2, 1),
        t.QuorumLost: t.QuorumLost("no standby confirms"),
        t.QuorumRegained: t.QuorumRegained(1.5),
        t.DeliveriesClaimed: t.DeliveriesClaimed(1, 1, 0.1),
        t.SendsFailedHere: t.SendsFailedHere(3, "billing", "Too many open files"),
        t.BreakerMoved: t.BreakerMoved("billing", BreakerState.OPEN, 1, 30.0),
        t.LaneHeld: t.LaneHeld("billing", 1),
        t.EndpointDisabled: t.EndpointDisabled("billing", "410 Gone"),
        t.LoopHeldUp: t.LoopHeldUp(t.Loop.REAPER, "away", 1),
        t.LoopCrashed: t.LoopCrashed(t.Loop.REAPER, ValueError(), 1),
        t.LoopStopped: t.LoopStopped(t.Loop.REAPER),
        t.DeliveryMetBug: t.DeliveryMetBug(UUID(int=1), "billing", ValueError()),
        t.ProcessStarted: t.ProcessStarted(process, ""),
        t.ProcessDraining: t.ProcessDraining(process),
        t.ProcessStopped: t.ProcessStopped(process),
    }
    metrics = metrics_of(process)
    metrics.listener(example[kind])
    assert {value for value in scrape(metrics).values.values() if not isnan(value)} == {0.0}


def test_a_process_leaves_alone_what_only_the_other_one_exports() -> None:
    metrics = metrics_of(GATEWAY)
    metrics.listener(t.LeasesReaped(1))
    metrics.listener(t.LoopStarted(t.Loop.REAPER))
    assert not any(scrape(metrics).values.values())


@pytest.mark.parametrize("process", t.Process)
def test_every_label_value_stands_at_zero_before_anything_happens(process: t.Process) -> None:
    start = scrape(metrics_of(process))
    for metric in names.exported_by(process):
        for closed in closed_series(metric):
            values = (*(["other"] if metric.has_consumer else []), *closed)
            labels = dict(zip((label.name for label in metric.labels), values, strict=True))
            name = metric.name + ("_count" if metric.kind is Kind.HISTOGRAM else "")
            value = start.value(name, **labels)
            assert isnan(value) if metric is names.QUEUE_AGE else value == 0.0
    assert start.value("dlq_inflow_total", consumer="", reason="no_route") == 0.0


def test_a_batch_of_attempts_is_counted_by_class_and_time() -> None:
    metrics = metrics_of(DISPATCHER)
    failed = attempt(delivery=None, send=3.0)._replace(outcome_class=OutcomeClass.RETRYABLE)
    metrics.listener(t.attempts_recorded([attempt(), attempt(), failed], 0.002))
    read = scrape(metrics)
    assert read.value("relay_delivery_attempts_total", outcome="success") == 2
    assert read.value("relay_delivery_attempts_total", outcome="retryable") == 1
    assert read.value("relay_send_seconds_count") == 3
    assert read.value("relay_send_seconds_sum") == pytest.approx(3.04)
    assert read.value("relay_delivery_seconds_count") == 2
    assert read.value("relay_delivery_seconds_sum") == pytest.approx(0.08)


@pytest.mark.parametrize(
    ("seconds", "smallest"),
    [(0.01, "0.01"), (0.010001, "0.025"), (0.0, "0.001"), (60.0, "60.0"), (60.1, "+Inf"), (inf, "+Inf")],
)
def test_a_time_lies_in_the_first_bucket_whose_bound_it_does_not_pass(seconds: float, smallest: str) -> None:
    metrics = metrics_of(DISPATCHER)
    metrics.listener(t.attempts_recorded([attempt(send=seconds)], 0.0))
    read = scrape(metrics)
    bounds = [*(str(bound) for bound in names.SEND.bounds), "+Inf"]
    holding = [bound for bound in bounds if read.value("relay_send_seconds_bucket", le=bound)]
    assert holding == bounds[bounds.index(smallest) :]


@pytest.mark.parametrize("seconds", [-0.5, nan])
def test_a_time_that_cannot_be_counts_as_none(seconds: float) -> None:
    metrics = metrics_of(DISPATCHER)
    metrics.listener(t.attempts_recorded([attempt(delivery=seconds)], 0.0))
    read = scrape(metrics)
    assert (read.value("relay_delivery_seconds_count"), read.value("relay_delivery_seconds_sum")) == (1, 0)
    assert read.value("relay_delivery_seconds_bucket", le="0.005") == 1


def test_a_consumer_has_its_dead_letter_series_from_its_first_attempt_on() -> None:
    metrics = metrics_of(DISPATCHER)
    metrics.listener(t.attempts_recorded([attempt("ledger")], 0.0))
    assert scrape(metrics).value("dlq_inflow_total", consumer="ledger", reason="exhausted") == 0


def test_a_consumer_that_is_introduced_stands_at_zero() -> None:
    metrics = metrics_of(DISPATCHER)
    metrics.introduce(["ledger", "billing"])
    read = scrape(metrics)
    assert read.value("relay_breaker_open", consumer="ledger") == 0
    assert read.value("dlq_depth", consumer="billing") == 0


def test_consumers_past_the_limit_are_one_series() -> None:
    metrics = metrics_of(DISPATCHER, consumers=1)
    metrics.introduce(["billing", "ledger"])
    metrics.listener(t.attempts_recorded([attempt("ledger"), attempt("audit")], 0.0))
    for consumer in ("billing", "ledger", "audit"):
        metrics.listener(t.DeadLettered(consumer, DeadReason.EXHAUSTED))
    metrics.listener(REPORT)
    read = scrape(metrics)
    assert read.value("dlq_inflow_total", consumer="billing", reason="exhausted") == 1
    assert read.value("dlq_inflow_total", consumer="other", reason="exhausted") == 2
    assert (read.value("dlq_depth", consumer="billing"), read.value("dlq_depth", consumer="other")) == (4, 3)
    assert read.value("relay_breaker_open", consumer="other") == 1
    assert not read.has("dlq_depth", consumer="ledger")


def test_series_of_two_tenants_with_one_name_are_summed() -> None:
    metrics = metrics_of(DISPATCHER)
    metrics.listener(_report(dead_by_consumer=(("billing", 4), ("billing", 2))))
    assert scrape(metrics).value("dlq_depth", consumer="billing") == 6


def test_a_report_replaces_the_one_before_it() -> None:
    metrics = metrics_of(DISPATCHER)
    metrics.listener(REPORT)
    metrics.listener(_report(dead_by_consumer=(("billing", 1),), open_breakers=(), unaccounted=2))
    read = scrape(metrics)
    assert (read.value("dlq_depth", consumer="billing"), read.value("dlq_depth", consumer="ledger")) == (1, 0)
    assert read.value("relay_breaker_open", consumer="ledger") == 0
    assert read.value("relay_unaccounted_deliveries") == 2


def test_an_empty_queue_has_no_age() -> None:
    metrics = metrics_of(DISPATCHER)
    metrics.listener(_report(oldest_pending_age=0.0))
    assert scrape(metrics).value("relay_queue_oldest_pending_age_seconds") == 0
    metrics.listener(_report(oldest_pending_age=nan))
    assert isnan(scrape(metrics).value("relay_queue_oldest_pending_age_seconds"))


def test_who_no_longer_reports_shows_no_rows_as_its_own() -> None:
    metrics = metrics_of(DISPATCHER)
    metrics.listener(REPORT)
    metrics.listener(h.ReportingEnded())
    read = scrape(metrics)
    assert read.value("relay_queue_depth", status="pending") == 0
    assert read.value("dlq_depth", consumer="billing") == 0
    assert isnan(read.value("relay_queue_oldest_pending_age_seconds"))


def test_a_loop_that_starts_again_without_a_success_stays_silent() -> None:
    times = iter([100.0, 200.0])
    metrics = Metrics(DISPATCHER, clock=lambda: next(times))
    metrics.listener(t.LoopStarted(t.Loop.PRUNER))
    metrics.listener(t.LoopStarted(t.Loop.PRUNER))
    name = "relay_loop_last_success_timestamp_seconds"
    assert scrape(metrics).value(name, loop="pruner") == 100
    metrics.listener(t.LoopSucceeded(t.Loop.PRUNER))
    assert scrape(metrics).value(name, loop="pruner") == 200


def _report(**changed: object) -> h.QueueMeasured:
    fields = {name: getattr(REPORT, name) for name in REPORT.__dataclass_fields__}
    make: Callable[..., h.QueueMeasured] = h.QueueMeasured
    return make(**(fields | changed))


def test_the_example_report_fills_every_reported_gauge() -> None:
    reported: set[Metric] = {metric for metric in names.TABLE if metric.merge is names.Merge.REPORT}
    metrics = metrics_of(DISPATCHER)
    metrics.listener(_report(unaccounted=9))
    moved = {name for (name, _), value in scrape(metrics).values.items() if value}
    assert moved == {metric.name for metric in reported}
