"""Claims about ``docs/metrics.md``: it says what the table of metrics says, of every metric."""

import re

from relay.metrics.names import TABLE
from tests.docs.generated import COMMAND, METRICS


def test_the_reference_of_metrics_is_what_the_table_gives() -> None:
    assert METRICS.written() == METRICS.make(), f"docs/metrics.md is out of date: run `{COMMAND}`"


def test_every_metric_is_documented_where_it_is_exported() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", METRICS.written(), re.MULTILINE)
    assert sorted(documented) == sorted(metric.name for metric in TABLE for _ in metric.processes)


def test_a_metric_that_the_page_speaks_of_exists() -> None:
    spoken_of = re.findall(r"\b(?:relay|gateway|journal|dlq|receipts)_[a-z_]+", METRICS.page.read_text())
    known = {metric.name for metric in TABLE} | {f"{metric.name}_bucket" for metric in TABLE}
    values = {value for metric in TABLE for label in metric.labels for value in label.values or ()}
    assert set(spoken_of) <= known | values
