"""Holding a tenant while something of its own is made.

Owns the lock that makes of a removal and a making two changes one after the other. Invariant: nothing is ever a
tenant's that was removed before. Credentials need no such lock, since all their changes wait for each other; events
need none, since they are appended by credentials that the append compares.
"""

from __future__ import annotations

from relay.store import statements
from relay.store.database import Connection
from relay.store.faults import NoSuchTenant


async def hold_tenant(connection: Connection, tenant: str) -> None:
    """Keep a tenant from being removed until the end of the transaction. Raises `NoSuchTenant`."""
    if await connection.fetchval(statements.text("hold_tenant"), tenant) is None:
        raise NoSuchTenant
