"""kill -9 at every point that matters: nothing that got a 202 is missing, and what comes twice says so by its id."""

from __future__ import annotations

import asyncio
import signal

import asyncpg
import pytest

from tests.support.accounting import assert_complete
from tests.support.gate import Gate
from tests.support.installation import (
    BRIEF_LEASE,
    Installation,
    add_endpoint,
    eventually,
    kill,
    metrics,
    replaced,
)
from tests.support.producer import Producer, numbered
from tests.support.receiver import Receiver

EVENTS = 1_000
DEADLINE = 90.0


LEASE_AND_SWEEP_SECONDS = 6.1 + 5.0
MARGIN_SECONDS = 15.0
"""What a busy machine may add."""


async def nothing_in_flight(installation: Installation) -> bool:
    return bool(await installation.value("select count(*) = 0 from deliveries where status = 'in_flight'"))


async def test_a_dispatcher_killed_in_the_middle_of_a_thousand_deliveries_loses_none(
    installation: Installation, receiver: Receiver
) -> None:
    gateway = installation.gateway()
    dispatcher = installation.dispatcher(**BRIEF_LEASE)
    # whenever it is killed, much is under way: each answer takes long, and there are many places
    add_endpoint(gateway, receiver.url("/slow?ms=300"), max_in_flight=128)
    events = numbered(EVENTS)
    producer = Producer([gateway.url])
    posting = asyncio.create_task(producer.post(events, DEADLINE))

    await receiver.arrive(EVENTS // 4, DEADLINE)
    killed = dispatcher.worker()
    kill(killed, signal.SIGKILL)
    await posting
    await replaced(dispatcher, killed)
    await installation.all_closed(EVENTS, DEADLINE)

    arrivals = receiver.received()
    assert_complete(arrivals, producer.accepted, events)
    assert len(producer.accepted) == EVENTS
    assert len(arrivals) > EVENTS, "what was under way when the dispatcher died was sent again"
    assert await nothing_in_flight(installation)
    assert await installation.value("select sum(attempts) from deliveries") >= len(arrivals)


async def test_gateways_killed_in_the_middle_of_posting_lose_nothing_that_was_accepted(
    installation: Installation, receiver: Receiver
) -> None:
    gateway = installation.gateway()
    installation.dispatcher()
    add_endpoint(gateway, receiver.url())
    events = numbered(EVENTS)
    producer = Producer([gateway.url])
    posting = asyncio.create_task(producer.post(events, DEADLINE))
    for share in (0.2, 0.6):
        await producer.has_accepted(int(EVENTS * share), DEADLINE)
        killed = gateway.worker()
        kill(killed, signal.SIGKILL)
        await replaced(gateway, killed)
    await posting

    assert len(producer.accepted) == EVENTS
    assert producer.unanswered > 0, "the kills met requests"
    assert await installation.value("select count(*) from journal") == EVENTS
    await installation.all_closed(EVENTS, DEADLINE)
    assert_complete(receiver.received(), producer.accepted, events)
    numbers = [row[0] for row in await installation.fetch("select number from journal order by number")]
    assert numbers == list(range(1, EVENTS + 1)), "positions have no gap"


async def test_what_a_dead_dispatcher_held_is_sent_by_another_without_any_new_traffic(
    installation: Installation,
) -> None:
    """Cases C95 and C110: the receiver has each body in whole and has not answered when the sender dies; the other one
    is there, has nothing to do, and is told nothing."""
    held = 50
    async with Gate() as gate:
        gateway = installation.gateway()
        doomed, heir = (installation.dispatcher(**BRIEF_LEASE) for _ in range(2))
        idle = heir.worker()
        kill(idle, signal.SIGSTOP)  # else it would take some of them itself
        for number in range(held):
            add_endpoint(gateway, gate.url, name=f"consumer-{number}")
        await Producer([gateway.url]).post(numbered(1), DEADLINE)
        first = {visit.delivery_id: visit for visit in await gate.visits(held, DEADLINE)}
        doomed.kill()
        kill(idle, signal.SIGCONT)

        second = await gate.visits(held, LEASE_AND_SWEEP_SECONDS + MARGIN_SECONDS)
        for visit in second:
            assert visit.body == first[visit.delivery_id].body
            assert (first[visit.delivery_id].attempt, visit.attempt) == (1, 2)
            visit.answer(200)
        assert {visit.delivery_id for visit in second} == first.keys()
        await installation.all_closed(1, DEADLINE)
        assert gate.waiting == 0

    async def none_expired() -> bool:
        return metrics(heir)["relay_leases_expired"] == 0

    await eventually(none_expired, DEADLINE, "no lease has run out that nobody took back")
    assert await installation.value("select bool_and(attempts = 2) from deliveries")
    assert metrics(heir)["relay_leases_reaped_total"] == held
    tried = await installation.fetch(
        "select attempt, outcome_class::text, error_class, count(*) from delivery_attempts group by 1, 2, 3 order by 1"
    )
    assert [tuple(row) for row in tried] == [(1, "retryable", "lease_expired", held), (2, "success", None, held)]


async def test_a_dispatcher_killed_between_the_answer_and_its_record_sends_again_under_the_same_id(
    installation: Installation,
) -> None:
    """Case C95: the 200 is there, its record is not yet committed."""
    async with Gate() as gate:
        gateway = installation.gateway()
        dispatcher = installation.dispatcher(**BRIEF_LEASE)
        add_endpoint(gateway, gate.url)
        await Producer([gateway.url]).post(numbered(1), DEADLINE)
        first = await gate.visit(DEADLINE)

        holder = await asyncpg.connect(installation.dsn)
        holding = holder.transaction()
        await holding.start()
        await holder.execute("select from deliveries for update")
        first.answer(200)

        async def record_waits() -> list[asyncpg.Record]:
            waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like $1"
            return await installation.fetch(waiting, "%record_outcomes%")

        (session,) = await eventually(record_waits, DEADLINE, "the record waits for the row")
        kill(dispatcher.worker(), signal.SIGKILL)
        # a statement that the server has already would be carried out although its sender is dead
        assert await installation.value("select pg_terminate_backend($1, 10000)", session["pid"])
        await holding.rollback()
        await holder.close()

        second = await gate.visit(LEASE_AND_SWEEP_SECONDS + MARGIN_SECONDS)
        assert (second.delivery_id, second.attempt) == (first.delivery_id, 2)
        second.answer(200)
        await installation.all_closed(1, DEADLINE)
    assert await installation.value("select attempts from deliveries") == 2


@pytest.mark.parametrize("kind", ["gateway", "dispatcher"])
async def test_workers_do_not_outlive_a_parent_that_was_killed(installation: Installation, kind: str) -> None:
    service = installation.gateway(workers="2") if kind == "gateway" else installation.dispatcher(workers="2")
    assert service.started["workers"] == 2
    assert len(service.workers()) == 2
    service.signal(signal.SIGKILL)
    service.wait()
    await installation.no_strays()
