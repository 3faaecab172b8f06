"""Claims that hold for every way in which an event may come: alone, in a batch, as a CloudEvent of either mode."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.gateway.world import JSON, MAX_PAYLOAD_BYTES, World, element

Way = Callable[[World, str, str | None, bytes], Awaitable[Any]]
"""Posts a payload of a type under a name; answers the 202's body, or the problem document."""

PAYLOAD = b'{"n": 1}'


async def alone(world: World, event_type: str, name: str | None, payload: bytes) -> Any:
    headers = [JSON, ("Relay-Event-Type", event_type)]
    if name is not None:
        headers.append(("Idempotency-Key", name))
    return (await world.request(headers=headers, body=payload)).json()


async def in_a_batch(world: World, event_type: str, name: str | None, payload: bytes) -> Any:
    others = [element("other.one"), element("other.two")]
    reply = await world.post_batch([others[0], element(event_type, name, payload), others[1]])
    assert reply.status == 202
    _, result, _ = reply.json()["data"]
    return result.get("error", result)


async def as_a_binary_cloudevent(world: World, event_type: str, name: str | None, payload: bytes) -> Any:
    lines = [("ce-specversion", "1.0"), ("ce-id", name or "1"), ("ce-source", "/a"), ("ce-type", event_type)]
    return (await world.request(headers=[JSON, *lines], body=payload)).json()


async def as_a_structured_cloudevent(world: World, event_type: str, name: str | None, payload: bytes) -> Any:
    members = json.dumps({"specversion": "1.0", "id": name or "1", "source": "/a", "type": event_type}).encode()
    body = members[:-1] + b',"data":' + payload + b"}"
    return (await world.request(headers=[("Content-Type", "application/cloudevents+json")], body=body)).json()


WAYS: list[Way] = [alone, in_a_batch, as_a_binary_cloudevent, as_a_structured_cloudevent]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


async def written(world: World, event_type: str = "order.made") -> int:
    (row,) = await world.sql("select count(*) from journal where type = $1", event_type)
    count: int = row[0]
    return count


@every_way
async def test_a_name_whose_time_is_over_names_a_new_event_and_repeats_that_one_from_then_on(
    world: World, way: Way
) -> None:
    """Case C60: exactly two events, the third request is answered with the second one's body."""
    first = await way(world, "order.made", "k", PAYLOAD)
    await world.sql("update idempotency_keys set expires_at = now() - interval '1 second'")
    second = await way(world, "order.made", "k", PAYLOAD)
    third = await way(world, "order.made", "k", PAYLOAD)
    assert first["event_id"] == second["event_id"] == "k"
    assert first["receipt_id"] != second["receipt_id"]
    assert third == second
    assert await written(world) == 2


@every_way
@pytest.mark.parametrize("changed", [b'{"n": 2}', b'{"n":1}', b'{"m": 0, "n": 1}'])
async def test_a_name_with_other_bytes_is_a_conflict_whatever_the_bytes_mean(
    world: World, way: Way, changed: bytes
) -> None:
    """Case C56: another value, other white space and other members are other requests alike."""
    first = await way(world, "order.made", "k", PAYLOAD)
    other = await way(world, "order.made", "k", changed)
    assert (other["status"], other["code"]) == (409, "idempotency_key_reused")
    assert await way(world, "order.made", "k", PAYLOAD) == first
    assert await written(world) == 1


SUBSCRIPTIONS = {
    "exact": ["order.created"],
    "below": ["order.*"],
    "all": ["*"],
    "shouted": ["ORDER.CREATED"],
    "stem": ["order"],
    "twice": ["order.created", "order.created"],
    "overlapping": ["order.created", "order.*", "*"],
}
WANTED = {
    "order.created": {"exact", "below", "all", "twice", "overlapping"},
    "order.created_v2": {"below", "all", "overlapping"},
    "orderXcreated": {"all", "overlapping"},
    "order.created.eu": {"below", "all", "overlapping"},
    "Order.Created": {"all", "overlapping"},
    "order": {"all", "stem", "overlapping"},
}


@every_way
async def test_an_event_goes_to_each_endpoint_once_whose_patterns_match_as_they_are_written(
    world: World, way: Way
) -> None:
    """Case C161: no character but the star has a meaning, case counts, and a repeated match is one delivery."""
    for name, patterns in SUBSCRIPTIONS.items():
        await world.subscribe(*patterns, name=name)
    for event_type, wanted in WANTED.items():
        answer = await way(world, event_type, event_type, PAYLOAD)
        assert sorted(owed["consumer"] for owed in answer["deliveries"]) == sorted(wanted), event_type


def sized(size: int) -> bytes:
    """A text of so many bytes, most of them characters of several bytes each, so that some stand across any border."""
    inner = size - 2
    return b'"' + "€".encode() * (inner // 3) + b"x" * (inner % 3) + b'"'


@pytest.mark.parametrize("way", WAYS[:3], ids=lambda way: way.__name__)
async def test_a_payload_may_have_exactly_the_limit_in_bytes(world: World, way: Way) -> None:
    """Case C162: a byte more is refused, with the limit in the answer; what is taken is never cut."""
    for size in (MAX_PAYLOAD_BYTES - 1, MAX_PAYLOAD_BYTES):
        answer = await way(world, "order.made", str(size), sized(size))
        assert answer["event_id"] == str(size)
    refused = await way(world, "order.made", "more", sized(MAX_PAYLOAD_BYTES + 1))
    assert (refused["status"], refused["code"]) == (413, "payload_too_large")
    assert refused["limit_bytes"] == MAX_PAYLOAD_BYTES
    assert str(MAX_PAYLOAD_BYTES) in refused["detail"]
    rows = await world.sql("select payload from journal where type = 'order.made' order by length(payload)")
    assert [row["payload"] for row in rows] == [sized(MAX_PAYLOAD_BYTES - 1), sized(MAX_PAYLOAD_BYTES)]


async def test_of_a_structured_cloudevent_the_whole_is_the_payload_and_has_the_limit(world: World) -> None:
    refused = await as_a_structured_cloudevent(world, "order.made", None, sized(MAX_PAYLOAD_BYTES))
    assert (refused["code"], refused["limit_bytes"]) == ("payload_too_large", MAX_PAYLOAD_BYTES)
