"""The three servers that quorum tests stand on: what they do to a commit, and what a failover keeps."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import asyncpg

from tests.support.cluster import Cluster, three_servers
from tests.support.installation import eventually

DEADLINE = 60.0
WAITS = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"


async def test_a_commit_waits_while_both_standbys_are_frozen_and_returns_once_they_go_on(
    cluster: Cluster, cluster_database: str
) -> None:
    connection = await asyncpg.connect(cluster.dsn(cluster_database))
    cluster.freeze()
    commit = asyncio.create_task(connection.execute("create table t ()"))

    async def it_waits() -> bool:
        return bool(await cluster.value(cluster.primary, WAITS))

    await eventually(it_waits, DEADLINE, "the commit waits for a standby")
    assert not commit.done()
    cluster.thaw()
    assert await commit == "CREATE TABLE"
    await connection.close()


async def test_one_standby_is_enough_for_a_commit(cluster: Cluster, cluster_database: str) -> None:
    cluster.freeze(cluster.standbys[0])
    connection = await asyncpg.connect(cluster.dsn(cluster_database))
    assert await connection.execute("create table t ()", timeout=DEADLINE) == "CREATE TABLE"
    await connection.close()


async def test_the_owner_is_no_superuser_and_sees_how_far_the_standbys_are(
    cluster: Cluster, cluster_database: str
) -> None:
    connection = await asyncpg.connect(cluster.dsn(cluster_database))
    assert not await connection.fetchval("select usesuper from pg_user where usename = current_user")
    seen = await connection.fetch(
        "select application_name from pg_stat_replication where flush_lsn is not null and sync_priority > 0 order by 1"
    )
    assert [row["application_name"] for row in seen] == list(cluster.standbys)
    await connection.close()


class Writer:
    """Commits one number after the other, each for itself, until its connection is gone."""

    def __init__(self) -> None:
        self.confirmed = 0
        self._changed = asyncio.Event()

    async def write(self, dsn: str) -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute("create table numbers (number int)")
        with contextlib.suppress(asyncpg.PostgresError, OSError, asyncpg.InterfaceError):
            while True:
                await connection.execute("insert into numbers values ($1)", self.confirmed + 1)
                self.confirmed += 1
                self._changed.set()
        connection.terminate()

    async def has_confirmed(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE):
            while self.confirmed < count:
                self._changed.clear()
                await self._changed.wait()


async def test_a_failover_to_the_furthest_standby_loses_nothing_that_was_confirmed(cluster: Cluster) -> None:
    lost, behind = cluster.primary, cluster.standbys[0]
    async with cluster.database() as name:
        writer = Writer()
        writing = asyncio.create_task(writer.write(cluster.dsn(name)))
        await writer.has_confirmed(20)
        cluster.kill(behind)
        await writer.has_confirmed(writer.confirmed + 20)
        cluster.destroy(lost)
        await writing
        await cluster.start(behind)

        promoted = await cluster.promote_furthest()

        assert promoted not in (lost, behind)
        connection = await asyncpg.connect(cluster.dsn(name))
        numbers = [row["number"] for row in await connection.fetch("select number from numbers order by 1")]
        assert numbers[: writer.confirmed] == list(range(1, writer.confirmed + 1))
        assert await connection.execute("insert into numbers values (0)", timeout=DEADLINE) == "INSERT 0 1"
        await connection.close()


async def test_a_server_that_was_lost_comes_back_as_a_standby_of_the_promoted_one(cluster: Cluster) -> None:
    lost = cluster.primary
    cluster.destroy(lost)
    promoted = await cluster.promote_furthest()
    await cluster.rebuild(lost)
    assert cluster.primary == promoted
    assert await cluster.value(lost, "select pg_is_in_recovery()")
    assert lost in cluster.standbys


async def test_settings_that_were_changed_and_standbys_that_were_killed_are_as_before_for_the_next_test(
    cluster: Cluster,
) -> None:
    names = await cluster.value(cluster.primary, "show synchronous_standby_names")
    await cluster.alter_system(synchronous_standby_names="")
    assert await cluster.value(cluster.primary, "show synchronous_standby_names") == ""
    cluster.kill(cluster.standbys[0])
    cluster.freeze(cluster.standbys[1])
    await cluster.heal()
    assert await cluster.value(cluster.primary, "show synchronous_standby_names") == names


def test_nothing_is_left_of_three_servers_whatever_became_of_them() -> None:
    with contextlib.suppress(ZeroDivisionError), three_servers() as cluster:
        folder = Path(cluster.dsn().partition("host=")[2].partition("/pg/")[0])
        assert folder.is_dir()
        cluster.freeze()
        cluster.kill(cluster.primary)
        raise ZeroDivisionError
    assert not folder.exists()
    assert not _processes_of(folder)


def _processes_of(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found
