"""Claims about a key that is written straight into the database."""

from __future__ import annotations

import asyncpg

from relay.app.local_key import create_local_key
from relay.domain.credentials import Scope
from relay.settings import read
from relay.store.vault import new_key
from tests.support.administration import TENANT


async def test_a_key_that_was_made_locally_is_entered_into_the_audit_as_such(database_dsn: str) -> None:
    settings = read({"DATABASE_URL": database_dsn, "RELAY_SECRET_KEYS": new_key().expose()})
    key, _ = await create_local_key(settings, name="first", scopes=[Scope.ADMIN], tenant=TENANT, say=lambda _: None)
    connection = await asyncpg.connect(database_dsn)
    try:
        (entry,) = await connection.fetch("select actor, action, subject, name from audit")
    finally:
        await connection.close()
    assert tuple(entry) == ("local", "key.create", f"key_{key.id.hex}", "first")
