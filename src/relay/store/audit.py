"""The audit in the database: who changed what, and who sent again or gave up what.

Owns its rows. What of a change may be told is the domain's. Invariants: an entry is appended in the transaction of its
change, so that neither is there without the other, and nothing changes or removes one: the table itself refuses that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from relay.domain.audit import AuditAction, Author, FieldChange
from relay.store import statements
from relay.store.database import Connection, Database
from relay.store.dead_letters import DEAD_NEWEST, LONG_AGO
from relay.store.pages import Page, Stretch, walk


class AuditPlace(NamedTuple):
    """Where an entry stands in the list."""

    at: datetime
    id: UUID


AUDIT_NEWEST = AuditPlace(*DEAD_NEWEST)
"""The place before the newest entry."""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries: `subject` is an id as users see it, `since` is included and `until` is not."""

    actor: str | None = None
    action: AuditAction | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change, and who asked for it."""

    id: UUID
    at: datetime
    tenant: str
    actor: str
    actor_tenant: str
    action: AuditAction
    subject: str | None
    name: str | None
    changes: Sequence[FieldChange]
    details: Mapping[str, Any]


_changes = msgspec.json.Decoder(list[FieldChange]).decode
_details = msgspec.json.Decoder(dict[str, Any]).decode


async def append(
    connection: Connection,
    author: Author | None,
    tenant: str,
    action: AuditAction,
    subject: str | None,
    *,
    name: str | None = None,
    changes: Sequence[FieldChange] = (),
    details: Mapping[str, object] | None = None,
) -> None:
    """Append the entry of a change, inside its transaction. Nothing, where nobody asked for it: Relay did it itself."""
    if author is None:
        return
    await connection.execute(
        statements.text("insert_audit_entry"),
        author.entry_id,
        tenant,
        author.actor,
        author.tenant,
        action,
        subject,
        name,
        msgspec.json.encode(changes).decode(),
        msgspec.json.encode(details or {}).decode(),
    )


class Audit:
    """The audit of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self, tenant: str | None, wanted: AuditFilter, *, before: AuditPlace = AUDIT_NEWEST, limit: int
    ) -> Page[AuditEntry, AuditPlace]:
        """Entries of the tenant, or (None) of all tenants, those before the place, newest first."""
        if wanted.until is not None:
            before = min(before, AuditPlace(wanted.until, UUID(int=0)))
        found: dict[AuditPlace, AuditEntry] = {}
        async with self._database.snapshot() as connection:
            page = await walk(_stretch(connection, tenant, wanted, found), before, limit)
        return Page(tuple(found[place] for place in page.items), page.next)


def _stretch(
    connection: Connection, tenant: str | None, wanted: AuditFilter, found: dict[AuditPlace, AuditEntry]
) -> Stretch[AuditPlace]:
    """Notes the entries in `found`."""
    name, of = ("walk_audit_of_all", ()) if tenant is None else ("walk_audit", (tenant,))
    more = (wanted.actor, wanted.action, wanted.subject)
    since = wanted.since or LONG_AGO

    async def read(before: AuditPlace, window: int, most: int) -> tuple[AuditPlace | None, Sequence[AuditPlace]]:
        rows = await connection.fetch(statements.text(name), *of, *before, since, window, most, *more)
        entries = {AuditPlace(row["at"], row["id"]): _entry(row) for row in rows if row["id"] is not None}
        found.update(entries)
        floor = AuditPlace(rows[0]["floor_at"], rows[0]["floor_id"]) if rows[0]["floor_at"] else None
        return floor, list(entries)

    return read


def _entry(row: asyncpg.Record) -> AuditEntry:
    return AuditEntry(
        id=row["id"],
        at=row["at"],
        tenant=row["tenant"],
        actor=row["actor"],
        actor_tenant=row["actor_tenant"],
        action=AuditAction(row["action"]),
        subject=row["subject"],
        name=row["name"],
        changes=_changes(row["changes"]),
        details=_details(row["details"]),
    )
