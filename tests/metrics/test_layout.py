"""Claims about the addresses of numbers."""

import pytest

from relay.domain.telemetry import Process
from relay.metrics.layout import Layout, cells_of, closed_series, lay_out
from relay.metrics.names import exported_by

each_process = pytest.mark.parametrize("process", Process)


def taken(layout: Layout) -> list[int]:
    """Every cell that a series or the report's time takes, once per taking."""
    cells = [layout.reported_at]
    for metric in exported_by(layout.process):
        fixed = [] if metric.has_consumer else list(closed_series(metric))
        for labels in [*fixed, *metric.extra]:
            cells += [layout.cell(metric, labels) + place for place in range(cells_of(metric))]
        for labels in closed_series(metric) if metric.has_consumer else ():
            for number in range(layout.consumers + 1):
                cells.append(layout.row(number) + layout.in_row(metric, labels))
    return cells


@each_process
@pytest.mark.parametrize("consumers", [1, 3])
def test_every_cell_belongs_to_exactly_one_number(process: Process, consumers: int) -> None:
    layout = lay_out(process, consumers)
    assert sorted(taken(layout)) == list(range(layout.size))


@each_process
def test_two_workers_of_one_instance_agree_on_every_address(process: Process) -> None:
    assert lay_out(process, 5).fingerprint == lay_out(process, 5).fingerprint


def test_a_layout_that_differs_is_recognised() -> None:
    prints = {lay_out(process, consumers).fingerprint for process in Process for consumers in (5, 6)}
    assert len(prints) == 4
