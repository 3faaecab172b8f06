"""Claims about test events: real ones, for one endpoint alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relay.domain.delivery import DeliveryMove
from relay.domain.outcome import OutcomeClass
from tests.api.world import ENDPOINTS, World


async def send_test(world: World, endpoint: Any) -> Any:
    reply = await world.send("POST", f"{ENDPOINTS}/{endpoint['id']}/test")
    assert reply.status == 202, reply
    return reply.json()


async def test_a_test_event_is_owed_to_its_endpoint_alone_whatever_the_patterns(world: World) -> None:
    await world.create(name="all", event_types=["*"])
    await world.create(name="tests", event_types=["relay.test"])
    endpoint = await world.create(name="ledger", event_types=["invoice.*"])
    accepted = await send_test(world, endpoint)
    (owed,) = accepted.pop("deliveries")
    assert (owed["endpoint_id"], owed["consumer"]) == (endpoint["id"], "ledger")
    assert accepted.keys() == {"receipt_id", "event_id", "journal_pos", "received_at", "durability"}
    claimed = await world.attempt(DeliveryMove.ACK, OutcomeClass.SUCCESS)
    assert (str(claimed.id), claimed.type) == (owed["id"], "relay.test")
    receipt = (await world.get(f"/v1/receipts/{accepted['receipt_id']}")).json()
    assert (receipt["outcome"], receipt["delivery_count"]) == ("delivered", 1)


async def test_a_test_event_says_what_it_is(world: World) -> None:
    endpoint = await world.create(name="ledger")
    accepted = await send_test(world, endpoint)
    payload = (await world.get(f"/v1/receipts/{accepted['receipt_id']}/payload")).json()
    assert payload == {
        "type": "relay.test",
        "endpoint_id": endpoint["id"],
        "consumer": "ledger",
        "message": "A test event, sent on demand to this endpoint alone.",
    }


async def test_a_test_event_shares_an_append_with_others_and_changes_nothing_for_them(world: World) -> None:
    await world.create(name="all")
    endpoint = await world.create(name="ledger", event_types=["nothing.else"])
    answers = await asyncio.gather(
        *[world.post_event() for _ in range(5)], send_test(world, endpoint), *[world.post_event() for _ in range(5)]
    )
    owed = [[each["consumer"] for each in answer["deliveries"]] for answer in answers]
    assert owed == [["all"]] * 5 + [["ledger"]] + [["all"]] * 5


async def test_a_paused_endpoint_gets_its_test_event_when_it_is_resumed(world: World) -> None:
    endpoint = await world.create()
    await world.send("POST", f"{ENDPOINTS}/{endpoint['id']}/pause")
    accepted = await send_test(world, endpoint)
    (owed,) = (await world.get(f"/v1/receipts/{accepted['receipt_id']}")).json()["deliveries"]
    assert owed["waiting_for"] == "paused"


@pytest.mark.parametrize("endpoint", ["x", "ep_" + "0" * 32])
async def test_an_endpoint_that_nobody_has_gets_no_test_event(shared_world: World, endpoint: str) -> None:
    before = await shared_world.count("receipts")
    assert (await shared_world.send("POST", f"{ENDPOINTS}/{endpoint}/test")).code == "not_found"
    assert await shared_world.count("receipts") == before


async def test_a_removed_endpoint_gets_no_test_event(world: World) -> None:
    endpoint = await world.create()
    await world.send("DELETE", f"{ENDPOINTS}/{endpoint['id']}")
    assert (await world.send("POST", f"{ENDPOINTS}/{endpoint['id']}/test")).code == "not_found"


async def test_another_tenants_endpoint_gets_no_test_event(world: World) -> None:
    endpoint = await world.create()
    await world.sql("insert into tenants (id, name, partition) values ('acct_other', 'other', 1)")
    await world.sql("update endpoints set tenant = 'acct_other'")
    assert (await world.send("POST", f"{ENDPOINTS}/{endpoint['id']}/test")).code == "not_found"
    assert await world.count("receipts") == 0


async def test_a_database_that_is_away_is_a_503(world: World) -> None:
    endpoint = await world.create()
    await world.database.close()
    assert (await world.send("POST", f"{ENDPOINTS}/{endpoint['id']}/test")).code == "database_unavailable"
