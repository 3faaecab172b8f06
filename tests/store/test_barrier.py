"""The barrier: what it proves, what it leaves on the server, and what it does when the server is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from relay.domain.standbys import ServerSays, Standbys
from relay.domain.telemetry import QuorumLost, QuorumRegained
from relay.store import barrier as module
from relay.store.barrier import NAME, Barrier, cross
from relay.store.database import Commits, Connection, Database
from relay.store.faults import QuorumNotPromised
from relay.store.quorum import Horizon, Numbering, Sight
from tests.support.cluster import Cluster
from tests.support.installation import eventually
from tests.support.world import Ear, real_ambient

WAITING = "select pid from pg_stat_activity where application_name = $1 and wait_event = 'SyncRep'"
END = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1"


@pytest.fixture
async def database(cluster: Cluster, cluster_database: str) -> AsyncIterator[Database]:
    made = await Database.connect(
        cluster.dsn(cluster_database), name=NAME, size=1, commits=Commits.AS_SERVER_SAYS, within=4.0
    )
    yield made
    cluster.thaw()
    await made.close()


@pytest.fixture
async def here(cluster: Cluster, cluster_database: str) -> AsyncIterator[Database]:
    made = await Database.connect(cluster.dsn(cluster_database), name="relay-tests", size=1)
    yield made
    await made.close()


async def commit(here: Database) -> None:
    """Commit something on the primary's disk, and wait for nobody."""
    async with here.connection() as connection:
        await cross(connection)


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def barrier(database: Database, ear: Ear) -> Barrier:
    return Barrier(database, quorum=2, seconds=0.25, ambient=real_ambient(), emit=ear)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_SECONDS", 0.4)
    monkeypatch.setattr(module, "FORGOTTEN_SECONDS", 0.8)


async def test_many_who_wait_share_few_barriers(barrier: Barrier) -> None:
    async with barrier.running():
        assert all(await asyncio.gather(*(barrier.confirmed() for _ in range(200))))
    assert barrier.durability == (2, 3)


async def test_whoever_comes_while_a_barrier_is_out_waits_for_the_next_one(
    database: Database, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it waits for may have been committed after the first one."""
    asked: list[asyncio.Future[Sight]] = []
    called = asyncio.Event()

    async def ask(_: Barrier, *, probing: bool) -> Sight:
        del probing
        asked.append(asyncio.get_running_loop().create_future())
        called.set()
        return await asked[-1]

    monkeypatch.setattr(Barrier, "_ask", ask)
    barrier = Barrier(database, quorum=2, seconds=30.0, ambient=real_ambient(), emit=ear)
    async with barrier.running():
        first = asyncio.create_task(barrier.confirmed())
        await called.wait()
        called.clear()
        second = asyncio.create_task(barrier.confirmed())
        asked[0].set_result(sight(1))
        assert await first
        await called.wait()
        assert not second.done()
        asked[1].set_result(sight(1))
        assert await second


async def test_what_standbys_come_to_have_by_themselves_needs_no_barrier(
    barrier: Barrier, here: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unwanted(_: Connection) -> int:
        raise AssertionError("a barrier was sent")

    monkeypatch.setattr(module, "WATCH_SECONDS", 60.0)
    monkeypatch.setattr(module, "cross", unwanted)
    async with barrier.running():
        for _ in range(20):
            await commit(here)
            assert await barrier.confirmed()


async def test_whoever_asks_about_now_is_told_of_standbys_that_do_not_answer(
    barrier: Barrier, cluster: Cluster, here: Database
) -> None:
    async with barrier.running():
        await commit(here)
        assert await barrier.confirmed()
        cluster.freeze()
        assert not await barrier.confirmed(now=True)


@pytest.mark.parametrize("waits_for", ["ANY 2 (r2, r3)", "FIRST 1 (r2, r3)"])
async def test_nothing_is_confirmed_that_the_server_itself_would_still_wait_for(
    barrier: Barrier, cluster: Cluster, here: Database, waits_for: str
) -> None:
    await cluster.alter_system(synchronous_standby_names=waits_for)
    try:
        async with barrier.running():
            assert await barrier.confirmed()
            cluster.freeze("r2")
            await commit(here)
            assert not await barrier.confirmed()
            cluster.thaw()
    finally:
        await cluster.alter_system(synchronous_standby_names=None)


async def test_an_outage_is_told_once_and_so_is_its_end(
    barrier: Barrier, cluster: Cluster, here: Database, ear: Ear
) -> None:
    async with barrier.running():
        cluster.freeze()
        await commit(here)
        for _ in range(3):
            assert not await barrier.confirmed()
        cluster.thaw()
        await ear.until(lambda: ear.of(QuorumRegained) != [])
        assert await barrier.confirmed()
    assert len(ear.of(QuorumLost)) == 1
    assert barrier.missing is None


@pytest.mark.usefixtures("hasty")
async def test_a_long_outage_leaves_one_connection_waiting(
    barrier: Barrier, cluster: Cluster, here: Database, ear: Ear
) -> None:
    async with barrier.running():
        cluster.freeze()
        await commit(here)
        assert not await barrier.confirmed()
        seen = await _barriers(cluster, 4)
        assert len(seen) >= 4
        await eventually(_asks(cluster), 10.0, "one barrier alone is out")
        cluster.thaw()
        await ear.until(lambda: ear.of(QuorumRegained) != [])


@pytest.mark.usefixtures("hasty")
async def test_what_a_killed_process_left_waiting_is_ended(
    barrier: Barrier, cluster: Cluster, cluster_database: str
) -> None:
    dsn = cluster.dsn(cluster_database)
    left = await asyncpg.connect(dsn, server_settings={"application_name": NAME, "synchronous_commit": "on"})
    pid = left.get_server_pid()
    cluster.freeze()
    hanging = asyncio.create_task(left.execute("select pg_logical_emit_message(true, 'relay', '')"))
    async with barrier.running():
        assert not await barrier.confirmed()

        async def is_gone() -> bool:
            return pid not in await waiting(cluster)

        await eventually(is_gone, 20.0, "the forgotten barrier was ended")
    await hanging
    left.terminate()


async def test_nothing_is_left_waiting_when_a_process_stops(barrier: Barrier, cluster: Cluster, here: Database) -> None:
    async with barrier.running():
        cluster.freeze()
        await commit(here)
        assert not await barrier.confirmed()

    async def nobody() -> bool:
        return not await waiting(cluster)

    await eventually(nobody, 10.0, "no barrier waits")


async def test_a_server_that_promises_less_is_refused_at_the_start(barrier: Barrier, cluster: Cluster) -> None:
    await barrier.check()
    await cluster.alter_system(synchronous_standby_names="ANY 1 (*)")
    try:
        with pytest.raises(QuorumNotPromised, match="name the standbys"):
            await barrier.check()
    finally:
        await cluster.alter_system(synchronous_standby_names=None)


async def test_a_role_that_may_not_see_the_standbys_is_refused_with_what_to_grant(
    barrier: Barrier, cluster: Cluster
) -> None:
    await cluster.fetch(cluster.primary, "revoke pg_monitor from relay")
    try:
        with pytest.raises(QuorumNotPromised, match="GRANT pg_monitor"):
            await barrier.check()
    finally:
        await cluster.fetch(cluster.primary, "grant pg_monitor to relay")


async def test_a_database_that_is_away_confirms_nothing_and_is_found_again(barrier: Barrier, cluster: Cluster) -> None:
    async with barrier.running():
        assert await barrier.confirmed()
        await cluster.fetch(cluster.primary, END, NAME)

        async def is_confirmed() -> bool:
            return await barrier.confirmed()

        await eventually(is_confirmed, 10.0, "the barrier has a new connection")


HERE = Numbering(timeline=1, session=10)
WHOLE = 1 << 32
SAID = ServerSays("ANY 1 (a, b)", ("on",), "on", sees_standbys=True)


def sight(standbys: int, said: ServerSays = SAID, *, releasing: int = 2, awaited: int = 1) -> Sight:
    return Sight(1000, standbys, 2, releasing, Horizon(HERE, 700), said, Standbys(awaited, ("a", "b")))


@pytest.mark.parametrize(("standbys", "quorum", "proves"), [(0, 2, False), (1, 2, True), (2, 2, True), (1, 3, False)])
def test_so_many_standbys_prove_it_with_the_primary(standbys: int, quorum: int, proves: bool) -> None:
    assert sight(standbys).proves(quorum) is proves


@pytest.mark.parametrize(
    ("standbys", "releasing", "awaited", "replaces"),
    [(1, 1, 1, True), (1, 0, 1, False), (1, 1, 2, False), (2, 2, 2, True), (0, 1, 1, False)],
)
def test_a_look_replaces_a_barrier_that_would_come_back_at_once(
    standbys: int, releasing: int, awaited: int, replaces: bool
) -> None:
    assert sight(standbys, releasing=releasing, awaited=awaited).replaces_barrier(2) is replaces


def test_what_is_not_promised_is_not_proven() -> None:
    assert not sight(2, ServerSays("", ("on",), "on", sees_standbys=True)).proves(2)


@pytest.mark.parametrize(
    ("xid", "numbering", "before_xid", "written_by", "covers"),
    [
        (700, HERE, 800, 699, True),
        (700, HERE, 800, 700, False),
        (700, HERE, 800, 799, False),
        (700, Numbering(2, 10), 800, 699, False),
        (700, Numbering(1, 11), 800, 699, False),  # the same server after a crash gives numbers out again
        (WHOLE + 5, HERE, WHOLE + 9, 4, True),
        (WHOLE + 5, HERE, WHOLE + 9, WHOLE - 10, True),
        (WHOLE + 5, HERE, WHOLE + 9, 6, False),
        (700, HERE, 3 * WHOLE + 600, 500, False),  # far newer than the horizon, whatever its last bits say
        (700, HERE, 700, 700, True),  # of 32 bits ago
    ],
)
def test_a_horizon_covers_what_was_written_before_it(
    xid: int, numbering: Numbering, before_xid: int, written_by: int, covers: bool
) -> None:
    assert Horizon(HERE, xid).covers(numbering, before_xid, written_by) is covers


def test_a_horizon_covers_what_had_ended_beside_what_was_running() -> None:
    horizon = Horizon(HERE, 700, end=710, running=frozenset({700, 705}))
    covered = [xid for xid in range(695, 715) if horizon.covers(HERE, 800, xid)]
    assert covered == [695, 696, 697, 698, 699, 701, 702, 703, 704, 706, 707, 708, 709]


async def waiting(cluster: Cluster) -> set[int]:
    """The server's processes that wait for standbys on behalf of a barrier."""
    return {row["pid"] for row in await cluster.fetch(cluster.primary, WAITING, NAME)}


def _asks(cluster: Cluster) -> Callable[[], Awaitable[bool]]:
    async def one_is_out() -> bool:
        return len(await waiting(cluster)) == 1

    return one_is_out


async def _barriers(cluster: Cluster, number: int) -> set[int]:
    """The servers' processes for so many barriers, one after the other."""
    seen: set[int] = set()

    async def enough() -> bool:
        seen.update(await waiting(cluster))
        return len(seen) >= number

    await eventually(enough, 30.0, f"{number} barriers were sent")
    return seen
