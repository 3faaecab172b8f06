"""Claims about the table of metrics: the names that dashboards and alerts rely on, and the rules they follow."""

import pytest

from relay.domain.telemetry import Process
from relay.metrics import names
from relay.metrics.names import Kind, Metric

GATEWAY = {
    "gateway_rejects_total{reason}",
    "gateway_failures_total{reason}",
    "gateway_request_seconds",
    "journal_commit_seconds",
    "journal_quorum_failures_total",
    "journal_cannot_write_total",
    "journal_batch_size",
    "journal_durability{what}",
    "idempotent_replays_total",
}
DISPATCHER = {
    "relay_queue_depth{status}",
    "relay_queue_oldest_pending_age_seconds",
    "relay_delivery_attempts_total{outcome}",
    "relay_deliveries_deferred_total{reason}",
    "relay_deliveries_handed_back_total{reason}",
    "relay_send_seconds",
    "relay_in_flight",
    "relay_global_wait_seconds",
    "relay_retries_scheduled_total",
    "relay_breaker_open{consumer}",
    "relay_leases_reaped_total",
    "relay_leases_lost_total",
    "relay_attempt_default_partition_rows",
    "relay_journal_default_partition_rows",
    "relay_leases_expired",
    "relay_partitions_ahead{table}",
    "relay_partitions_dropped_total{table}",
    "relay_events_pruned_total",
    "relay_loop_held_up_total{loop}",
    "relay_loop_last_success_timestamp_seconds{loop}",
    "relay_broker_mode",
    "relay_broker_emptied_total",
    "relay_broker_entries_dropped_total",
    "relay_broker_strangers_total",
    "relay_unaccounted_deliveries",
    "dlq_depth{consumer}",
    "receipts_open_age_seconds{stat}",
}
BOTH = {
    "relay_clock_skew_seconds",
    "relay_workers_lost_total",
    "relay_delivery_seconds",
    "dlq_inflow_total{consumer,reason}",
    "receipts_closed_total{outcome}",
    "receipts_redriven_total",
    "relay_log_lines_dropped_total",
    "relay_spans_dropped_total",
}

each_metric = pytest.mark.parametrize("metric", names.TABLE, ids=lambda metric: metric.name)


def signature(metric: Metric) -> str:
    """The name with its label names, as alert rules use them."""
    return metric.name + ("{" + ",".join(label.name for label in metric.labels) + "}" if metric.labels else "")


def test_the_gateway_exports_what_its_dashboards_rely_on() -> None:
    assert {signature(metric) for metric in names.exported_by(Process.GATEWAY)} == GATEWAY | BOTH


def test_the_dispatcher_exports_what_its_dashboards_rely_on() -> None:
    assert {signature(metric) for metric in names.exported_by(Process.DISPATCHER)} == DISPATCHER | BOTH


def test_no_name_is_taken_twice() -> None:
    assert len({metric.name for metric in names.TABLE}) == len(names.TABLE)


@each_metric
def test_a_name_tells_the_kind(metric: Metric) -> None:
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert (metric.kind is Kind.HISTOGRAM) == bool(metric.bounds)
    if metric.kind is Kind.HISTOGRAM:
        assert metric.name.endswith("_seconds")


@each_metric
def test_bounds_rise(metric: Metric) -> None:
    assert list(metric.bounds) == sorted(set(metric.bounds))


@each_metric
def test_only_the_consumer_is_an_open_label(metric: Metric) -> None:
    assert [label.name for label in metric.labels if label.values is None] == (
        ["consumer"] if metric.has_consumer else []
    )


@each_metric
def test_a_metric_is_explained_in_a_clause(metric: Metric) -> None:
    assert len(metric.about) > 15
    assert not metric.about.endswith(".")


@pytest.mark.parametrize(
    ("metric", "values"),
    [
        (names.GATEWAY_REJECTS, "credential signature scope size content_type malformed schema idempotency loop"),
        (names.GATEWAY_FAILURES, "internal journal_quorum database_unavailable overloaded draining"),
        (names.ATTEMPTS, "success retryable permanent deferred"),
        (names.DEFERRED, "breaker rate_limit endpoint_concurrency retry_after paused"),
        (names.QUEUE_DEPTH, "pending in_flight dead"),
        (names.RECEIPTS_CLOSED, "delivered delivered_after_redrive closed_incomplete expired"),
        (names.JOURNAL_DURABILITY, "confirmed of"),
        (names.RECEIPTS_OPEN_AGE, "max"),
        (names.DLQ_INFLOW, "exhausted permanent_failure refused too_large endpoint_removed"),
    ],
    ids=lambda value: value.name if isinstance(value, Metric) else "",
)
def test_a_closed_label_has_the_values_that_the_database_has(metric: Metric, values: str) -> None:
    assert metric.labels[-1].values == tuple(values.split())
