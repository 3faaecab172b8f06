"""Bringing the database to this version's shape.

Owns the one call, for `relay migrate` and for `relay up`.
"""

from __future__ import annotations

from relay.app.faults import CannotRun
from relay.app.installation import Installation, away
from relay.store.faults import NotMigrated, StoreRefused, StoreUnavailable
from relay.store.migrate import migrate


async def migrate_database(installation: Installation) -> list[str]:
    """Apply what is missing; answers the names of what was applied now. Raises `CannotRun`."""
    async with installation.database("relay migrate", 2) as database:
        try:
            return await migrate(database)
        except (NotMigrated, StoreRefused) as fault:
            raise CannotRun(str(fault)) from fault
        except StoreUnavailable as fault:
            raise away(fault) from fault
