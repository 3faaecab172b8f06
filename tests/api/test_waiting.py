"""Claims about waiting for a receipt to close."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import httpx
import pytest

from relay.api.waiting import Waiting
from relay.domain.delivery import DeliveryMove
from relay.domain.outcome import OutcomeClass
from relay.store.receipts import Receipts
from relay.web.problems import Refused
from tests.api.world import World
from tests.support.asgi import served
from tests.support.world import real_ambient


@asynccontextmanager
async def client_of(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who asks over a socket, as only a socket shows that a client is there."""
    async with (
        served(world.app) as (host, port),
        asyncio.timeout(20),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=60) as client,
    ):
        yield client


def wait_for(client: httpx.AsyncClient, accepted: Any, seconds: float = 30) -> asyncio.Task[httpx.Response]:
    path = f"/v1/receipts/{accepted['receipt_id']}/wait?timeout={seconds}"
    return asyncio.create_task(client.get(path))


async def until_waiting(world: World, count: int) -> None:
    """Return once so many receipts were asked for at once."""
    await world.receipts.until(lambda: world.receipts.last == count)


async def until_nobody_waits() -> None:
    """Return once the loop that looks for all who wait has ended."""
    looking = [task for task in asyncio.all_tasks() if task.get_name() == "waiting for receipts"]
    async with asyncio.timeout(10):
        await asyncio.gather(*looking)


async def test_who_waits_is_answered_when_the_receipt_closes(world: World) -> None:
    await world.create()
    accepted = await world.post_event()
    async with client_of(world) as client:
        answer = wait_for(client, accepted)
        await until_waiting(world, 1)
        await world.attempt(DeliveryMove.ACK, OutcomeClass.SUCCESS)
        shown = (await answer).json()
    assert (shown["state"], shown["outcome"]) == ("closed", "delivered")
    assert shown == (await world.get(f"/v1/receipts/{accepted['receipt_id']}")).json()


async def test_a_receipt_that_is_closed_is_not_waited_for(world: World) -> None:
    await world.create()
    accepted = await world.post_event()
    await world.attempt(DeliveryMove.ACK, OutcomeClass.SUCCESS)
    async with client_of(world) as client:
        assert (await wait_for(client, accepted)).json()["state"] == "closed"


@pytest.mark.parametrize("seconds", [0, 0.01, 0.2])
async def test_who_waited_long_enough_gets_the_receipt_as_it_is(world: World, seconds: float) -> None:
    accepted = await world.post_event()
    async with client_of(world) as client:
        reply = await wait_for(client, accepted, seconds)
    assert (reply.status_code, reply.json()["state"]) == (200, "open")


async def test_a_process_that_stops_keeps_nobody_waiting(world: World) -> None:
    accepted = await world.post_event()
    async with client_of(world) as client:
        answer = wait_for(client, accepted)
        await until_waiting(world, 1)
        world.draining.is_on = True
        reply = await answer
    assert (reply.status_code, reply.json()["state"]) == (200, "open")


async def test_a_client_that_leaves_is_not_waited_for(world: World) -> None:
    accepted = await world.post_event()
    async with client_of(world) as client:
        answer = wait_for(client, accepted)
        await until_waiting(world, 1)
        answer.cancel()
        await until_nobody_waits()


async def test_a_database_that_is_away_is_told_to_all_who_wait(world: World) -> None:
    accepted = [await world.post_event() for _ in range(3)]
    async with client_of(world) as client:
        answers = [wait_for(client, each) for each in accepted]
        await until_waiting(world, 3)
        await world.database.close()
        replies = await asyncio.gather(*answers)
    assert [reply.json()["code"] for reply in replies] == ["database_unavailable"] * 3


@pytest.mark.parametrize("timeout", ["-1", "61", "nan", "inf", "soon", ""])
async def test_a_time_that_nobody_waits_is_refused(shared_world: World, timeout: str) -> None:
    accepted = await shared_world.post_event()
    reply = await shared_world.get(f"/v1/receipts/{accepted['receipt_id']}/wait?timeout={timeout}")
    assert (reply.status, reply.code) == (400, "bad_filter")


@pytest.mark.parametrize("receipt", ["x", "rcp_" + "0" * 32])
async def test_a_receipt_that_nobody_has_is_not_waited_for(shared_world: World, receipt: str) -> None:
    assert (await shared_world.get(f"/v1/receipts/{receipt}/wait")).code == "not_found"


def never() -> bool:
    return False


async def test_however_many_wait_one_question_is_asked_at_a_time_and_none_when_nobody_does(world: World) -> None:
    await world.create()
    receipts = [UUID(hex=event["receipt_id"][4:]) for event in await world.post_batch(200)]
    watched = world.receipts
    waiting = Waiting(receipts=watched, ambient=real_ambient(), is_draining=never)
    gone = asyncio.get_running_loop().create_future()
    waits = [asyncio.create_task(waiting.until_closed(each, seconds=30, gone=gone)) for each in receipts * 2]
    await watched.until(lambda: watched.asked >= 3)
    await world.sql("update receipts set outcome = 'delivered', closed_at = now(), acked = 1")
    await asyncio.gather(*waits)
    await until_nobody_waits()
    assert watched.most_at_once == 1
    assert watched.asked < 100


async def test_more_than_may_wait_are_sent_away(world: World) -> None:
    waiting = Waiting(receipts=Receipts(world.database), ambient=real_ambient(), is_draining=never, most_waiting=1)
    receipt = UUID(hex=(await world.post_event())["receipt_id"][4:])
    gone = asyncio.get_running_loop().create_future()
    first = asyncio.create_task(waiting.until_closed(receipt, seconds=30, gone=gone))
    await asyncio.sleep(0)
    with pytest.raises(Refused, match="overloaded"):
        await waiting.until_closed(receipt, seconds=30, gone=gone)
    gone.set_result(None)
    await first
    await waiting.until_closed(receipt, seconds=0, gone=gone)
