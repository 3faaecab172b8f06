"""A copy of a running server.

Owns ``pg_basebackup``. Invariant: the copy is made in a folder that nobody uses, and with it the log that it needs to
be consistent, so a standby can be started from it whatever its primary does meanwhile.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from relay.embedded.account import Runner
from relay.embedded.credentials import PORT, SUPERUSER
from relay.embedded.query import Line
from relay.embedded.replication import PASSWORD_FILE

COPY_SECONDS = 6 * 3600.0
"""How long a copy may take: it moves the whole database."""

TELL_SECONDS = 2.0
"""How often somebody who waits is told how far it is."""

_NEW_SLOT = (
    """
    SELECT pg_drop_replication_slot(slot_name)
    FROM (
        SELECT slot_name, CASE WHEN active THEN pg_terminate_backend(active_pid, 10000) END
        FROM pg_replication_slots WHERE slot_name = '{name}' OFFSET 0
    ) AS left_over
    """,
    "SELECT pg_create_physical_replication_slot('{name}', immediately_reserve => true)",
)


def copy_server(
    line: Line, cluster: Path, folder: Path, name: str, runner: Runner, report: Callable[[str], None]
) -> None:
    """Copy the server at the end of that line, whose data folder is `cluster`, into an empty folder, for the standby
    `name`.

    Its slot is made anew, so that the log since the copy began is there when the standby comes. The copying itself uses
    another one: a slot that bears a standby's name tells what that standby has. Raises `EmbeddedFault`.
    """
    for statement in _NEW_SLOT:
        line.ask(statement.format(name=name))
    runner.run(
        "pg_basebackup",
        f"--pgdata={folder}",
        f"--host={line.sockets}",
        f"--port={PORT}",
        f"--username={SUPERUSER}",
        "--no-password",
        "--wal-method=stream",
        "--checkpoint=fast",
        "--progress",
        seconds=COPY_SECONDS,
        more_environment={"PGPASSFILE": str(cluster / PASSWORD_FILE)},
        heard=_Teller(name, report),
    )


class _Teller:
    """Turns the program's output into a line now and then."""

    def __init__(self, name: str, report: Callable[[str], None]) -> None:
        self._name = name
        self._report = report
        self._next = time.monotonic() + TELL_SECONDS

    def __call__(self, output: bytes) -> None:
        shares = re.findall(rb"\((\d+)%\)", output)
        if shares and time.monotonic() >= self._next:
            self._next = time.monotonic() + TELL_SECONDS
            self._report(f"copying to {self._name}: {int(shares[-1])} %")
