"""What a measurement costs: processor time by process tree, read from /proc, and what the server wrote meanwhile.

Owns the arithmetic of before and after. Works on Linux, where `make bench` runs. Invariant: a tree's time includes
children that have ended, as long as the tree's root has not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relay.store.health import Log

_TICKS = os.sysconf("SC_CLK_TCK")

POSTGRES = "postgres"
MACHINE = "machine"
"""The party that stands for everything that runs here, the kernel's own work included."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds on the clock, seconds of processor time by party, bytes of log and transactions that wrote."""

    seconds: float
    cpu: Mapping[str, float]
    log: Log

    def since(self, before: Spent) -> Spent:
        """What was spent since then."""
        return Spent(
            self.seconds - before.seconds,
            {party: seconds - before.cpu[party] for party, seconds in self.cpu.items()},
            Log(self.log.bytes - before.log.bytes, self.log.transactions - before.log.transactions),
        )

    def each(self, number: int) -> Cost:
        """What one of so many cost."""
        return Cost(
            {party: round(seconds / number * 1e6, 1) for party, seconds in self.cpu.items()},
            round(self.log.bytes / number, 1),
            round(self.log.transactions / number, 4),
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one delivery: processor µs by party, bytes of PostgreSQL's log, and commits of what wrote something."""

    us: Mapping[str, float]
    wal_bytes: float
    commits: float


def machine_seconds() -> float:
    """Seconds that this machine's cores have worked for anybody since it started."""
    user, nice, system, _idle, _waiting, irq, softirq, *_ = _machine_ticks()
    return (user + nice + system + irq + softirq) / _TICKS


def _machine_ticks() -> list[int]:
    """The first line of /proc/stat, all cores together."""
    return [int(ticks) for ticks in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]


def tree_seconds(root: int) -> float:
    """User and system seconds of a process and all its descendants, ended ones included."""
    return sum(_seconds(pid) for pid in tree(root))


def tree(root: int) -> set[int]:
    """A process and all its descendants that there are now."""
    parents = dict(_parents())
    members = {root}
    grown = True
    while grown:
        found = {pid for pid, parent in parents.items() if parent in members} - members
        members |= found
        grown = bool(found)
    return members


def child_seconds(*arguments: str) -> float | None:
    """The same of the children of this process that were started with these arguments in a row; None without one."""
    wanted = b"\0" + b"\0".join(each.encode() for each in arguments) + b"\0"
    ours = os.getpid()
    found = [pid for pid, parent in _parents() if parent == ours and wanted in _command_line(pid)]
    return sum(tree_seconds(pid) for pid in found) if found else None


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


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
