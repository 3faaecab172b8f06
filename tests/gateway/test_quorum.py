"""The quorum, seen by senders: three real servers, of which the standbys stop when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from relay.domain.telemetry import AppendCommitted, DurabilityKnown, QuorumLost, QuorumRegained
from relay.gateway import confirming
from relay.store.journal import Journal
from tests.gateway.world import World, event
from tests.support.asgi import Reply
from tests.support.cluster import Cluster
from tests.support.installation import eventually

KEY = ("Idempotency-Key", "order-1")
DEADLINE = 30.0


@pytest.fixture
async def world(cluster_database: str, cluster: Cluster) -> AsyncIterator[World]:
    async with World.over(cluster.dsn(cluster_database), quorum=2) as made:
        await made.gateway.start()
        yield made
        cluster.thaw()


async def statuses(world: World) -> list[tuple[str, bool]]:
    rows = await world.sql(
        "select d.status::text, r.void_at is not null from deliveries d join receipts r on r.id = d.receipt_id"
    )
    return [tuple(row) for row in rows]


async def regained(world: World) -> None:
    await world.ear.until(lambda: bool(world.ear.of(QuorumRegained)))


async def test_an_accepted_event_says_what_its_202_waited_for(world: World) -> None:
    await world.subscribe()
    reply = await world.post()
    assert reply.status == 202
    assert reply.json()["durability"] == {"confirmed": 2, "of": 3}
    assert world.ear.of(DurabilityKnown) == [DurabilityKnown(2, 3)]
    assert len(world.ear.of(AppendCommitted)) == 1


async def test_without_standbys_an_event_is_refused_in_time_and_void(world: World, cluster: Cluster) -> None:
    await world.subscribe()
    cluster.freeze()
    reply = await world.post(event(), KEY)
    assert (reply.status, reply.code) == (503, "journal_quorum")
    assert reply.headers["retry-after"] == "1"
    assert await statuses(world) == [("void", True)]


async def test_while_the_quorum_is_missing_nothing_is_written(world: World, cluster: Cluster) -> None:
    await world.subscribe()
    cluster.freeze()
    await world.post()
    (lost,) = world.ear.of(QuorumLost)
    assert "250 ms" in lost.why
    for _ in range(5):
        assert (await world.post()).code == "journal_quorum"
    assert len(await statuses(world)) == 1


async def test_a_retry_revives_the_same_receipt_and_its_answers_stay_the_same(world: World, cluster: Cluster) -> None:
    await world.subscribe()
    cluster.freeze()
    assert (await world.post(event(), KEY)).status == 503
    (void,) = await world.sql("select id from receipts")
    cluster.thaw()
    await regained(world)
    revived = await world.post(event(), KEY)
    assert (revived.status, revived.headers.get("relay-idempotent-replay")) == (202, None)
    assert await statuses(world) == [("pending", False)]
    assert revived.json()["receipt_id"].removeprefix("rcp_") == void["id"].hex
    for _ in range(3):
        again = await world.post(event(), KEY)
        assert (again.status, again.body, again.headers["relay-idempotent-replay"]) == (202, revived.body, "true")
    assert len(await world.sql("select from journal")) == 1


async def test_a_replay_of_what_is_on_one_machine_alone_gets_no_early_202(world: World, cluster: Cluster) -> None:
    await world.subscribe()
    cluster.freeze()
    first, second = await asyncio.gather(world.post(event(), KEY), _later(world))
    assert (first.status, second.status) == (503, 503)
    assert await statuses(world) == [("void", True)]


async def _later(world: World) -> Reply:
    await eventually(partial(is_written, world), DEADLINE, "the first request has written its event")
    return await world.post(event(), KEY)


async def test_who_shares_a_group_with_another_body_of_its_name_is_answered_for_its_own(world: World) -> None:
    first = await world.post(event(), KEY)
    other, same = await asyncio.gather(world.post(event("other"), KEY), world.post(event(), KEY))
    assert (other.status, other.code) == (409, "idempotency_key_reused")
    assert (same.status, same.body) == (202, first.body)


async def test_an_event_that_matches_nothing_is_void_too_and_no_dead_letter(world: World, cluster: Cluster) -> None:
    cluster.freeze()
    assert (await world.post(event(), KEY)).status == 503
    assert await world.sql("select from receipts where unrouted_at is not null") == []
    cluster.thaw()
    await regained(world)
    assert (await world.post(event(), KEY)).status == 202
    assert len(await world.sql("select from receipts where unrouted_at is not null and void_at is null")) == 1


async def test_a_quorum_that_comes_back_before_the_void_makes_it_a_202_after_all(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirming, "VOID_SECONDS", DEADLINE)
    await world.subscribe()
    cluster.freeze()
    posting = asyncio.create_task(world.post())
    await eventually(partial(is_written, world), DEADLINE, "the event is written")
    async with world.database.transaction() as holding:
        # the void locks the delivery first, and asks the standbys then
        await holding.execute("select from deliveries for update")
        await world.ear.until(lambda: world.ear.of(QuorumLost) != [])
        cluster.thaw()
        await eventually(partial(has_caught_up, world), DEADLINE, "a standby has everything")
    assert (await posting).status == 202
    assert await statuses(world) == [("pending", False)]


async def test_a_replay_is_not_confirmed_once_its_event_is_void(
    world: World, cluster: Cluster, cluster_database: str
) -> None:
    async with World.over(cluster.dsn(cluster_database), quorum=2, seconds=DEADLINE) as patient:
        await patient.gateway.start()
        await world.subscribe()
        cluster.freeze()
        refused = asyncio.create_task(world.post(event(), KEY))
        await eventually(partial(is_written, world), DEADLINE, "the event is written")
        replaying = asyncio.create_task(patient.post(event(), KEY))
        first = await refused
        cluster.thaw()
        replay = await replaying
    assert (first.status, first.code) == (replay.status, replay.code) == (503, "journal_quorum")
    assert await statuses(world) == [("void", True)]


async def test_what_a_replay_at_another_gateway_was_told_is_not_taken_back(
    world: World, cluster: Cluster, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first gateway's void is late: another one has proved the event meanwhile, and more was written since."""
    monkeypatch.setattr(confirming, "VOID_SECONDS", DEADLINE)
    may_void, void = asyncio.Event(), Journal.void

    async def late(journal: Journal, *args: Any, **kwargs: Any) -> Any:
        await may_void.wait()
        return await void(journal, *args, **kwargs)

    monkeypatch.setattr(Journal, "void", late)
    async with World.over(cluster.dsn(cluster_database), quorum=2) as other:
        await other.gateway.start()
        await world.subscribe()
        cluster.freeze()
        refused = asyncio.create_task(world.post(event(), KEY))
        await world.ear.until(lambda: world.ear.of(QuorumLost) != [])
        cluster.thaw()
        assert (await other.post(event(), KEY)).status == 202
        cluster.freeze()
        await world.sql("insert into heartbeats values (gen_random_uuid(), 'other', now())")
        may_void.set()
        reply = await refused
    assert (reply.status, "may count" in reply.json()["detail"]) == (503, True)
    assert await statuses(world) == [("pending", False)]


async def is_written(world: World) -> bool:
    return bool(await world.sql("select from receipts"))


async def has_caught_up(world: World) -> bool:
    return bool(await world.sql("select from listed_standbys where flushed >= pg_current_wal_flush_lsn()"))


async def test_one_standby_is_enough(world: World, cluster: Cluster) -> None:
    cluster.freeze(cluster.standbys[0])
    assert (await world.post()).json()["durability"] == {"confirmed": 2, "of": 3}


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("synchronous_standby_names", "", "synchronous_standby_names is empty"),
        ("synchronous_standby_names", "ANY 1 (*)", "name the standbys"),
        ("synchronous_standby_names", "ANY 1 (elsewhere)", "no standby has confirmed"),
        ("synchronous_commit", "remote_write", "'remote_write'"),
    ],
)
async def test_a_server_that_promises_less_is_noticed_before_the_next_202(
    world: World, cluster: Cluster, setting: str, value: str, words: str
) -> None:
    assert (await world.post()).status == 202
    await cluster.alter_system(**{setting: value})
    try:
        assert (await world.post()).status == 503
        assert words in (world.barrier.missing or "")
    finally:
        await cluster.alter_system(**{setting: None})
    await regained(world)
    assert (await world.post()).status == 202


async def test_a_level_that_is_lowered_for_the_role_is_noticed_before_the_next_202(
    world: World, cluster: Cluster
) -> None:
    assert (await world.post()).status == 202
    await cluster.fetch(cluster.primary, "alter role relay set synchronous_commit = off")
    try:
        assert (await world.post()).status == 503
        assert "'off'" in (world.barrier.missing or "")
    finally:
        await cluster.fetch(cluster.primary, "alter role relay reset synchronous_commit")
    await regained(world)
    assert (await world.post()).status == 202
