"""Bringing the database to this version's shape.

Owns the one call, for `relay migrate` and for `relay up`.
"""

from __future__ import annotations

from collections.abc import Callable

from relay.app.faults import CannotRun
from relay.app.installation import Installation, away
from relay.store.faults import NotMigrated, StoreRefused, StoreUnavailable
from relay.store.migrate import MIGRATION_SECONDS, migrate


async def migrate_database(installation: Installation, tell: Callable[[str], None]) -> list[str]:
    """Apply what is missing; answers the names of what was applied now. Raises `CannotRun`.

    `tell` is told what is being done or waited for.
    """
    async with installation.database("relay migrate", 1, within=MIGRATION_SECONDS) as database:
        try:
            return await migrate(database, tell)
        except (NotMigrated, StoreRefused) as fault:
            raise CannotRun(str(fault)) from fault
        except StoreUnavailable as fault:
            raise away(fault) from fault
