"""Claims about health, readiness and metrics, against a real database."""

from __future__ import annotations

import asyncio
import re
import threading
from dataclasses import replace
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import pytest

from relay.api import readiness
from relay.store import health as health_of_the_store
from relay.store.database import Database
from relay.store.health import DISPATCHER, GATEWAY, Health, LateLook
from relay.store.queue import FIRST_LANE
from tests.api.world import World, new_id
from tests.support.quorum import barrier_of_one
from tests.support.world import real_ambient


async def test_a_process_that_answers_lives(world: World) -> None:
    await world.database.close()
    reply = await world.get("/healthz")
    assert (reply.status, reply.json()) == (200, {"status": "ok"})


async def test_ready_is_a_database_and_a_dispatcher_that_reported(world: World) -> None:
    await world.health.beat(new_id(), DISPATCHER)
    reply = await world.get("/readyz")
    assert reply.status == 200
    checks = {"database": "ok", "journal": "ok", "dispatcher": "ok", "queue": "ok"}
    assert reply.json() == {"ready": True, "checks": checks, "durability": {"confirmed": 1, "of": 1}}


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


async def test_a_database_that_answers_and_takes_no_writes_is_not_ready(world: World) -> None:
    await world.health.beat(new_id(), DISPATCHER)
    await world.sql(f"alter database {urlsplit(world.dsn).path[1:]} set default_transaction_read_only = on")
    async with World.over(world.dsn) as standby:
        reply = await standby.get("/readyz")
    assert reply.status == 503
    assert "cannot write" in reply.json()["checks"]["database"]
    assert "cannot write" in reply.json()["checks"]["journal"]


async def test_a_database_that_hangs_does_not_hang_readiness(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "CHECK_SECONDS", 1.5)
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
        "dispatcher": "the database did not answer within 1.5 s",
        "queue": "ok",
    }


INTAKE = "/readyz?for=intake"


async def test_events_are_taken_without_a_dispatcher_and_whatever_is_late(world: World) -> None:
    await owed(world, "-1 hour")
    await world.sql("delete from heartbeats")
    reply = await world.get(INTAKE)
    checks = {"database": "ok", "journal": "ok"}
    assert (reply.status, reply.json()) == (
        200,
        {"ready": True, "checks": checks, "durability": {"confirmed": 1, "of": 1}},
    )
    assert (await world.get("/readyz")).status == 503


async def test_intake_is_not_ready_while_the_process_stops(world: World) -> None:
    world.draining.is_on = True
    reply = await world.get(INTAKE)
    assert (reply.status, reply.json()["ready"]) == (503, False)
    assert set(reply.json()["checks"]) == {"database", "journal", "gateway"}


async def test_intake_is_not_ready_without_its_database(world: World) -> None:
    await world.database.close()
    reply = await world.get(INTAKE)
    assert (reply.status, set(reply.json()["checks"].values())) == (503, {"the database does not answer"})


async def test_a_readiness_for_anything_else_is_refused_and_told(world: World) -> None:
    reply = await world.get("/readyz?for=delivery")
    assert 400 <= reply.status < 500
    assert "intake" in reply.body.decode()


async def test_a_lock_that_keeps_deliveries_waiting_delays_no_answer_about_intake(world: World) -> None:
    """Somebody keeps the heartbeats, and the look at them keeps the connection that it asks by."""
    checks = await Database.connect(world.dsn, name="relay-tests checks", size=1)
    async with asyncio.timeout(10), world.database.transaction() as holder:
        asked = readiness.Readiness(
            health=Health(checks),
            intake=world.health,
            barrier=barrier_of_one(world.database),
            ambient=real_ambient(),
            late_seconds=60.0,
        )
        await holder.execute("lock table heartbeats in access exclusive mode")
        whole = asyncio.create_task(asked.checks())
        assert set((await asked.checks_of_intake()).values()) == {"ok"}
        assert not whole.done()
        await holder.execute("rollback; begin")
        await whole
    await checks.close()


async def owed(world: World, due: str) -> str:
    """A dispatcher that reports, and one pending delivery that is due then; answers its endpoint's id."""
    await world.health.beat(new_id(), DISPATCHER)
    endpoint = str((await world.create())["id"])
    await world.post_event()
    await world.sql("update deliveries set due_at = now() + $1::text::interval", due)
    return endpoint


async def test_a_queue_that_is_late_is_not_ready_and_says_by_how_much(world: World) -> None:
    await owed(world, "-75 seconds")
    reply = await world.get("/readyz")
    assert (reply.status, reply.json()["ready"]) == (503, False)
    fault = reply.json()["checks"]["queue"]
    assert re.fullmatch(r"the oldest due delivery is [789][0-9] s late; RELAY_READY_LATE_SECS allows 60 s", fault)


@pytest.mark.parametrize("due", ["-20 seconds", "1 hour"])
async def test_a_queue_is_ready_while_what_is_due_is_not_too_late(world: World, due: str) -> None:
    await owed(world, due)
    assert (await world.get("/readyz")).json()["checks"]["queue"] == "ok"


async def test_a_paused_lane_is_never_late(world: World) -> None:
    endpoint = await owed(world, "-1 hour")
    await world.send("POST", f"/v1/endpoints/{endpoint}/pause")
    assert (await world.get("/readyz")).json()["checks"]["queue"] == "ok"


@pytest.mark.parametrize(("reopened", "ok"), [("20 seconds", True), ("75 seconds", False)])
async def test_a_held_lane_is_late_from_its_reopening_on(world: World, reopened: str, ok: bool) -> None:
    await owed(world, "-1 hour")
    await world.sql("update endpoint_state set held_until = now() - $1::text::interval", reopened)
    assert ((await world.get("/readyz")).json()["checks"]["queue"] == "ok") is ok


async def test_what_has_been_sent_is_not_late(world: World) -> None:
    await owed(world, "-1 hour")
    await world.claim()
    assert (await world.get("/readyz")).status == 200


class Counting(Health):
    """Counts the rounds."""

    rounds = 0

    async def look_for_late(self, after: UUID = FIRST_LANE) -> LateLook:
        """The same, counted."""
        self.rounds += 1
        return await super().look_for_late(after)


class Clock:
    """Stands still unless it is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def counting(world: World) -> Counting:
    return Counting(world.database)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def asked(world: World, counting: Counting, clock: Clock) -> readiness.Readiness:
    ambient = replace(real_ambient(), monotonic=clock)
    return readiness.Readiness(
        health=counting, intake=counting, barrier=barrier_of_one(world.database), ambient=ambient, late_seconds=60.0
    )


async def test_many_who_ask_at_once_are_answered_from_one_round(asked: readiness.Readiness, counting: Counting) -> None:
    answers = await asyncio.gather(*(asked.checks() for _ in range(200)))
    assert counting.rounds == 1
    assert {answer["queue"] for answer in answers} == {"ok"}


async def test_an_answer_is_good_for_a_second(asked: readiness.Readiness, counting: Counting, clock: Clock) -> None:
    await asked.checks()
    clock.now += 0.9 * readiness.REST_SECONDS
    await asked.checks()
    assert counting.rounds == 1
    clock.now += 0.2 * readiness.REST_SECONDS
    await asked.checks()
    assert counting.rounds == 2


@pytest.mark.parametrize(("took", "rest"), [(0.001, 1.0), (0.04, 2.0), (1.5, 5.0)])
async def test_what_takes_long_is_asked_seldom_but_not_too_seldom(
    asked: readiness.Readiness, counting: Counting, clock: Clock, monkeypatch: pytest.MonkeyPatch,
    took: float, rest: float,
) -> None:  # fmt: skip # what the test varies stands apart
    async def slowly(_: Health) -> None:
        clock.now += took

    monkeypatch.setattr(Health, "writes", slowly)
    await asked.checks()
    clock.now += rest - 0.01
    await asked.checks()
    assert counting.rounds == 1
    clock.now += 0.02
    await asked.checks()
    assert counting.rounds == 2


async def test_who_leaves_does_not_end_the_round_for_the_others(world: World, asked: readiness.Readiness) -> None:
    async with asyncio.timeout(10), world.database.transaction() as holder:
        await holder.execute("lock table heartbeats in access exclusive mode")
        first, second = asyncio.create_task(asked.checks()), asyncio.create_task(asked.checks())
        await asyncio.wait([first, second], timeout=0.05)
        first.cancel()
        await asyncio.wait([first])
        await holder.execute("rollback; begin")
        assert "relay dispatcher" in (await second)["dispatcher"]


async def test_metrics_are_served_in_the_format_that_is_asked_for(world: World) -> None:
    reply = await world.get("/metrics", ("Accept", "application/openmetrics-text"))
    assert (reply.status, reply.body) == (200, b"relay_up 1\n")
    assert reply.headers["content-type"] == "text/plain; asked='application/openmetrics-text'"
    assert (await world.get("/metrics")).headers["content-type"] == "text/plain; asked=''"


async def test_numbers_are_written_out_beside_the_loop_and_not_on_it(world: World) -> None:
    where: list[threading.Thread] = []

    def exposition(_: str) -> tuple[str, bytes]:
        where.append(threading.current_thread())
        return "text/plain", b""

    world.api.state.deps = replace(world.api.state.deps, exposition=exposition)
    assert (await world.get("/metrics")).status == 200
    assert where != [threading.current_thread()]


async def test_of_very_many_lanes_each_answer_looks_at_some_and_the_next_one_at_others(
    world: World, asked: readiness.Readiness, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lane at a time of three, and the second is late: it is found, and stays so until its lane was seen again."""
    monkeypatch.setattr(health_of_the_store, "LANES_AT_ONCE", 1)
    for _ in range(3):
        await owed(world, "1 hour")
    lanes = [row[0] for row in await world.sql("select distinct endpoint_id from deliveries order by endpoint_id")]
    late = "update deliveries set due_at = now() - interval '75 seconds' where endpoint_id = $1"
    await world.sql(late, lanes[1])

    async def answers(number: int) -> list[bool]:
        seen = []
        for _ in range(number):
            clock.now += 2 * readiness.LONGEST_REST_SECONDS
            seen.append((await asked.checks())["queue"] == "ok")
        return seen

    # the third lane is the last, which the look behind it finds out
    assert await answers(4) == [True, False, False, False]
    await world.sql("update deliveries set due_at = now() + interval '1 hour'")
    assert await answers(4) == [False, False, False, False]
    assert await answers(4) == [True, True, True, True]
