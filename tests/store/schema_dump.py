"""The schema of a database as text that depends on nothing but the migrations.

Owns what is left out: comments, settings of the session, owners, what only newer versions of `pg_dump` write, and the
day partitions with their indexes, whose names and number depend on the date. `python -m tests.store.schema_dump` writes
`schema.sql` anew.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from relay.embedded.programs import environment, find_programs
from relay.store.database import Database
from relay.store.migrate import migrate
from tests.support.postgres import throwaway_server

SCHEMA = Path(__file__).parents[2] / "src" / "relay" / "store" / "schema.sql"

_HEAD = """\
-- What the migrations produce, in order of kind and name. Written by `make schema`, compared by a test, never run.
-- Day partitions are left out: there is one of each kind per UTC day.

"""
_DAY = re.compile(r"\b(?:journal|delivery_attempts)_[0-9]{8}(?![0-9])")
_NAMED_NOT_NULL = re.compile(r"\bCONSTRAINT \w+_not_null NOT NULL\b")
_NOISE = ("set ", "select pg_catalog.", "\\restrict", "\\unrestrict", "--")
_LIMIT_SECONDS = 60.0


def dump(dsn: str) -> str:
    """The schema of the database. Raises `CalledProcessError` if it cannot be read."""
    parts = urlsplit(dsn)
    bare = urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", "@")))
    answer = subprocess.run(
        [find_programs().path("pg_dump"), "--schema-only", "--no-owner", "--no-privileges", "--schema=public", bare],
        capture_output=True,
        text=True,
        check=True,
        timeout=_LIMIT_SECONDS,
        env=environment(PGPASSWORD=parts.password or ""),
    )
    return normal(answer.stdout)


def normal(text: str) -> str:
    """A dump without what depends on the version, the owner and the date."""
    lines = [line for line in text.splitlines() if not line.lower().startswith(_NOISE)]
    statements = re.split(r"\n{2,}", _NAMED_NOT_NULL.sub("NOT NULL", "\n".join(lines)).strip("\n"))
    kept = [each for each in statements if each and not _DAY.search(each) and " SCHEMA public" not in each]
    return _HEAD + "\n\n".join(kept) + "\n"


async def _migrate(dsn: str) -> None:
    database = await Database.connect(dsn, name="relay-schema", size=1)
    try:
        await migrate(database)
    finally:
        await database.close()


def main() -> None:
    """Migrate an empty database on a server of its own and write down what came of it."""
    with throwaway_server() as server:
        asyncio.run(_migrate(server.dsn))
        SCHEMA.write_text(dump(server.dsn), encoding="utf-8")


if __name__ == "__main__":
    main()
