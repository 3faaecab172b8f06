"""The routing rules in the database, as a gateway reads them.

Owns that reading: all rules in pages, once, and then what changed. Invariant: what is read is of one moment, that of
its versions, and no statement reads more than a page or what was changed; so an event waits for the change of an
endpoint as long among a million endpoints as among ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import msgspec

from relay.domain.routing import Rule, RuleSet
from relay.store import statements
from relay.store.database import Database
from relay.store.journal import Versions

PAGE = 2_000
"""Rules that are read at once: some milliseconds of the server and of the event loop."""

_FIRST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a gateway routes from: of one moment, named by its versions. `partitions` maps tenants to theirs; `mark`
    tells the version of the rules from another one of its number, None where nothing has changed yet.
    """

    versions: Versions
    rules: RuleSet
    partitions: Mapping[str, int]
    mark: UUID | None = None


async def snapshot(database: Database, known: Snapshot | None = None) -> Snapshot:
    """The rules as they are now. From those that are `known` if what happened since is on record, else from all.

    Raises `StoreUnavailable`.
    """
    found = None if known is None else await _changed(database, known)
    while found is None:
        # what changes while the pages are read is in the changes since the beginning
        found = await _changed(database, await _whole(database))
    return found


async def _whole(database: Database) -> Snapshot:
    """All rules, each as it was at some moment between now and the end, and the versions of now."""
    async with database.connection() as connection:
        row = await connection.fetchrow(statements.text("changed_rules"), None, None, None)
    assert row is not None, "the first migration writes the versions row"
    rules: list[Rule] = []
    # many endpoints want the same, of one tenant: a million of them take half the memory
    tenants: dict[str, str] = {}
    wanted: dict[tuple[str, ...], tuple[str, ...]] = {}
    after, rows = _FIRST, PAGE
    while rows == PAGE:
        async with database.connection() as connection:
            page = await connection.fetch(statements.text("list_rules"), after, PAGE)
        for endpoint, tenant, name, event_types in page:
            if event_types is None:
                continue
            patterns = tuple(event_types)
            rule = Rule(endpoint, name, tenants.setdefault(tenant, tenant), wanted.setdefault(patterns, patterns))
            rules.append(rule)
        rows = len(page)
        after = page[-1]["id"] if page else after
    versions = Versions(row["rules"], row["credentials"], row["schemas"])
    return Snapshot(versions, RuleSet(versions.rules, rules), _partitions(row["tenants"]), row["mark"])


async def _changed(database: Database, known: Snapshot) -> Snapshot | None:
    """What the known ones have become, None if that is not on record."""
    async with database.connection() as connection:
        row = await connection.fetchrow(
            statements.text("changed_rules"), known.versions.rules, known.mark, known.versions.credentials
        )
    assert row is not None, "the first migration writes the versions row"
    if not row["follows"]:
        return None
    changes = _CHANGES.decode(row["changes"] or "[]")
    rules = known.rules.changed(
        row["rules"],
        [
            Rule(endpoint_id=endpoint, consumer=name, tenant=tenant, patterns=patterns)
            for endpoint, tenant, name, patterns in changes
            if patterns is not None
        ],
        [(tenant, endpoint) for endpoint, tenant, _, patterns in changes if patterns is None],
    )
    versions = Versions(row["rules"], row["credentials"], row["schemas"])
    partitions = known.partitions if row["tenants"] is None else _partitions(row["tenants"])
    return Snapshot(versions, rules, partitions, row["mark"])


def _partitions(tenants: str | None) -> Mapping[str, int]:
    return dict(_TENANTS.decode(tenants or "[]"))


_CHANGES = msgspec.json.Decoder(list[tuple[UUID, str, str, tuple[str, ...] | None]])
_TENANTS = msgspec.json.Decoder(list[tuple[str, int]])
