"""A worker process of its own, for the tests that kill one: counts into a slot, then does as it is told.

Arguments: folder, slot, how many leases to count as reaped, and ``die`` or ``leave``; with a number as a fifth, that
many workers come after each other, and this process is their parent.
"""

import os
import signal
import sys
from pathlib import Path

from relay.domain.delivery import DeadReason
from relay.domain.telemetry import DeadLettered, InFlightChanged, LeasesReaped, Process
from relay.metrics import Metrics, Slot


def main(folder: str, slot: str, count: str, end: str, times: str = "") -> None:
    """Be a worker, or the parent of many."""
    if not times:
        work(folder, slot, count, end)
        return
    for _ in range(int(times)):
        child = os.fork()
        if child == 0:
            work(folder, slot, count, end)
            os._exit(0)
        os.waitpid(child, 0)


def work(folder: str, slot: str, count: str, end: str) -> None:
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
