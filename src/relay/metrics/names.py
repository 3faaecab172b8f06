"""The one table of metrics: name, kind, meaning, labels with all their values, and who exports each.

Owns what exists. How a number is kept is `layout`'s, what moves it is `counting`'s. Invariant: every label
but `consumer` is closed, so every series is known, and stands at its start value, before anything has
happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import nan

from relay.domain.delivery import DeadReason, DeliveryStatus
from relay.domain.failure import FailureReason
from relay.domain.housekeeping import DayTable
from relay.domain.outcome import DeferralReason, HandBackReason, OutcomeClass
from relay.domain.receipt import ReceiptOutcome
from relay.domain.telemetry import Loop, Process, RejectReason

CONSUMER = "consumer"
OTHER = "other"
"""The consumer under whose name all those are summed for which no series of their own are left."""


class Kind(StrEnum):
    """What a metric is to Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(StrEnum):
    """How the worker processes of one instance make one number of theirs."""

    SUM = "sum"
    MAX = "max"
    LATEST = "latest"
    """The one that was set last."""
    REPORT = "report"
    """What the holder of the reporting lock says; nobody else in the whole installation says anything."""


@dataclass(frozen=True, slots=True)
class Label:
    """A label with its values; `values` is None for the one label that is not closed, the consumer's name."""

    name: str
    values: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `about` is its help text, a clause without a full stop.

    `bounds` are a histogram's upper bounds but for infinity. `extra` names series that exist beside those
    which `labels` make. `unreported` is a reported gauge's value where this instance has nothing to say.
    """

    name: str
    kind: Kind
    about: str
    processes: frozenset[Process]
    labels: tuple[Label, ...] = ()
    merge: Merge = Merge.SUM
    bounds: tuple[float, ...] = ()
    extra: tuple[tuple[str, ...], ...] = ()
    unreported: float = 0.0

    @property
    def has_consumer(self) -> bool:
        """Whether there is one set of series per consumer."""
        return bool(self.labels) and self.labels[0].values is None


_GATEWAY = frozenset({Process.GATEWAY})
_DISPATCHER = frozenset({Process.DISPATCHER})
_BOTH = _GATEWAY | _DISPATCHER

_COMMIT = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.175, 0.25, 0.5, 1.0)
"""Fine where it matters: the alerts stand at 30 and 50 ms, the default timeout at 250."""
_REQUEST = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SEND = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_DELIVERY = (
    *(0.005, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    *(60.0, 300.0, 900.0, 1800.0, 3600.0, 86_400.0),
)
"""From a healthy endpoint's milliseconds to the days of a patient retry policy."""
_WAIT = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)


def _closed(name: str, values: Iterable[str]) -> Label:
    return Label(name, tuple(str(value) for value in values))


def _per_consumer(*labels: Label) -> tuple[Label, ...]:
    return (Label(CONSUMER, None), *labels)


def _counter(name: str, processes: frozenset[Process], about: str, *labels: Label) -> Metric:
    return Metric(name, Kind.COUNTER, about, processes, labels)


def _gauge(name: str, processes: frozenset[Process], merge: Merge, about: str, *labels: Label) -> Metric:
    return Metric(name, Kind.GAUGE, about, processes, labels, merge)


def _report(name: str, about: str, *labels: Label) -> Metric:
    return _gauge(name, _DISPATCHER, Merge.REPORT, about, *labels)


def _seconds(name: str, processes: frozenset[Process], bounds: tuple[float, ...], about: str) -> Metric:
    return Metric(name, Kind.HISTOGRAM, about, processes, bounds=bounds)


GATEWAY_REJECTS = _counter(
    "gateway_rejects_total", _GATEWAY, "Requests refused before anything was stored", _closed("reason", RejectReason)
)
GATEWAY_FAILURES = _counter(
    "gateway_failures_total",
    _GATEWAY,
    "Events turned away for no fault of their sender's, by the code of the answer",
    _closed("reason", FailureReason),
)
GATEWAY_REQUEST = _seconds(
    "gateway_request_seconds", _GATEWAY, _REQUEST, "Ingest requests, from arrival to answer, whatever the answer"
)
JOURNAL_COMMIT = _seconds(
    "journal_commit_seconds", _GATEWAY, _COMMIT, "Events, from acceptance to the proof that the quorum has them"
)
JOURNAL_QUORUM_FAILURES = _counter(
    "journal_quorum_failures_total", _GATEWAY, "Appends that were not proved to be on the quorum in time"
)
JOURNAL_CANNOT_WRITE = _counter(
    "journal_cannot_write_total",
    _GATEWAY,
    "Appends that the database refused because it cannot write: its disk is full, or it is a standby",
)
JOURNAL_BATCH = _gauge("journal_batch_size", _GATEWAY, Merge.LATEST, "Events of the latest journal append")
IDEMPOTENT_REPLAYS = _counter(
    "idempotent_replays_total", _GATEWAY, "Requests answered with the stored answer of an earlier one"
)
JOURNAL_DURABILITY = _gauge(
    "journal_durability",
    _GATEWAY,
    Merge.LATEST,
    "Copies that a 202 waits for (confirmed), and copies that there are (of)",
    _closed("what", ("confirmed", "of")),
)

QUEUE_DEPTH = _report(
    "relay_queue_depth",
    "Deliveries in the database by status, without those that are done",
    _closed("status", (DeliveryStatus.PENDING, DeliveryStatus.IN_FLIGHT, DeliveryStatus.DEAD)),
)
QUEUE_AGE = Metric(
    "relay_queue_oldest_pending_age_seconds",
    Kind.GAUGE,
    "How late the earliest due delivery is; 0 when some are pending but none is due, NaN when none is pending",
    _DISPATCHER,
    merge=Merge.REPORT,
    unreported=nan,
)
ATTEMPTS = _counter(
    "relay_delivery_attempts_total",
    _DISPATCHER,
    "Attempts recorded, by outcome class",
    _closed("outcome", OutcomeClass),
)
DEFERRED = _counter(
    "relay_deliveries_deferred_total",
    _DISPATCHER,
    "Times that a gate made deliveries wait, by gate",
    _closed("reason", DeferralReason),
)
HANDED_BACK = _counter(
    "relay_deliveries_handed_back_total",
    _DISPATCHER,
    "Claimed deliveries that went back unsent, their attempts unspent, by reason",
    _closed("reason", HandBackReason),
)
DELIVERY = _seconds(
    "relay_delivery_seconds",
    _BOTH,
    _DELIVERY,
    "Deliveries, from the acceptance of the event to its ack; explicit acks count at the gateway",
)
SEND = _seconds("relay_send_seconds", _DISPATCHER, _SEND, "Attempts, from the hand-over to the network to their end")
IN_FLIGHT = _gauge("relay_in_flight", _DISPATCHER, Merge.SUM, "Requests under way")
GLOBAL_WAIT = _seconds(
    "relay_global_wait_seconds", _DISPATCHER, _WAIT, "Waits for room in a process's limit of requests in flight"
)
RETRIES = _counter("relay_retries_scheduled_total", _DISPATCHER, "Retries scheduled")
BREAKER_OPEN = _report("relay_breaker_open", "1 while the consumer's breaker is open or half-open", *_per_consumer())
LEASES_REAPED = _counter(
    "relay_leases_reaped_total", _DISPATCHER, "Deliveries taken back from workers whose lease had run out"
)
LEASES_EXPIRED = _report(
    "relay_leases_expired", "Deliveries in flight whose lease has run out and that no reaper has taken back yet"
)
LEASES_LOST = _counter(
    "relay_leases_lost_total", _DISPATCHER, "Outcomes that came after their lease was another's, and changed nothing"
)
DEFAULT_PARTITION = _report(
    "relay_attempt_default_partition_rows", "Attempts in the default partition, which is meant to be empty"
)
JOURNAL_DEFAULT_PARTITION = _report(
    "relay_journal_default_partition_rows",
    "Events in the default partition, which is meant to be empty: a gateway's clock may be days off",
)
PARTITIONS_AHEAD = _report(
    "relay_partitions_ahead",
    "Days to come that have their partition, without one missing: 14 are made, and made anew each minute",
    _closed("table", DayTable),
)
DAYS_DROPPED = _counter(
    "relay_partitions_dropped_total", _DISPATCHER, "Days that were dropped for their age", _closed("table", DayTable)
)
EVENTS_PRUNED = _counter(
    "relay_events_pruned_total", _DISPATCHER, "Events that went for their age, with their receipts and deliveries"
)
LOOP_HELD_UP = _counter(
    "relay_loop_held_up_total",
    _DISPATCHER,
    "Rounds of a loop that were skipped for others' locks or an absent database, and are tried again",
    _closed("loop", Loop),
)
LOOP_SUCCESS = _gauge(
    "relay_loop_last_success_timestamp_seconds",
    _DISPATCHER,
    Merge.MAX,
    "Unix time of the loop's last success, or of its first start before there was one; 0 if it does not run",
    _closed("loop", Loop),
)
CLOCK_SKEW = _gauge(
    "relay_clock_skew_seconds",
    _BOTH,
    Merge.LATEST,
    "By how much this machine's clock is ahead of the database's; negative where it is behind",
)
BROKER_MODE = _gauge(
    "relay_broker_mode", _DISPATCHER, Merge.LATEST, "1 while deliveries come through the broker, 0 while polling"
)
BROKER_EMPTIED = _counter(
    "relay_broker_emptied_total", _DISPATCHER, "Times that the broker had lost what it held, as this process found it"
)
BROKER_ENTRIES_DROPPED = _counter(
    "relay_broker_entries_dropped_total", _DISPATCHER, "Entries of the broker's stream that Relay could not read"
)
BROKER_STRANGERS = _counter(
    "relay_broker_strangers_total",
    _DISPATCHER,
    "Deliveries that the broker named and that are not in this database; looked at now and then",
)
UNACCOUNTED = _report("relay_unaccounted_deliveries", "Deliveries that the last verification could not account for")
DLQ_DEPTH = _report("dlq_depth", "Dead letters that wait for a person", *_per_consumer())
DLQ_INFLOW = Metric(
    "dlq_inflow_total",
    Kind.COUNTER,
    "Deliveries that became dead letters, by reason; no_route has no consumer",
    _BOTH,
    _per_consumer(_closed("reason", (reason for reason in DeadReason if reason is not DeadReason.NO_ROUTE))),
    extra=(("", DeadReason.NO_ROUTE.value),),
)
RECEIPTS_OPEN_AGE = _report(
    "receipts_open_age_seconds",
    "Age of the oldest open receipt with a delivery still owed inside its retry window or ack deadline, to an endpoint"
    " that is active",
    _closed("stat", ("max",)),
)
RECEIPTS_CLOSED = _counter(
    "receipts_closed_total", _BOTH, "Receipts closed, by how", _closed("outcome", ReceiptOutcome)
)
WORKERS_LOST = _counter(
    "relay_workers_lost_total", _BOTH, "Workers that ended without being told to, and were replaced"
)
RECEIPTS_REDRIVEN = _counter("receipts_redriven_total", _BOTH, "Receipts sent again, on demand or by the reconciler")
SPANS_DROPPED = _counter("relay_spans_dropped_total", _BOTH, "Spans that the collector did not take, or not in time")
LOG_LINES_DROPPED = _counter(
    "relay_log_lines_dropped_total",
    _BOTH,
    "Log lines that were not written, since whoever reads the log takes none, or its disk is full",
)

TABLE: tuple[Metric, ...] = (
    GATEWAY_REJECTS,
    GATEWAY_FAILURES,
    GATEWAY_REQUEST,
    JOURNAL_COMMIT,
    JOURNAL_QUORUM_FAILURES,
    JOURNAL_CANNOT_WRITE,
    JOURNAL_BATCH,
    JOURNAL_DURABILITY,
    IDEMPOTENT_REPLAYS,
    QUEUE_DEPTH,
    QUEUE_AGE,
    ATTEMPTS,
    DEFERRED,
    HANDED_BACK,
    DELIVERY,
    SEND,
    IN_FLIGHT,
    CLOCK_SKEW,
    GLOBAL_WAIT,
    RETRIES,
    BREAKER_OPEN,
    LEASES_REAPED,
    LEASES_EXPIRED,
    LEASES_LOST,
    DEFAULT_PARTITION,
    JOURNAL_DEFAULT_PARTITION,
    PARTITIONS_AHEAD,
    DAYS_DROPPED,
    EVENTS_PRUNED,
    LOOP_HELD_UP,
    LOOP_SUCCESS,
    BROKER_MODE,
    BROKER_EMPTIED,
    BROKER_ENTRIES_DROPPED,
    BROKER_STRANGERS,
    UNACCOUNTED,
    DLQ_DEPTH,
    DLQ_INFLOW,
    RECEIPTS_OPEN_AGE,
    RECEIPTS_CLOSED,
    RECEIPTS_REDRIVEN,
    WORKERS_LOST,
    LOG_LINES_DROPPED,
    SPANS_DROPPED,
)
"""All of them, in the order of the documentation."""


def exported_by(process: Process) -> tuple[Metric, ...]:
    """The metrics that a process of this kind exports."""
    return tuple(metric for metric in TABLE if process in metric.processes)


def reference() -> str:
    """The metrics as Markdown tables, one for each process, for `docs/metrics.md`."""
    return "\n".join(line for process in Process for line in _section(process)).strip() + "\n"


def _section(process: Process) -> list[str]:
    head = ["", f"### {process.value.capitalize()}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
    return head + [
        f"| `{metric.name}` | {metric.kind} | {_labels(metric)} | {metric.about}. |" for metric in exported_by(process)
    ]


def _labels(metric: Metric) -> str:
    return "; ".join(
        f"`{label.name}`" + ("" if label.values is None else ": " + ", ".join(f"`{value}`" for value in label.values))
        for label in metric.labels
    )
