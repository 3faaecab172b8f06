"""Claims about rules that change while events come in, against a real database."""

from __future__ import annotations

import asyncio

import pytest

from relay.domain import ids
from relay.gateway import appender
from relay.web.credentials import ANONYMOUS
from relay.web.problems import ErrorCode, Refused
from tests.gateway.world import TENANT, World, event


async def test_an_endpoint_created_before_a_post_gets_its_event_under_load_in_two_processes(world: World) -> None:
    """Case C120. Both gateways are kept busy by other senders, so their snapshots are used, and stale, all the time."""
    over = asyncio.Event()

    async def load(gateway: World) -> int:
        count = 0
        while not over.is_set():
            reply = await gateway.post(event("load.more", n=count))
            assert reply.status == 202
            count += 1
        return count

    async with World.over(world.dsn) as other:
        senders = [asyncio.create_task(load(each)) for each in (world, other) for _ in range(4)]
        for n in range(30):
            endpoint = ids.write(ids.ENDPOINT, await world.subscribe(f"made.{n}"))
            for gateway in (world, other):
                answer = (await gateway.post(event(f"made.{n}"))).json()
                assert [owed["endpoint_id"] for owed in answer["deliveries"]] == [endpoint]
        over.set()
        assert min(await asyncio.gather(*senders)) > 0


async def test_an_endpoint_removed_before_a_post_gets_nothing_more(world: World) -> None:
    endpoint = await world.subscribe()
    async with World.over(world.dsn) as other:
        assert len((await other.post()).json()["deliveries"]) == 1
        assert await world.endpoints.remove(TENANT, endpoint)
        assert (await other.post()).json()["deliveries"] == []


async def test_the_answer_names_what_was_stored_after_the_rules_changed(world: World) -> None:
    """The first group was routed by old rules; what its senders read, and repeat, must be the second routing."""
    key = ("Idempotency-Key", "k")
    await world.gateway.start()
    async with World.over(world.dsn) as other:
        await other.subscribe()
    first, again = await asyncio.gather(world.post(event(), key), world.post(event(), key))
    assert len(first.json()["deliveries"]) == 1
    assert first.body == again.body
    (row,) = await world.sql("select id from deliveries")
    assert str(row["id"]) == first.json()["deliveries"][0]["id"]


async def test_a_test_event_whose_endpoint_was_removed_meanwhile_is_stored_nowhere(world: World) -> None:
    """Stored without a route, a later re-drive would send it to whoever subscribed to everything."""
    endpoint = await world.subscribe("nothing.else")
    await world.subscribe("*")
    await world.gateway.start()
    async with World.over(world.dsn) as other:
        assert await other.endpoints.remove(TENANT, endpoint)
    with pytest.raises(Refused) as refused:
        await world.gateway.trial.send(ANONYMOUS, endpoint, "gone")
    assert refused.value.problem.code is ErrorCode.NOT_FOUND
    assert await world.stored_nothing()


async def test_a_test_event_without_its_endpoint_changes_nothing_for_others_of_its_append(world: World) -> None:
    await world.subscribe("*")
    gone = await world.subscribe("nothing.else")
    assert await world.endpoints.remove(TENANT, gone)
    async with world.appends_held():
        first = asyncio.create_task(world.post())
        await world.until_an_append_waits()
        trial = asyncio.create_task(world.gateway.trial.send(ANONYMOUS, gone, "gone"))
        others = [asyncio.create_task(world.post()) for _ in range(3)]
    replies = await asyncio.gather(first, *others)
    assert [len(reply.json()["deliveries"]) for reply in replies] == [1] * 4
    with pytest.raises(Refused):
        await trial
    assert await world.count("receipts") == 4


async def test_a_test_event_finds_an_endpoint_made_since_the_rules_were_read(world: World) -> None:
    await world.gateway.start()
    async with World.over(world.dsn) as other:
        endpoint = await other.subscribe("nothing.else")
    assert (await world.gateway.trial.send(ANONYMOUS, endpoint, "new")).status == 202
    assert await world.count("deliveries") == 1


async def test_rules_that_never_stand_still_are_a_503(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender, "REDONE_SECONDS", 0.0)
    await world.gateway.start()
    await world.subscribe()
    reply = await world.post()
    assert (reply.status, reply.code) == (503, "database_unavailable")
    assert (await world.post()).status == 202
    assert await world.count("journal") == 1
