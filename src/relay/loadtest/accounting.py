"""What processes cost: processor time by process tree, read from /proc.

Owns the arithmetic of before and after. Works on Linux, where `make bench` runs. Invariant: a tree's time includes
children that have ended, as long as the tree's root has not.
"""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def tree_seconds(root: int) -> float:
    """User and system seconds of a process and all its descendants, ended ones included."""
    parents = dict(_parents())
    members = {root}
    grown = True
    while grown:
        found = {pid for pid, parent in parents.items() if parent in members} - members
        members |= found
        grown = bool(found)
    return sum(_seconds(pid) for pid in members)


def _parents() -> list[tuple[int, int]]:
    pairs = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            fields = _fields(int(entry.name))
            if fields:
                pairs.append((int(entry.name), int(fields[1])))
    return pairs


def _seconds(pid: int) -> float:
    fields = _fields(pid)
    # utime, stime, and those of children that were waited for
    return sum(int(ticks) for ticks in fields[11:15]) / _TICKS if fields else 0.0


def _fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, the state first; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
