"""Claims about bringing a database to shape from a command: how long it may take, and what is said meanwhile."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from relay.app.installation import Installation
from relay.app.migration import migrate_database
from relay.domain.secret import Secret
from relay.store import database as database_module
from relay.store import migrate
from relay.store.migrate import Migration, migrations

LIMIT_SECONDS = 60.0
SHORT_SECONDS = 1.0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other work with the database may take this long."""
    monkeypatch.setattr(database_module, "WORK_SECONDS", SHORT_SECONDS)


@pytest.mark.usefixtures("impatient")
async def test_a_migration_may_take_longer_than_any_other_work(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Migration(len(migrations()) + 1, "9999_slow", f"select pg_sleep({3 * SHORT_SECONDS})")
    all_of_them = [*migrations(), slow]
    monkeypatch.setattr(migrate, "migrations", lambda: all_of_them)
    said: list[str] = []
    assert await migrate_database(Installation(Secret(database_dsn), ()), said.append) == ["9999_slow"]
    assert said == ["applying 9999_slow"]


@pytest.mark.usefixtures("impatient")
async def test_whoever_migrates_second_waits_for_the_first_and_says_so(database_dsn: str) -> None:
    first = await asyncpg.connect(database_dsn)
    await first.execute("select pg_advisory_lock($1)", migrate._LOCK)
    said: list[str] = []
    waits = asyncio.Event()

    def tell(text: str) -> None:
        said.append(text)
        waits.set()

    async with asyncio.timeout(LIMIT_SECONDS), asyncio.TaskGroup() as group:
        second = group.create_task(migrate_database(Installation(Secret(database_dsn), ()), tell))
        await waits.wait()
        await first.execute("select pg_sleep($1)", 3 * SHORT_SECONDS)
        assert not second.done()
        await first.close()
    assert said == ["another process is migrating the database; waiting for it to end"]
    assert second.result() == []
