"""A worker's numbers.

Owns opening the slot and closing it. Invariant: a worker that cannot keep its numbers does not start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from relay.app.faults import CannotRun
from relay.app.work import Work
from relay.domain.telemetry import Process
from relay.metrics import Metrics


@contextmanager
def numbers_of(process: Process, work: Work) -> Iterator[Metrics]:
    """The metrics of this worker, in the slot that it was given. Raises `CannotRun` on entering."""
    try:
        metrics = Metrics(process, slot=work.slot, consumers=work.settings.metric_consumers)
    except OSError as fault:
        raise CannotRun(f"the metrics cannot be kept: {fault}; make room in the folder for temporary files") from fault
    try:
        yield metrics
    finally:
        metrics.close()
