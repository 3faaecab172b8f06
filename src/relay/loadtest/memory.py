"""How much memory process trees take, read from /proc, and whether it grows.

Owns the arithmetic. Memory that processes share is counted once, in parts (PSS): workers that were forked share much of
theirs. Works on Linux. Invariant: a process that has ended counts as nothing, and stops no measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relay.loadtest.accounting import tree

WARM_SHARE = 0.25
"""The first part of a run fills caches and pools: growth is looked for behind it."""


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB of a process tree: before the load, in the middle and at the end of it, at most, and by how much it grew per
    minute behind the first quarter. `samples` are pairs of seconds since the first post and MiB."""

    start: float
    middle: float
    end: float
    most: float
    slope_per_minute: float
    samples: tuple[tuple[float, float], ...]


def tree_mib(root: int) -> float:
    """What a process and all its descendants take together, in MiB."""
    return round(sum(_kib(pid) for pid in tree(root)) / 1024, 2)


def judged(samples: Sequence[tuple[float, float]]) -> Memory:
    """What samples say, the first of them taken before the load. Raises `ValueError` without any."""
    if not samples:
        raise ValueError("memory was never looked at")
    sizes = [mib for _, mib in samples]
    warm = samples[round(len(samples) * WARM_SHARE) :]
    return Memory(sizes[0], sizes[len(sizes) // 2], sizes[-1], max(sizes), round(60 * slope(warm), 3), tuple(samples))


def slope(points: Sequence[tuple[float, float]]) -> float:
    """How much is added per unit, by least squares; 0 for fewer than two points that differ."""
    number = len(points)
    if number < 2:
        return 0.0
    middle_x = sum(x for x, _ in points) / number
    middle_y = sum(y for _, y in points) / number
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0


def _kib(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
