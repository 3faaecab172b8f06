"""Claims about patterns of types: in a subscription, in every filter and in what is sent again they mean the same."""

from __future__ import annotations

import pytest

from tests.api.world import World

TYPES = ("order.created", "order.created_v2", "orderXcreated", "order.created.eu", "Order.Created")
MEANT = {
    "order.created": {"order.created"},
    "order.*": {"order.created", "order.created_v2", "order.created.eu"},
    "*": set(TYPES),
    "ORDER.CREATED": set(),
    "order": set(),
}
NO_PATTERNS = ("order.creat?", "order.%", "order.*.paid", "")


@pytest.mark.parametrize("pattern", MEANT)
async def test_a_pattern_means_in_every_filter_what_it_means_in_a_subscription(world: World, pattern: str) -> None:
    """Case C161: exact, case and all; `_`, `.` and `%` stand for themselves."""
    for event_type in TYPES:
        await world.post_event(event_type)  # to nobody, so each is a dead letter
    for path in ("/v1/receipts", "/v1/dead-letters"):
        found = (await world.get(f"{path}?type={pattern}")).json()["data"]
        assert {each["type"] for each in found} == MEANT[pattern], path
    endpoint = await world.create(event_types=[pattern, pattern])
    for call in ("redrive", "discard"):
        reply = await world.send("POST", f"/v1/dead-letters/{call}", {"type": pattern, "dry_run": True})
        assert reply.json()["count"] == len(MEANT[pattern])
    for event_type in TYPES:
        owed = (await world.post_event(event_type))["deliveries"]
        assert [each["consumer"] for each in owed] == [endpoint["name"]] * (event_type in MEANT[pattern])


@pytest.mark.parametrize("text", NO_PATTERNS)
async def test_what_is_no_pattern_is_refused_wherever_one_is_wanted(shared_world: World, text: str) -> None:
    """Case C161."""
    asked = text.replace("%", "%25").replace("?", "%3F")
    replies = [
        await shared_world.get(f"/v1/receipts?type={asked}"),
        await shared_world.get(f"/v1/dead-letters?type={asked}"),
        await shared_world.send("POST", "/v1/dead-letters/redrive", {"type": text, "dry_run": True}),
        await shared_world.send("POST", "/v1/dead-letters/discard", {"type": text, "dry_run": True}),
        await shared_world.send("POST", "/v1/endpoints", {"url": "https://example.com/", "event_types": [text]}),
    ]
    assert [reply.status // 100 for reply in replies] == [4] * len(replies)
    nothing = await shared_world.send("POST", "/v1/endpoints", {"url": "https://example.com/", "event_types": []})
    assert nothing.status == 422
