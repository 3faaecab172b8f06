"""Whether a database is right after what was done to it: the verification, as the last word of a test of the whole."""

from __future__ import annotations

import time

from relay.app.verification import Walk
from relay.store.database import Database
from relay.store.verify import Verifying


async def assert_right(dsn: str) -> None:
    """Raises `AssertionError` with what `relay verify` would name."""
    database = await Database.connect(dsn, name="relay verify", size=1)
    try:
        found = await Walk(Verifying(database), clock=time.monotonic, tell=lambda _, __: None).run()
    finally:
        await database.close()
    assert found.ok, f"the database is not right: {found}"
