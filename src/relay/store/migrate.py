"""Migrations: forward only, one file each, applied once and in order.

Owns the list of what was applied. Invariant: a file that was applied never changes (its hash is compared), and two
processes that migrate at once do it one after the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

from relay.store.database import Connection, Database, throw_away, transaction
from relay.store.faults import NotMigrated

MIGRATION_SECONDS = 86_400.0
"""What migrating may take, waiting for another process that does it included: the bound with which its pool is to be
opened. Rewriting a large table takes its time, and a bound that ends it would only have it done over again."""

_LOCK = 0x52454C41
_TABLE = """
create table if not exists schema_migrations (
    number integer primary key,
    name text not null,
    sha256 bytea not null,
    applied_at timestamptz not null default now()
)"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `migrations/`: its number, its name and its SQL."""

    number: int
    name: str
    sql: str

    @property
    def sha256(self) -> bytes:
        """The hash by which a later change of an applied file is noticed."""
        return hashlib.sha256(self.sql.encode()).digest()


def migrations() -> list[Migration]:
    """All migrations of this version of Relay, in order."""
    entries = sorted(files("relay.store").joinpath("migrations").iterdir(), key=lambda entry: entry.name)
    return [
        Migration(int(entry.name[:4]), entry.name.removesuffix(".sql"), entry.read_text(encoding="utf-8"))
        for entry in entries
        if entry.name.endswith(".sql")
    ]


def _nobody(_: str) -> None:
    """Nobody wants to know how it goes."""


async def migrate(database: Database, tell: Callable[[str], None] = _nobody) -> list[str]:
    """Apply what is missing, each migration in a transaction of its own; answers the names applied now.

    `tell` is told in words what is being done or waited for, before it is: of a new database once.

    Raises `NotMigrated` if an applied migration differs from this version's file, or is unknown to it.
    """
    applied = []
    async with database.connection() as connection:
        if not await connection.fetchval("select pg_try_advisory_lock($1)", _LOCK):
            tell("another process is migrating the database; waiting for it to end")
            await connection.execute("select pg_advisory_lock($1)", _LOCK)
        try:
            await connection.execute(_TABLE)
            missing = await _missing(connection)
            is_new = len(missing) == len(migrations())
            if is_new:
                tell(f"making the tables ({len(missing)} migrations)")
            for migration in missing:
                if not is_new:
                    tell(f"applying {migration.name}")
                async with transaction(connection):
                    await connection.execute(migration.sql)
                    await connection.execute(
                        "insert into schema_migrations (number, name, sha256) values ($1, $2, $3)",
                        migration.number,
                        migration.name,
                        migration.sha256,
                    )
                applied.append(migration.name)
        except BaseException:
            # the lock goes with the session, whatever state that is in
            throw_away(connection)
            raise
        await connection.execute("select pg_advisory_unlock($1)", _LOCK)
    return applied


async def check_migrated(database: Database) -> None:
    """Raises `NotMigrated`, naming the command to run, unless the database is exactly as this version wants it."""
    async with database.connection() as connection:
        known = await connection.fetchval("select to_regclass('schema_migrations') is not null")
        missing = await _missing(connection) if known else migrations()
    if missing:
        raise NotMigrated(f"the database lacks {len(missing)} migration(s): run `relay migrate`")


async def _missing(connection: Connection) -> list[Migration]:
    rows = await connection.fetch("select number, sha256 from schema_migrations order by number")
    applied = {row["number"]: row["sha256"] for row in rows}
    ours = migrations()
    unknown = applied.keys() - {migration.number for migration in ours}
    if unknown:
        raise NotMigrated(f"the database has migration {max(unknown)}, which this version does not know: upgrade Relay")
    for migration in ours:
        if applied.get(migration.number, migration.sha256) != migration.sha256:
            raise NotMigrated(f"migration {migration.name} was applied from another text than this version's")
    return [migration for migration in ours if migration.number not in applied]
