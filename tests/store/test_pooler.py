"""A pool of connections through a pooler that gives each transaction another session: a real PgBouncer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from relay.store.database import Database
from relay.store.faults import CannotWrite, StoreUnavailable
from relay.store.timelines import noted
from tests.support.cluster import Cluster
from tests.support.installation import eventually
from tests.support.pgbouncer import PgBouncer, Program

DEADLINE = 30.0
CONNECTIONS = 2
CLIENTS = 8


@pytest.fixture
def pooler(pgbouncer_program: Program, database_dsn: str, tmp_path: Path) -> Iterator[PgBouncer]:
    """A PgBouncer before the test's database, with fewer connections than clients."""
    with PgBouncer(pgbouncer_program, tmp_path / "pgbouncer", database_dsn, connections=CONNECTIONS) as running:
        yield running


@pytest.fixture
async def pooled(pooler: PgBouncer) -> AsyncIterator[Database]:
    """A pool through it."""
    database = await Database.connect(pooler.dsn, name="relay-tests", size=CLIENTS, pooled=True, within=DEADLINE)
    yield database
    await database.close()


SETTINGS = (
    "plan_cache_mode", "jit", "timezone", "enable_seqscan", "idle_in_transaction_session_timeout", "statement_timeout",
    "synchronous_commit",
)  # fmt: skip


async def test_each_block_is_told_what_a_session_of_its_own_would_be(database: Database, pooled: Database) -> None:
    """Else a commit of the API would wait for standbys inside the server, holding its locks."""
    for block in (pooled.connection, pooled.transaction, pooled.snapshot):
        async with database.connection() as own, block() as lent:
            for name in SETTINGS:
                asked = f"show {name}"
                if name != "statement_timeout":  # the other pool has another bound
                    assert await lent.fetchval(asked) == await own.fetchval(asked), name
            assert await lent.fetchval("show statement_timeout") == "30s"


async def test_what_a_block_is_told_is_forgotten_after_it(pooler: PgBouncer, pooled: Database) -> None:
    """The server's session is somebody else's then."""
    async with pooled.connection() as lent:
        assert await lent.fetchval("show synchronous_commit") == "local"
    other = await asyncpg.connect(pooler.dsn, statement_cache_size=0)
    async with other.transaction():
        assert await other.fetchval("show synchronous_commit") == "on"
    await other.close()


async def test_more_blocks_than_sessions_at_once_get_each_its_own_answers(pooled: Database) -> None:
    """A statement that is prepared in one session and carried out in another would meet somebody else's."""

    async def ask(number: int) -> None:
        async with pooled.connection() as lent:
            assert await lent.fetchval(f"select {number} + $1::int", number) == 2 * number
            assert await lent.fetchval(f"select $1::text || {number}", "x") == f"x{number}"

    for _ in range(10):
        await asyncio.gather(*(ask(number) for number in range(4 * CLIENTS)))


async def test_a_block_that_fails_leaves_nothing_and_a_block_that_ends_stays(pooled: Database) -> None:
    async with pooled.connection() as lent:
        await lent.execute("create table t (n int primary key)")

    async def fail() -> None:
        async with pooled.transaction() as lent:
            await lent.execute("insert into t values (1)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with pooled.connection() as lent:
        await lent.execute("insert into t values (2)")
    async with pooled.connection() as lent:
        assert [row["n"] for row in await lent.fetch("select n from t")] == [2]


async def test_a_failed_statement_that_is_passed_over_is_not_taken_for_a_commit(pooled: Database) -> None:
    """A server answers the commit of a failed transaction without complaint, and rolls it back."""

    async def go_on() -> None:
        async with pooled.connection() as lent:
            with pytest.raises(asyncpg.DivisionByZeroError):
                await lent.fetchval("select 1 / 0")

    with pytest.raises(RuntimeError, match="went on"):
        await go_on()


async def test_each_block_is_noted_with_its_servers_timeline_for_whoever_answers_for_it(
    database: Database, pooled: Database
) -> None:
    """Else a change through a pooler would be proved by whichever server the barrier has."""
    for pool in (database, pooled):
        for block in (pool.connection, pool.transaction):
            with noted() as changed_on:
                async with block() as lent:
                    of_session = int((await lent.fetchval("select pg_walfile_name(pg_current_wal_lsn())"))[:8], 16)
            assert changed_on == {of_session}


async def test_nobody_is_asked_for_a_timeline_after_the_block_that_wants_it(database: Database) -> None:
    """A task that it began may live on."""

    async def work() -> None:
        await ended.wait()
        async with database.connection():
            pass

    ended = asyncio.Event()
    with noted() as changed_on:
        task = asyncio.create_task(work())
    ended.set()
    await task
    assert changed_on == set()


async def test_a_snapshot_sees_one_moment(pooled: Database) -> None:
    async with pooled.connection() as lent:
        await lent.execute("create table t ()")
    async with pooled.snapshot() as seen:
        assert await seen.fetchval("select count(*) from t") == 0
        async with pooled.connection() as lent:
            await lent.execute("insert into t default values")
        assert await seen.fetchval("select count(*) from t") == 0


async def test_blocks_that_are_cut_off_keep_no_session_from_the_others(pooled: Database) -> None:
    async def hang() -> None:
        async with pooled.connection() as lent:
            await lent.execute("select pg_sleep(60)")

    tasks = [asyncio.create_task(hang()) for _ in range(CONNECTIONS)]
    await asyncio.wait(tasks, timeout=0.5)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    async with pooled.connection() as lent:
        assert await lent.fetchval("select 1") == 1


async def test_a_pooler_that_is_away_is_a_database_that_is_away_until_it_is_back(
    pooler: PgBouncer, pooled: Database
) -> None:
    pooler.kill()
    with pytest.raises(StoreUnavailable):
        async with pooled.connection():
            pass
    pooler.start()

    async def back() -> bool:
        try:
            async with pooled.connection() as lent:
                return bool(await lent.fetchval("select true"))
        except StoreUnavailable:
            return False

    await eventually(back, DEADLINE, "the pooler is back")


async def test_a_pooler_before_a_standby_is_refused_and_so_is_a_server_that_became_one(
    pgbouncer_program: Program, cluster: Cluster, cluster_database: str, tmp_path: Path
) -> None:
    """A pooler keeps its clients' connections whatever becomes of the server behind it."""
    primary = cluster.dsn(cluster_database, only=cluster.primary)
    standby = cluster.dsn(cluster_database, only=cluster.standbys[0])
    with PgBouncer(pgbouncer_program, tmp_path / "pgbouncer", primary) as pooler:
        pooled = await Database.connect(pooler.dsn, name="relay-tests", size=1, pooled=True)
        pooler.lead_to(standby)
        pooler.reload()

        async def refused() -> bool:
            try:
                async with pooled.connection():
                    return False
            except CannotWrite as fault:
                return "standby" in str(fault)

        await eventually(refused, DEADLINE, "a server that is a standby is told from one that takes writes")
        with pytest.raises(StoreUnavailable, match="what answers is a standby"):
            await Database.connect(pooler.dsn, name="relay-tests", size=1, pooled=True)
        await pooled.close()


async def test_of_several_poolers_the_one_is_taken_whose_server_takes_writes(
    pgbouncer_program: Program, cluster: Cluster, cluster_database: str, tmp_path: Path
) -> None:
    """One beside each server: after a failover the next connection goes to another of them."""
    primary = cluster.dsn(cluster_database, only=cluster.primary)
    standby = cluster.dsn(cluster_database, only=cluster.standbys[0])
    with (
        PgBouncer(pgbouncer_program, tmp_path / "first", standby) as first,
        PgBouncer(pgbouncer_program, tmp_path / "second", primary) as second,
    ):
        login, _, place = second.dsn.rpartition("@")
        both = f"{login}@{first.dsn.rpartition('@')[2].partition('/')[0]},{place}"
        pooled = await Database.connect(both, name="relay-tests", size=1, pooled=True)
        async with pooled.connection() as lent:
            assert not await lent.fetchval("select pg_is_in_recovery()")
        second.kill()
        first.lead_to(primary)
        first.reload()

        async def found() -> bool:
            try:
                async with pooled.connection() as lent:
                    return not await lent.fetchval("select pg_is_in_recovery()")
            except StoreUnavailable:
                return False

        await eventually(found, DEADLINE, "the other pooler is found")
        await pooled.close()
