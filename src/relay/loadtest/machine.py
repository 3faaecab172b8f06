"""What a measurement was made on, as far as it tells others what to expect.

Owns what is said, and what is not: no name of a host, no path. Works on Linux.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from relay import __version__

QUIET_LOAD = 0.25
"""Per core: with more than that under way before a measurement, what it says of limits is worth little."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine, and the versions that ran on it. `busy` is how many processes, on average over the minute before,
    wanted one of its cores."""

    cores: int
    processor: str
    memory_gib: float
    system: str
    python: str
    postgresql: str
    relay: str
    busy: float

    @property
    def is_quiet(self) -> bool:
        """Whether it had nothing else to do."""
        return self.busy <= QUIET_LOAD * self.cores


def this_machine(postgresql: str) -> Machine:
    """This one, with the version of the server that the measurement uses."""
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        processor=_first("/proc/cpuinfo", "model name") or platform.machine(),
        memory_gib=round(int((_first("/proc/meminfo", "MemTotal") or "0").split()[0]) / 1024**2, 1),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        postgresql=postgresql,
        relay=__version__,
        busy=round(os.getloadavg()[0], 2),
    )


def _first(path: str, name: str) -> str:
    """The value of the first line `name: value` of a file; empty where there is none."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), "")
