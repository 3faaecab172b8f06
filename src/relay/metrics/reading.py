"""From what a process serves at `/metrics` back to numbers, for whoever looks without a Prometheus.

Owns the reading, and what two readings say together. The format is prometheus_client's. Invariant: a counter that
begins anew, since its process did, counts from zero and never takes anything away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan

from prometheus_client.parser import text_string_to_metric_families

from relay.metrics.names import Kind, Metric

LabelValues = tuple[str, ...]
Series = Mapping[LabelValues, float]


class NotMetrics(ValueError):
    """The text is none of the format."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of one process at a moment: each sample's series by the values of its labels, in their order."""

    samples: Mapping[str, Series]

    def of(self, metric: Metric) -> Series:
        """The series of a counter or a gauge, or how many there were of each of a histogram's; empty if it has none."""
        name = f"{metric.name}_count" if metric.kind is Kind.HISTOGRAM else metric.name
        return self.samples.get(name, {})

    def buckets(self, metric: Metric) -> Series:
        """A histogram's cumulated counts by their upper bounds."""
        return self.samples.get(f"{metric.name}_bucket", {})


def read(text: str) -> Reading:
    """The numbers of a whole text. Raises `NotMetrics`."""
    samples: defaultdict[str, dict[LabelValues, float]] = defaultdict(dict)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples[sample.name][tuple(sample.labels.values())] = float(sample.value)
    except (ValueError, IndexError, KeyError) as fault:
        raise NotMetrics(str(fault)) from fault
    return Reading(samples)


def grown(before: Series, after: Series) -> dict[LabelValues, float]:
    """By how much each counter grew from one reading to the next; one that is new counts whole."""
    grew = {}
    for labels, value in after.items():
        was = before.get(labels, 0.0)
        grew[labels] = value - was if value >= was else value
    return grew


def quantile(share: float, counts: Sequence[tuple[float, float]]) -> float | None:
    """The value below which that share of what was counted lies, as `histogram_quantile` reckons it.

    `counts` are cumulated, by rising upper bounds, the last of them infinite. None where nothing was counted; infinite
    where it lies above the last finite bound.
    """
    whole = counts[-1][1] if counts else 0.0
    if not whole or isnan(whole):
        return None
    rank, low, below = share * whole, 0.0, 0.0
    for bound, count in counts:
        if count >= rank:
            if bound == inf:
                return inf
            return low + (bound - low) * (rank - below) / (count - below) if count > below else bound
        low, below = bound, count
    return inf
