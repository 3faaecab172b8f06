"""An installation whose database may not be running, for commands that work straight on it.

Owns starting an embedded database for them. Invariant: one that was not running is stopped again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from relay.app.faults import CannotRun
from relay.app.installation import Installation, find
from relay.app.local_database import Say, local_database
from relay.app.migration import migrate_database
from relay.embedded import EmbeddedFault, running_dsn
from relay.settings import Settings

_REPLICA = re.compile(r"r[1-9]")


@asynccontextmanager
async def at_hand(settings: Settings, say: Say) -> AsyncIterator[Installation]:
    """The installation, with its own database running inside the block."""
    folder = settings.data_dir.expanduser().absolute()
    try:
        is_running = settings.database_url is not None or running_dsn(folder) is not None
    except EmbeddedFault as fault:
        raise CannotRun(str(fault)) from fault
    if is_running:
        yield find(settings)
        return
    async with local_database(settings, _replicas(folder), say=say, notice=say):
        installation = find(settings)
        await migrate_database(installation, say)
        yield installation


def _replicas(folder: Path) -> int:
    """How many servers the data folder has, one where there are none yet."""
    home = folder / "pg"
    return max(1, sum(1 for each in home.iterdir() if _REPLICA.fullmatch(each.name))) if home.is_dir() else 1
