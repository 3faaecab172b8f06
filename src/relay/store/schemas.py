"""The catalogue in the database: event types with their numbered schemas, and which tenants take no others.

Owns every write to them. What is a schema, and what fits one, is decided above. Invariant: a version that was written
never changes; a change that validation depends on bumps the schemas version in its own transaction, so no append can be
made by a catalogue older than a change that was answered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from relay.domain.audit import AuditAction, Author, FieldChange
from relay.domain.schema import SchemaName
from relay.store import audit, statements
from relay.store.database import Database
from relay.store.faults import CatalogueFull
from relay.store.tenants import hold_tenant

MOST_SCHEMAS = 10_000
"""How many a tenant may have, over all types and versions: every gateway keeps the list of them."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Which schemas there are, of one moment: `version` names it, `numbers` maps tenant and type to its versions in
    ascending order, `strict` are the tenants that take no type without a schema.
    """

    version: int
    numbers: Mapping[tuple[str, str], tuple[int, ...]]
    strict: frozenset[str]


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A schema as it was given."""

    text: bytes
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ListedSchema:
    """A schema in a list, without itself: its size in bytes and their SHA-256."""

    name: SchemaName
    size: int
    sha256: bytes
    created_at: datetime


@dataclass(frozen=True, slots=True)
class EventType:
    """A type that has schemas; the last of its versions is the one that counts unless a sender names another."""

    type: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Put:
    """What is stored under a name after a put, and whether this put has stored it."""

    stored: StoredSchema
    is_new: bool


class Schemas:
    """The schemas of one database."""

    def __init__(self, database: Database, author: Author | None = None) -> None:
        self._database = database
        self._author = author

    def by(self, author: Author) -> Schemas:
        """The same ones, whose changes are entered into the audit as that author's."""
        return Schemas(self._database, author)

    async def put(self, tenant: str, name: SchemaName, text: bytes) -> Put:
        """Store a schema, unless there is one of that name: that is answered, whatever it is.

        Raises `CatalogueFull` and `NoSuchTenant`.
        """
        async with self._database.transaction() as connection:
            await hold_tenant(connection, tenant)
            created_at = await connection.fetchval(
                statements.text("insert_schema"), tenant, name.type, name.number, text, MOST_SCHEMAS
            )
            if created_at is not None:
                await connection.execute(statements.text("bump_schemas"))
                told = {"size_bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
                await audit.append(
                    connection, self._author, tenant, AuditAction.SCHEMA_PUT, str(name), name=name.type, details=told
                )
                return Put(StoredSchema(text, created_at), is_new=True)
            row = await connection.fetchrow(statements.text("read_schema"), tenant, name.type, name.number)
        if row is None:
            raise CatalogueFull(f"there are {MOST_SCHEMAS:,} schemas already, which is as many as a tenant may have")
        return Put(StoredSchema(row["schema"], row["created_at"]), is_new=False)

    async def read(self, tenant: str, name: SchemaName) -> StoredSchema | None:
        """A schema as it was given, None if there is none of that name."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statements.text("read_schema"), tenant, name.type, name.number)
        return StoredSchema(row["schema"], row["created_at"]) if row else None

    async def page(
        self, tenant: str, *, after: SchemaName, event_type: str | None = None, limit: int
    ) -> list[ListedSchema]:
        """The tenant's schemas behind a name, by type and version, of one type or of all."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                statements.text("list_schemas"), tenant, after.type, after.number, event_type, limit
            )
        return [
            ListedSchema(SchemaName(row["type"], row["version"]), row["size"], row["sha256"], row["created_at"])
            for row in rows
        ]

    async def event_types(self, tenant: str, *, after: str, limit: int) -> list[EventType]:
        """The tenant's types with schemas that come behind that one."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("list_event_types"), tenant, after, limit)
        return [EventType(row["type"], tuple(row["versions"])) for row in rows]

    async def set_strict(self, tenant: str, *, strict: bool) -> None:
        """Say whether the tenant's events need a schema of their type; nothing if there is no such tenant."""
        async with self._database.transaction() as connection:
            name = await connection.fetchval(statements.text("set_strict_schemas"), tenant, strict)
            if name is not None:
                await connection.execute(statements.text("bump_schemas"))
                changes = [FieldChange("strict_schemas", hidden=False, old=not strict, new=strict)]
                await audit.append(
                    connection, self._author, tenant, AuditAction.TENANT_CHANGE, tenant, name=name, changes=changes
                )

    async def catalogue(self) -> Catalogue:
        """Which schemas there are now."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statements.text("load_catalogue"))
        assert row is not None, "the first migration writes the versions row"
        types = _TYPES.decode(row["types"] or "[]")
        return Catalogue(
            row["schemas"],
            {(tenant, event_type): numbers for tenant, event_type, numbers in types},
            frozenset(_TENANTS.decode(row["strict"] or "[]")),
        )

    async def look_before_refusing(self, tenant: str, source: str, key: str | None) -> tuple[int, bool]:
        """The catalogue's version now, and whether the source had a request of that name taken."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statements.text("look_before_refusing"), tenant, source, key)
        assert row is not None, "the first migration writes the versions row"
        return row["schemas"], row["taken"]


_TYPES = msgspec.json.Decoder(list[tuple[str, str, tuple[int, ...]]])
_TENANTS = msgspec.json.Decoder(list[str])
