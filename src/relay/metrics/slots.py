"""The memory behind the numbers: one file of doubles per worker slot, mapped by whoever holds the slot.

Owns the files. A counter lives in its file and not in its process, so a worker killed at any moment loses
nothing, and its successor in the slot counts on. A write is one aligned double, which no reader sees half
done. Invariant: a folder holds one file per slot and one roster, however often workers come and go.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relay.metrics import roster
from relay.metrics.layout import CELL_BYTES, Layout

HEADER_BYTES = 32
_PATTERN = "slot-*.cells"


@dataclass(frozen=True, slots=True)
class Slot:
    """A worker's place among those of its instance: a folder that they share, and a number that no other
    worker has at the same time and that a successor takes over."""

    folder: Path
    number: int

    @property
    def path(self) -> Path:
        """The slot's file."""
        return self.folder / f"slot-{self.number}.cells"


def prepare(folder: Path) -> None:
    """Make the folder, or clear what an earlier instance left in it. For the parent, before any worker
    starts."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (*folder.glob(_PATTERN), folder / roster.FILE):
        path.unlink(missing_ok=True)


class Cells:
    """A worker's own numbers. Without a slot they live in the process. Not for several threads at once."""

    def __init__(self, layout: Layout, slot: Slot | None = None) -> None:
        self._map = None if slot is None else _map(layout, slot)
        memory = memoryview(bytearray(layout.size * CELL_BYTES) if self._map is None else self._map)
        self._bytes = memory if self._map is None else memory[HEADER_BYTES:]
        self.values = self._bytes.cast("d")

    def close(self) -> None:
        """Let go of the file; what was counted stays in it. The cells cannot be used any more."""
        self.values.release()
        self._bytes.release()
        if self._map is not None:
            self._map.close()


def _map(layout: Layout, slot: Slot) -> mmap.mmap:
    """Map the slot's file. Unless it has this layout it is made anew, written out in full: a full disk is an
    error now, not a signal that kills the worker when it first touches some later page."""
    size = HEADER_BYTES + layout.size * CELL_BYTES
    if not _fits(slot.path, layout):
        slot.path.write_bytes(layout.fingerprint + bytes(size - HEADER_BYTES))
    with slot.path.open("r+b") as file:
        return mmap.mmap(file.fileno(), size)


def _fits(path: Path, layout: Layout) -> bool:
    if not path.exists() or path.stat().st_size != HEADER_BYTES + layout.size * CELL_BYTES:
        return False
    with path.open("rb") as file:
        return file.read(HEADER_BYTES) == layout.fingerprint


def is_kept(layout: Layout, slot: Slot) -> bool:
    """Whether the slot has a file of this layout."""
    return _fits(slot.path, layout)


def read_all(folder: Path, layout: Layout) -> Iterator[array[float]]:
    """The numbers of every slot of the folder. A file of another layout belongs to nobody any more."""
    for path in sorted(folder.glob(_PATTERN)):
        if _fits(path, layout):
            yield array("d", path.read_bytes()[HEADER_BYTES:])
