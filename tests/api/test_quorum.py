"""Changes and readiness while the standbys of three real servers are there, frozen, and back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from relay.domain.telemetry import QuorumLost, QuorumRegained
from tests.api.world import ENDPOINTS, URL, World
from tests.support.cluster import Cluster


@pytest.fixture
async def world(cluster: Cluster, cluster_database: str) -> AsyncIterator[World]:
    async with World.over(cluster.dsn(cluster_database), quorum=2) as made:
        yield made
        cluster.thaw()


async def test_a_change_that_the_quorum_has_is_answered_with_yes(world: World) -> None:
    created = await world.create(name="ledger")
    assert (await world.send("PATCH", f"{ENDPOINTS}/{created['id']}", {"burst": 5})).status == 200
    assert (await world.send("DELETE", f"{ENDPOINTS}/{created['id']}")).status == 204


async def test_an_ack_is_answered_with_yes_once_the_quorum_has_it_and_taken_once_however_often_it_comes(
    world: World, cluster: Cluster
) -> None:
    await world.create(name="ledger", ack="explicit")
    receipt = (await world.post_event())["receipt_id"]
    path, body = f"/v1/receipts/{receipt}/acks", {"consumer": "ledger"}
    cluster.freeze()
    reply = await world.send("POST", path, body)
    assert (reply.status, reply.code) == (503, "journal_quorum")
    cluster.thaw()
    await world.ear.until(lambda: world.ear.of(QuorumRegained) != [])
    assert (await world.send("POST", path, body)).json()["outcome"] == "delivered"
    assert await world.count("receipts where acked = 1") == 1


async def test_a_change_that_no_standby_confirms_is_not_answered_with_yes(world: World, cluster: Cluster) -> None:
    cluster.freeze()
    reply = await world.send("POST", ENDPOINTS, {"url": URL, "name": "ledger"})
    assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "journal_quorum", "1")
    assert "may be lost" in reply.json()["detail"]


async def test_while_the_quorum_is_missing_nothing_is_changed_and_everything_can_be_read(
    world: World, cluster: Cluster
) -> None:
    created = await world.create(name="ledger")
    path = f"{ENDPOINTS}/{created['id']}"
    cluster.freeze()
    assert (await world.send("PATCH", path, {"burst": 7})).status == 503
    refused = await world.send("PATCH", path, {"burst": 9})
    assert (refused.status, refused.code) == (503, "journal_quorum")
    assert "nothing is changed" in refused.json()["detail"]
    assert (await world.get(path)).json()["burst"] == 7
    cluster.thaw()
    await world.ear.until(lambda: world.ear.of(QuorumRegained) != [])
    assert (await world.send("PATCH", path, {"burst": 9})).status == 200


async def test_a_refusal_needs_no_quorum(world: World, cluster: Cluster) -> None:
    cluster.freeze()
    assert (await world.send("PATCH", f"{ENDPOINTS}/ep_0", {"burst": 7})).status == 404
    assert world.ear.of(QuorumLost) == []


async def test_readiness_says_in_words_that_the_quorum_is_missing(world: World, cluster: Cluster) -> None:
    cluster.freeze()
    reply = await world.get("/readyz")
    assert reply.status == 503
    assert reply.json()["checks"]["journal"] == "no standby has confirmed the journal within 250 ms"
    assert reply.json()["checks"]["database"] == "ok"
    assert reply.json()["durability"]["confirmed"] == 2


async def test_readiness_names_what_the_server_no_longer_promises(world: World, cluster: Cluster) -> None:
    await cluster.alter_system(synchronous_standby_names="")
    try:
        said = (await world.get("/readyz")).json()["checks"]["journal"]
    finally:
        await cluster.alter_system(synchronous_standby_names=None)
    assert "synchronous_standby_names is empty" in said


async def test_a_change_on_a_server_that_stood_still_while_another_was_promoted_is_not_answered_with_yes(
    world: World, cluster: Cluster
) -> None:
    """It goes on as a primary, and the new one's standbys prove what they have of the new one alone."""
    created = await world.create(name="ledger")
    lost = cluster.primary
    await cluster.part(*cluster.standbys)
    cluster.freeze(lost)
    try:
        await cluster.promote_furthest()
        assert not await world.barrier.confirmed()
        await world.ear.until(lambda: world.ear.of(QuorumRegained) != [], within=30.0)
        cluster.thaw(lost)
        reply = await world.send("PATCH", f"{ENDPOINTS}/{created['id']}", {"burst": 7})
        assert (reply.status, reply.code) == (503, "journal_quorum")
        assert "may be lost" in reply.json()["detail"]
    finally:
        cluster.destroy(lost)
