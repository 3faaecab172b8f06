"""Migrations: once, in order, by one process at a time, and what they make is what is committed."""

from __future__ import annotations

import asyncio
import sys

import asyncpg
import pytest

from relay.store.database import Connection, Database
from relay.store.faults import NotMigrated
from relay.store.migrate import Migration, check_migrated, migrate, migrations
from tests.store.schema_dump import SCHEMA, dump
from tests.store.world import World

MIGRATE = """
import asyncio, sys
from relay.store.database import Database
from relay.store.migrate import migrate

async def main():
    database = await Database.connect(sys.argv[1], name="migrating", size=1)
    print("ready", flush=True)
    sys.stdin.readline()
    print(*await migrate(database), flush=True)
    await database.close()

asyncio.run(main())
"""
LIMIT_SECONDS = 60.0

BEFORE_LOCK_ALONE = 27
"""Up to here migrations queue for the tables that they change: these are of before the first installation."""
NOT_ALONE = "RL001"
REFUSE_AT_ONCE = f"""
create or replace function lock_alone(p_tables regclass[]) returns void language plpgsql as $$
declare
    wanted regclass;
begin
    foreach wanted in array p_tables loop
        execute format('lock table only %s in access exclusive mode nowait', wanted);
    end loop;
exception when lock_not_available then
    raise exception using errcode = '{NOT_ALONE}', message = format('%s is not to be had alone', wanted);
end $$;
set lock_timeout = '1s'"""


async def migrating_process(dsn: str) -> asyncio.subprocess.Process:
    """A process that migrates as soon as a line reaches its standard input."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", MIGRATE, dsn, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_SECONDS):
        assert await process.stdout.readline() == b"ready\n"
    return process


def test_the_migrations_make_the_committed_schema(database_dsn: str) -> None:
    assert dump(database_dsn) == SCHEMA.read_text(encoding="utf-8")


async def test_a_new_database_gets_every_migration_once(empty: Database) -> None:
    assert await migrate(empty) == [each.name for each in migrations()]
    assert await migrate(empty) == []
    await check_migrated(empty)


async def test_of_a_new_database_it_is_told_once_how_many_migrations_make_it(empty: Database) -> None:
    told: list[str] = []
    await migrate(empty, told.append)
    assert told == [f"making the tables ({len(migrations())} migrations)"]


async def test_the_numbers_of_the_migrations_have_no_gap() -> None:
    assert [each.number for each in migrations()] == list(range(1, len(migrations()) + 1))


async def test_processes_that_migrate_at_once_apply_each_migration_once(empty_dsn: str) -> None:
    processes = await asyncio.gather(*(migrating_process(empty_dsn) for _ in range(2)))
    async with asyncio.timeout(LIMIT_SECONDS):
        answers = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [process.returncode for process in processes] == [0, 0]
    applied = [name for out, _ in answers for name in out.decode().split()]
    assert applied == [each.name for each in migrations()]


async def test_an_unmigrated_database_is_refused_and_the_command_is_named(empty: Database) -> None:
    with pytest.raises(NotMigrated, match=r"run `relay migrate`"):
        await check_migrated(empty)


async def test_a_half_migrated_database_is_refused(world: World) -> None:
    await world.sql("delete from schema_migrations where number = (select max(number) from schema_migrations)")
    with pytest.raises(NotMigrated, match=r"lacks 1 migration"):
        await check_migrated(world.database)


@pytest.mark.parametrize("ask", [migrate, check_migrated])
async def test_a_migration_that_was_changed_after_it_was_applied_is_refused(world: World, ask: type) -> None:
    await world.sql("update schema_migrations set sha256 = 'other' where number = 2")
    with pytest.raises(NotMigrated, match="0002_append was applied from another text"):
        await ask(world.database)


@pytest.mark.parametrize("ask", [migrate, check_migrated])
async def test_a_migration_of_a_newer_relay_is_refused(world: World, ask: type) -> None:
    await world.sql("insert into schema_migrations (number, name, sha256) values (9001, 'later', 'x')")
    with pytest.raises(NotMigrated, match="migration 9001, which this version does not know: upgrade"):
        await ask(world.database)


async def test_a_migration_that_fails_leaves_nothing_of_itself(empty: Database) -> None:
    world = World.over(empty)
    await world.sql("create table idempotency_keys (of_somebody_else integer)")
    with pytest.raises(Exception, match="idempotency_keys"):
        await migrate(empty)
    assert await world.value("select to_regclass('tenants')") is None
    assert await world.sql("select * from schema_migrations") == []
    await world.sql("drop table idempotency_keys")
    assert await migrate(empty) == [each.name for each in migrations()]


async def read_like_a_dump(connection: Connection) -> None:
    """Keep every table, as a reader does until its transaction ends."""
    tables = await connection.fetch(
        "select c.oid::regclass::text from pg_class c"
        " where c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace"
    )
    names = ", ".join(row[0] for row in tables)
    await connection.execute(f"lock table {names} in access share mode")


async def refused_beside_a_reader(reader: Database, writer: Connection, migration: Migration) -> str | None:
    """Apply a migration while somebody reads; answers the code of what refused it, none if it was applied."""
    async with reader.connection() as reading, reading.transaction():
        await read_like_a_dump(reading)
        try:
            await writer.execute(migration.sql)
        except asyncpg.PostgresError as fault:
            return fault.sqlstate
    return None


async def test_no_migration_queues_behind_a_long_read_for_a_table_that_others_would_wait_for(empty: Database) -> None:
    """Whoever waits to have a table alone has every claim and every request wait behind him; a dump reads for hours."""
    refused = {}
    async with empty.connection() as writer:
        for migration in migrations():
            if migration.number <= BEFORE_LOCK_ALONE:
                await writer.execute(migration.sql)
                continue
            await writer.execute(REFUSE_AT_ONCE)
            refused[migration.name] = await refused_beside_a_reader(empty, writer, migration)
            if refused[migration.name] is not None:
                await writer.execute(migration.sql)
    assert set(refused.values()) == {None, NOT_ALONE}, refused
