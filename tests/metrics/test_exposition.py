"""Claims about the text that Prometheus reads."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from relay.domain import telemetry as t
from relay.domain.delivery import DeadReason
from relay.metrics import Metrics
from relay.metrics.names import Kind, exported_by
from tests.metrics.reading import scrape


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", "application/json", "text/plain;version=0.0.4;q=0.2"])
def test_the_plain_format_is_given_unless_another_is_asked_for(accept: str) -> None:
    content_type, text = Metrics(t.Process.GATEWAY).exposition(accept)
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert text.endswith(b"\n")


@pytest.mark.parametrize("process", t.Process)
def test_open_metrics_is_given_to_who_asks_for_it(process: t.Process) -> None:
    content_type, text = Metrics(process).exposition("application/openmetrics-text; version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert text.endswith(b"# EOF\n")
    read = text_string_to_metric_families(text.decode())  # type: ignore[no-untyped-call]  # the library has no types
    families = {family.name: family.type for family in read}
    assert families == {metric.name.removesuffix("_total"): metric.kind.value for metric in exported_by(process)}


@pytest.mark.parametrize("process", t.Process)
def test_every_metric_has_its_help_and_its_kind_once(process: t.Process) -> None:
    text = Metrics(process).exposition()[1].decode()
    for metric in exported_by(process):
        assert text.count(f"# HELP {metric.name} {metric.about}\n") == 1
        assert text.count(f"# TYPE {metric.name} {metric.kind.value}\n") == 1


def test_buckets_add_up_and_the_last_one_is_the_count() -> None:
    metrics = Metrics(t.Process.GATEWAY)
    metrics.listener(t.AppendCommitted(4, 4, (0.0015, 0.004, 0.04, 5.0)))
    read = scrape(metrics)
    (metric,) = [metric for metric in exported_by(t.Process.GATEWAY) if metric.name == "journal_commit_seconds"]
    bounds = [*(str(bound) for bound in metric.bounds), "+Inf"]
    counts = [read.value("journal_commit_seconds_bucket", le=bound) for bound in bounds]
    assert metric.kind is Kind.HISTOGRAM
    assert counts == sorted(counts)
    assert counts[-1] == read.value("journal_commit_seconds_count") == 4


@settings(max_examples=25)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_whatever_consumers_are_called_the_text_can_be_read(consumers: list[str]) -> None:
    metrics = Metrics(t.Process.DISPATCHER)
    for consumer in consumers:
        metrics.listener(t.DeadLettered(consumer, DeadReason.REFUSED))
    read = scrape(metrics)
    for consumer in set(consumers) - {"other"}:
        assert read.value("dlq_inflow_total", consumer=consumer, reason="refused") == consumers.count(consumer)
