"""Claims about requests of one name, against a real database."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from relay.domain.telemetry import IdempotentReplay, RejectReason, RequestRefused
from tests.gateway.world import JSON, World, event
from tests.support.asgi import Reply

KEY = ("Idempotency-Key", "order-17")
REPLAY = "relay-idempotent-replay"


def bodies(replies: list[Reply]) -> Counter[tuple[int, bytes]]:
    return Counter((reply.status, reply.body) for reply in replies)


async def test_a_hundred_requests_of_one_name_at_once_are_one_event(world: World) -> None:
    for _ in range(3):
        await world.subscribe()
    replies = await asyncio.gather(*[world.post(event(), KEY) for _ in range(100)])
    assert len(bodies(replies)) == 1
    assert replies[0].status == 202
    assert sum(REPLAY not in reply.headers for reply in replies) == 1
    assert [await world.count(table) for table in ("journal", "receipts", "deliveries")] == [1, 1, 3]
    assert len(world.ear.of(IdempotentReplay)) == 99


async def test_a_hundred_requests_of_one_name_in_two_processes_are_one_event(world: World) -> None:
    """Case C55: every answer is the same 202, byte for byte."""
    await world.subscribe()
    async with World.over(world.dsn) as other:
        replies = await asyncio.gather(*[each.post(event(), KEY) for _ in range(50) for each in (world, other)])
    assert len(bodies(replies)) == 1
    assert sum(REPLAY not in reply.headers for reply in replies) == 1
    assert [await world.count(table) for table in ("journal", "deliveries")] == [1, 1]


async def test_a_name_is_remembered_over_a_restart(world: World) -> None:
    await world.subscribe()
    first = await world.post(event(), KEY)
    await world.subscribe()
    async with World.over(world.dsn) as restarted:
        later = await restarted.post(event(), KEY)
    assert later.body == first.body
    assert later.headers[REPLAY] == "true"
    assert await world.count("journal") == 1


async def test_the_quoted_and_the_bare_form_are_one_name(world: World) -> None:
    first = await world.post(event(), ("Idempotency-Key", '"order-17"'))
    assert (await world.post(event(), KEY)).body == first.body


@pytest.mark.parametrize("body", [event(n=2), event("invoice.void"), event() + b"\n"])
async def test_another_type_or_body_under_a_name_is_a_conflict(world: World, body: bytes) -> None:
    """Case C56."""
    first = await world.post(event(), KEY)
    other = await world.post(body, KEY)
    assert (other.status, other.code) == (409, "idempotency_key_reused")
    assert (await world.post(event(), KEY)).body == first.body
    assert await world.count("journal") == 1
    assert world.ear.of(RequestRefused) == [RequestRefused(RejectReason.IDEMPOTENCY)]


async def test_another_type_in_the_header_is_a_conflict(world: World) -> None:
    replies = [await world.request(headers=[JSON, KEY, ("Relay-Event-Type", name)], body=b"{}") for name in ("a", "b")]
    assert [reply.status for reply in replies] == [202, 409]


async def test_two_bodies_at_once_under_one_name_are_one_event_and_conflicts(world: World) -> None:
    posts = [world.post(event(n=n % 2), KEY) for n in range(40)]
    replies = await asyncio.gather(*posts)
    assert Counter(reply.status for reply in replies) == {202: 20, 409: 20}
    assert await world.count("journal") == 1


async def test_a_conflict_does_not_swallow_the_rightful_request_behind_it(world: World) -> None:
    """Both wait for one append, the wrong one first: what the right one repeats was stored before."""
    first = await world.post(event(), KEY)
    async with world.appends_held():
        blocker = asyncio.create_task(world.post())
        await world.until_an_append_waits()
        wrong = asyncio.create_task(world.post(event(n=2), KEY))
        right = asyncio.create_task(world.post(event(), KEY))
        await world.until_waiting(2)
    await blocker
    assert (await wrong).code == "idempotency_key_reused"
    assert (await right).body == first.body


async def test_requests_without_a_name_are_events_of_their_own(world: World) -> None:
    replies = await asyncio.gather(*[world.post(event()) for _ in range(10)])
    assert len({reply.json()["event_id"] for reply in replies}) == 10
    assert await world.count("journal") == 10
