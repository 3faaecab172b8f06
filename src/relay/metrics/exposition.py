"""From the workers' numbers to what Prometheus reads: merged into one truth per instance, in either text
format.

Owns the merging; the formats and the choice between them are prometheus_client's. Invariant: whichever
worker is asked, and however often, the answer is about all of them, and no counter in it ever goes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from relay.metrics.layout import Labels, Layout, closed_series
from relay.metrics.names import OTHER, Kind, Merge, Metric, exported_by

Numbers = Sequence[float]
"""One worker's cells."""


class Instance(Collector):
    """The numbers of all workers of one instance at one moment (at least one), and the consumers in the
    order of their numbers."""

    def __init__(self, layout: Layout, workers: Sequence[Numbers], consumers: Sequence[str]) -> None:
        self._layout = layout
        self._workers = workers
        self._consumers = consumers
        self._sums: list[float] = [sum(cells) for cells in zip(*workers, strict=True)]
        self._reporter = max(workers, key=lambda worker: worker[layout.reported_at])

    def collect(self) -> Iterator[Family]:
        """Every metric of the process, with every series it has."""
        for metric in exported_by(self._layout.process):
            if metric.kind is Kind.HISTOGRAM:
                yield self._histogram(metric)
            else:
                family = _family(metric)
                for labels, cell in self._series(metric):
                    family.add_metric(labels, self._merged(metric, cell))
                yield family

    def _series(self, metric: Metric) -> Iterator[tuple[Labels, int]]:
        """The label values of every series with its first cell."""
        for labels in () if metric.has_consumer else closed_series(metric):
            yield labels, self._layout.cell(metric, labels)
        for labels in metric.extra:
            yield labels, self._layout.cell(metric, labels)
        if metric.has_consumer:
            places = [(labels, self._layout.in_row(metric, labels)) for labels in closed_series(metric)]
            for number, consumer in (*enumerate(self._consumers), (self._layout.other, OTHER)):
                row = self._layout.row(number)
                for labels, place in places:
                    yield (consumer, *labels), row + place

    def _histogram(self, metric: Metric) -> Family:
        family = HistogramMetricFamily(metric.name, metric.about, labels=[label.name for label in metric.labels])
        for labels, cell in self._series(metric):
            counts = accumulate(self._sums[cell : cell + len(metric.bounds) + 1])
            bounds = (*(str(bound) for bound in metric.bounds), "+Inf")
            family.add_metric(labels, list(zip(bounds, counts, strict=True)), self._sums[cell + len(bounds)])
        return family

    def _merged(self, metric: Metric, cell: int) -> float:
        match metric.merge:
            case Merge.SUM:
                return self._sums[cell]
            case Merge.MAX:
                return max(worker[cell] for worker in self._workers)
            case Merge.LATEST:
                return max(self._workers, key=lambda worker: worker[cell + 1])[cell]
            case Merge.REPORT:
                return self._reporter[cell] if self._reporter[self._layout.reported_at] else metric.unreported


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    labels = [label.name for label in metric.labels]
    made = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    return made(metric.name, metric.about, labels=labels)


def render(instance: Instance, accept: str) -> tuple[str, bytes]:
    """The content type and the text, in the format that the `Accept` header asks for."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(instance)
    encode, content_type = choose_encoder(accept)
    return content_type, encode(registry)
