"""What PostgreSQL's control file tells of a data folder, its server running or not.

Owns the reading of ``pg_controldata``. Invariant: nothing is changed by a look.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from relay.embedded.faults import StartFailed
from relay.embedded.programs import Programs, environment

_LOOK_SECONDS = 30.0


def control_data(programs: Programs, cluster: Path) -> Mapping[str, str]:
    """The facts by their names in plain C messages. Raises `StartFailed`."""
    command = [programs.path("pg_controldata"), f"--pgdata={cluster}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_LOOK_SECONDS, env=environment()
        )
    except (OSError, subprocess.SubprocessError) as fault:
        raise StartFailed(f"the control file of {cluster} cannot be read: {fault}") from fault
    pairs = (line.partition(":") for line in done.stdout.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def connections_of(programs: Programs, cluster: Path) -> int:
    """How many connections the primary of that folder allowed when it last wrote to its log. Raises `StartFailed`.

    A standby that allows fewer refuses to start.
    """
    return int(control_data(programs, cluster)["max_connections setting"])


def story_of(programs: Programs, cluster: Path) -> str:
    """What tells two primaries apart, for a person. Raises `StartFailed`."""
    facts = control_data(programs, cluster)
    timeline, written = facts["Latest checkpoint's TimeLineID"], facts["Time of latest checkpoint"]
    return f"timeline {timeline}, last checkpoint {written}"
