"""What is no longer kept.

Owns the removal of names whose time is over. Invariant: what is removed was over when its row was locked, so a name
that was bound anew meanwhile stays.
"""

from __future__ import annotations

from relay.store import statements
from relay.store.database import Database


class Retention:
    """The retention of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def prune_idempotency_keys(self, *, batch: int) -> int:
        """Remove the senders' names that are over, at most `batch`; answers how many."""
        return await self._remove("prune_idempotency_keys", batch)

    async def prune_request_keys(self, *, batch: int) -> int:
        """Remove the names of re-drives and discards that are over, at most `batch`; answers how many."""
        return await self._remove("prune_request_keys", batch)

    async def prune_signed_requests(self, *, batch: int) -> int:
        """Remove signed requests that nobody could repeat any more, at most `batch`; answers how many."""
        return await self._remove("prune_signed_requests", batch)

    async def _remove(self, statement: str, batch: int) -> int:
        async with self._database.connection() as connection:
            return len(await connection.fetch(statements.text(statement), batch))
