"""What a database is like, for `relay doctor`: its server, our role in it, the endpoints of all its tenants.

Owns questions that hold for a database in any state, also one without a table. Invariant: nothing is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from uuid import UUID

from relay.domain.endpoint import Transport
from relay.store import statements
from relay.store.database import Database

OLDEST_SUPPORTED = 15


@dataclass(frozen=True, slots=True)
class Server:
    """The server as our role meets it. `clock` is its time when it answered."""

    version: str
    major: int
    clock: datetime
    role: str
    may_create: bool


@dataclass(frozen=True, slots=True)
class Reachable:
    """An endpoint that is to be reached; the url of a chat names the chat, not the server."""

    name: str
    url: str
    transport: Transport


@dataclass(frozen=True, slots=True)
class Holder:
    """A session that statements of Relay wait for. `table` is None where no table can be named, `began_ago` where we
    may not see it, and role and name of a prepared transaction, whose pid is 0."""

    pid: int
    role: str | None
    name: str | None
    table: str | None
    began_ago: float | None
    waiters: int
    waiting_for: float


class Examination:
    """Questions to one database. All raise `StoreUnavailable`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def server(self) -> Server:
        """The server, and what our role may do in the schema."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statements.text("examine_server"))
        assert row is not None, "it selects from nothing"
        return Server(
            version=row["version"],
            major=row["version_number"] // 10_000,
            clock=row["clock"],
            role=row["role"],
            may_create=row["may_create"],
        )

    async def tables_of_others(self) -> tuple[str, ...]:
        """Tables of Relay's that our role does not own."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("foreign_tables"), list(tables()))
        return tuple(row["name"] for row in rows)

    async def sessions(self) -> dict[str, int]:
        """How many sessions of this database there are by each name that Relay's processes give theirs."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("sessions_by_name"))
        return {row["name"]: row["sessions"] for row in rows}

    async def holders(self, seconds: float) -> tuple[Holder, ...]:
        """Whom statements of Relay have waited for so long, or longer; the one that is waited for longest first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("who_holds_locks"), seconds)
        return tuple(Holder(**row) for row in rows)

    async def endpoints(self, most: int) -> tuple[Reachable, ...]:
        """At most so many active endpoints, of whichever tenant. The database must be migrated."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("endpoints_to_reach"), most)
        return tuple(Reachable(row["name"], row["url"], Transport(row["transport"])) for row in rows)

    async def endpoints_called(self, name: str, endpoint: UUID | None) -> tuple[Reachable, ...]:
        """The one of that id, or those of that name, of whichever tenants. The database must be migrated."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("endpoints_called"), name, endpoint)
        return tuple(Reachable(row["name"], row["url"], Transport(row["transport"])) for row in rows)

    async def disabled(self, most: int) -> tuple[tuple[str, str], ...]:
        """At most so many endpoints that their own answer has disabled, and why. The database must be migrated."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("disabled_endpoints"), most)
        return tuple((row["name"], row["reason"] or "no reason is on record") for row in rows)

    async def open_breakers(self) -> tuple[str, ...]:
        """The names of the endpoints whose breakers are not closed. The database must be migrated."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("open_breakers"))
        return tuple(row["name"] for row in rows)

    async def dead_letters(self) -> int:
        """How many deliveries wait for a person. The database must be migrated."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("dead_by_consumer"))
        return sum(row["count"] for row in rows)


def tables() -> tuple[str, ...]:
    """The names of Relay's tables."""
    schema = files("relay.store").joinpath("schema.sql").read_text(encoding="utf-8")
    return tuple(re.findall(r"^CREATE TABLE public\.(\w+)", schema, re.MULTILINE))
