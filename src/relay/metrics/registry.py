"""A process's metrics, put together: cells, roster, the listener that feeds them and the text that shows
them.

Owns the life of these parts. Several workers behind one port give one truth if they share a folder, each
with a slot of its own: any of them, and their parent, can show the numbers of all. Invariant: two workers of
one instance have the same process, folder and number of consumers.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path

from relay.domain.telemetry import Listener, Process
from relay.metrics.counting import Counting, put_out
from relay.metrics.exposition import Instance, render
from relay.metrics.layout import Layout, lay_out
from relay.metrics.names import WORKERS_LOST
from relay.metrics.roster import Roster
from relay.metrics.slots import Cells, Slot, is_kept, read_all


class Metrics:
    """One worker's metrics. Without a slot it stands for itself alone.

    `consumers` is how many of them get series of their own; `clock` gives Unix time in seconds. The listener
    and `introduce` belong to one thread; `exposition` may be called from any, and takes some milliseconds
    per thousand consumers, so a loop with other work should hand it to a thread. Raises `OSError` if the
    slot's folder is not there (see `prepare`) or its disk is full.
    """

    def __init__(
        self,
        process: Process,
        *,
        slot: Slot | None = None,
        consumers: int = 1000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._layout = lay_out(process, consumers)
        self._folder = None if slot is None else slot.folder
        self._cells = Cells(self._layout, slot)
        self._roster = Roster(consumers, self._folder)
        self._counting = Counting(self._layout, self._cells.values, self._roster, clock)

    @property
    def listener(self) -> Listener:
        """What turns happenings into numbers."""
        return self._counting

    def introduce(self, consumers: Iterable[str]) -> None:
        """Give consumers their series, at zero, before anything happens to them."""
        self._counting.introduce(consumers)

    def exposition(self, accept: str = "") -> tuple[str, bytes]:
        """The content type and the text of all numbers of the instance, in the format that the `Accept`
        header asks for: Prometheus text 0.0.4 unless it names OpenMetrics."""
        if self._folder is not None:
            return _expose(self._layout, self._folder, accept)
        workers = [array("d", self._cells.values)]
        return render(Instance(self._layout, workers, list(self._roster.numbers)), accept)

    def close(self) -> None:
        """Let go of the slot. What was counted stays for the others and for a successor; what happens from now on is
        not counted."""
        self._counting.stop()
        self._cells.close()


def expose(process: Process, folder: Path, *, consumers: int = 1000, accept: str = "") -> tuple[str, bytes]:
    """The same text for one who holds no slot: the parent of the workers that count into the folder."""
    return _expose(lay_out(process, consumers), folder, accept)


def bury(process: Process, slot: Slot, *, consumers: int = 1000) -> None:
    """Count the slot's worker as lost, and put out what it had in hand or reported: for its parent, before a
    successor starts. What it counted stays. Raises `OSError`."""
    layout = lay_out(process, consumers)
    if is_kept(layout, slot):
        cells = Cells(layout, slot)
        put_out(layout, cells.values)
        cells.values[layout.cell(WORKERS_LOST)] += 1
        cells.close()


def _expose(layout: Layout, folder: Path, accept: str) -> tuple[str, bytes]:
    """The roster is read first: whoever is in it has had cells before, and zero is a number too."""
    roster = Roster(layout.consumers, folder)
    workers = list(read_all(folder, layout)) or [array("d", bytes(8 * layout.size))]
    return render(Instance(layout, workers, list(roster.numbers)), accept)
