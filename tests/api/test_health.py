"""Claims about health, readiness and metrics, against a real database."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from relay.api import health
from relay.store.health import DISPATCHER, GATEWAY
from tests.api.world import World, new_id


async def test_a_process_that_answers_lives(world: World) -> None:
    await world.database.close()
    reply = await world.get("/healthz")
    assert (reply.status, reply.json()) == (200, {"status": "ok"})


async def test_ready_is_a_database_and_a_dispatcher_that_reported(world: World) -> None:
    await world.health.beat(new_id(), DISPATCHER)
    reply = await world.get("/readyz")
    assert reply.status == 200
    assert reply.json() == {"ready": True, "checks": {"database": "ok", "journal": "ok", "dispatcher": "ok"}}


async def test_without_a_dispatcher_a_gateway_is_not_ready(world: World) -> None:
    await world.health.beat(new_id(), GATEWAY)
    reply = await world.get("/readyz")
    assert (reply.status, reply.json()["ready"]) == (503, False)
    assert "relay dispatcher" in reply.json()["checks"]["dispatcher"]


async def test_a_dispatcher_that_is_silent_for_half_a_minute_is_missed(world: World) -> None:
    await world.health.beat(new_id(), DISPATCHER)
    await world.sql("update heartbeats set reported_at = now() - interval '31 seconds'")
    reply = await world.get("/readyz")
    assert (reply.status, reply.json()["checks"]["dispatcher"]) == (503, "no dispatcher has reported for 31 s")


async def test_one_dispatcher_of_several_is_enough(world: World) -> None:
    await world.health.beat(new_id(), DISPATCHER)
    await world.sql("update heartbeats set reported_at = now() - interval '1 hour'")
    await world.health.beat(new_id(), DISPATCHER)
    assert (await world.get("/readyz")).status == 200


async def test_a_process_that_drains_is_not_ready(world: World) -> None:
    await world.health.beat(new_id(), DISPATCHER)
    world.draining.is_on = True
    reply = await world.get("/readyz")
    assert (reply.status, reply.json()["ready"]) == (503, False)
    assert "stopping" in reply.json()["checks"]["gateway"]


async def test_without_its_database_a_gateway_is_not_ready(world: World) -> None:
    await world.database.close()
    reply = await world.get("/readyz")
    assert reply.status == 503
    assert set(reply.json()["checks"].values()) == {"the database does not answer"}


async def test_a_database_that_hangs_does_not_hang_readiness(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.1)
    holder = await asyncpg.connect(world.dsn)
    try:
        async with asyncio.timeout(10), holder.transaction():
            await holder.execute("lock table heartbeats in access exclusive mode")
            reply = await world.get("/readyz")
    finally:
        await holder.close()
    assert reply.status == 503
    assert reply.json()["checks"] == {
        "database": "ok",
        "journal": "ok",
        "dispatcher": "the database did not answer within 0.1 s",
    }


async def test_metrics_are_served_in_the_format_that_is_asked_for(world: World) -> None:
    reply = await world.get("/metrics", ("Accept", "application/openmetrics-text"))
    assert (reply.status, reply.body) == (200, b"relay_up 1\n")
    assert reply.headers["content-type"] == "text/plain; asked='application/openmetrics-text'"
    assert (await world.get("/metrics")).headers["content-type"] == "text/plain; asked=''"
