"""A worker process of its own, for the tests that kill one: counts into a slot, then does as it is told.

Arguments: folder, slot, how many leases to count as reaped, and ``die`` or ``leave``.
"""

import os
import signal
import sys
from pathlib import Path

from relay.domain.delivery import DeadReason
from relay.domain.telemetry import DeadLettered, InFlightChanged, LeasesReaped, Process
from relay.metrics import Metrics, Slot


def main(folder: str, slot: str, count: str, end: str) -> None:
    """Count one by one, with a consumer of each worker's own and one that all share."""
    metrics = Metrics(Process.DISPATCHER, slot=Slot(Path(folder), int(slot)))
    metrics.listener(InFlightChanged(7))
    for _ in range(int(count)):
        metrics.listener(LeasesReaped(1))
        metrics.listener(DeadLettered(f"worker-{slot}", DeadReason.EXHAUSTED))
        metrics.listener(DeadLettered("shared", DeadReason.EXHAUSTED))
    if end == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    metrics.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
