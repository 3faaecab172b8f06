"""Where each number stands: a fixed row of doubles for one process, the same in all of its workers.

Owns the addresses. Since labels are closed, every series has its cells before anything happens; consumers,
the one open label, have a stretch of equal rows behind them, one per consumer in the order of the `Roster`,
and one more for `other`. Invariant: the addresses follow from the table of names, the process and the number
of consumer rows alone, and `fingerprint` changes whenever they could.

A counter and a gauge take one cell; a gauge of which the latest counts takes two, the second for the time at
which it was set; a histogram takes one per bound, one for what is beyond, and one for the sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product

from relay.domain.telemetry import Process
from relay.metrics.names import Kind, Merge, Metric, exported_by

Labels = tuple[str, ...]

CELL_BYTES = 8


def cells_of(metric: Metric) -> int:
    """How many cells one series of the metric takes."""
    if metric.kind is Kind.HISTOGRAM:
        return len(metric.bounds) + 2
    return 2 if metric.merge is Merge.LATEST else 1


def closed_series(metric: Metric) -> Iterator[Labels]:
    """The label values of all series that the closed labels make; without the consumer's where it has one."""
    closed = metric.labels[1:] if metric.has_consumer else metric.labels
    yield from product(*(label.values or () for label in closed))


@dataclass(frozen=True, slots=True)
class Layout:
    """The addresses of one process's series. `consumers` is how many consumers have rows of their own.

    `reported_at` holds the time of the latest report of the queue, 0 where this worker reports nothing.
    """

    process: Process
    consumers: int
    reported_at: int
    rows_at: int
    row_cells: int
    _series: dict[tuple[str, Labels], int] = field(repr=False)
    _in_row: dict[tuple[str, Labels], int] = field(repr=False)

    def cell(self, metric: Metric, labels: Labels = ()) -> int:
        """The first cell of a series that has no consumer, or is one of the metric's `extra`."""
        return self._series[metric.name, labels]

    def in_row(self, metric: Metric, labels: Labels = ()) -> int:
        """The cell's place in each consumer's row; `labels` are without the consumer."""
        return self._in_row[metric.name, labels]

    def row(self, consumer: int) -> int:
        """Where a consumer's row begins, by its number in the roster; the last number is `other`."""
        return self.rows_at + consumer * self.row_cells

    @property
    def other(self) -> int:
        """The number of the row that all consumers without one share."""
        return self.consumers

    @property
    def size(self) -> int:
        """How many cells there are."""
        return self.row(self.consumers + 1)

    @property
    def fingerprint(self) -> bytes:
        """32 bytes that are the same for two layouts whose addresses are."""
        addresses = (self.process.value, self.consumers, self.rows_at, self.row_cells, self._series, self._in_row)
        return sha256(repr(addresses).encode()).digest()


def lay_out(process: Process, consumers: int) -> Layout:
    """The layout of a process in which so many consumers have series of their own."""
    series: dict[tuple[str, Labels], int] = {}
    in_row: dict[tuple[str, Labels], int] = {}
    reported_at, at, row_at = 0, 1, 0
    for metric in exported_by(process):
        for labels in () if metric.has_consumer else closed_series(metric):
            series[metric.name, labels] = at
            at += cells_of(metric)
        for labels in metric.extra:
            series[metric.name, labels] = at
            at += cells_of(metric)
        for labels in closed_series(metric) if metric.has_consumer else ():
            in_row[metric.name, labels] = row_at
            row_at += cells_of(metric)
    return Layout(process, consumers, reported_at, at, row_at, series, in_row)
