"""The append: all or nothing, gapless, and once per key."""

from __future__ import annotations

from relay.store.migrate import check_migrated, migrate
from relay.store.database import Database


async def test_a_migrated_database_needs_no_migration(database: Database) -> None:
    assert await migrate(database) == []
    await check_migrated(database)
