"""`POST /v1/receipts/{id}/acks`: an endpoint's own word that it has processed an event."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from relay.api import acking
from relay.api.acking import Acking
from relay.domain.delivery import DeliveryMove
from relay.domain.outcome import OutcomeClass
from relay.domain.telemetry import DeliveriesAcked, ReceiptsClosed
from relay.store.acks import Ack, AckWanted
from relay.store.faults import StoreUnavailable
from tests.api.world import World, new_id
from tests.support.administration import TENANT
from tests.support.asgi import Reply


async def received(world: World) -> Any:
    """An event that its endpoint has received and not acked."""
    await world.create(name="ledger", ack="explicit")
    accepted = await world.post_event()
    await world.attempt(DeliveryMove.RECEIVE, OutcomeClass.SUCCESS)
    return accepted


async def ack(world: World, receipt: str, **body: object) -> Reply:
    """Ack something of a receipt."""
    return await world.send("POST", f"/v1/receipts/{receipt}/acks", body)


async def test_what_was_received_waits_for_its_ack(world: World) -> None:
    accepted = await received(world)
    shown = (await world.get(f"/v1/receipts/{accepted['receipt_id']}")).json()
    (delivery,) = shown["deliveries"]
    assert (delivery["status"], delivery["waiting_for"], delivery["boundary"]) == ("in_flight", "ack", "B4")
    assert shown["state"] == "open"


async def test_an_ack_closes_the_receipt_and_says_so(world: World) -> None:
    accepted = await received(world)
    delivery = accepted["deliveries"][0]
    reply = await ack(world, accepted["receipt_id"], delivery_id=delivery["id"])
    assert reply.status == 200
    said = reply.json()
    acked_at = said.pop("acked_at")
    assert said == {
        "receipt_id": accepted["receipt_id"],
        "delivery_id": delivery["id"],
        "endpoint_id": delivery["endpoint_id"],
        "consumer": "ledger",
        "state": "closed",
        "outcome": "delivered",
    }
    shown = (await world.get(f"/v1/receipts/{accepted['receipt_id']}")).json()
    assert (shown["outcome"], shown["deliveries"][0]["acked_at"]) == ("delivered", acked_at)
    assert [entry["what"] for entry in shown["timeline"]][-2:] == ["acked", "closed"]


async def test_an_ack_names_its_consumer_as_well(world: World) -> None:
    accepted = await received(world)
    reply = await ack(world, accepted["receipt_id"], consumer="ledger")
    assert (reply.status, reply.json()["delivery_id"]) == (200, accepted["deliveries"][0]["id"])


async def test_the_same_ack_again_is_answered_with_the_same_bytes_and_told_once(world: World) -> None:
    accepted = await received(world)
    replies = [await ack(world, accepted["receipt_id"], consumer="ledger") for _ in range(3)]
    assert len({reply.body for reply in replies}) == 1
    assert [len(each.acks) for each in world.ear.of(DeliveriesAcked)] == [1]
    assert [each.count for each in world.ear.of(ReceiptsClosed)] == [1]


async def test_an_ack_is_taken_before_the_answer_to_its_delivery(world: World) -> None:
    await world.create(name="ledger", ack="explicit")
    accepted = await world.post_event()
    await world.claim()
    assert (await ack(world, accepted["receipt_id"], consumer="ledger")).json()["outcome"] == "delivered"


async def test_acks_that_come_together_share_their_transactions(world: World) -> None:
    """Each gets its own answer; of one receipt, one closes it."""
    for number in range(20):
        await world.create(name=f"n-{number}", ack="explicit")
    accepted = await world.post_event()
    calls = (ack(world, accepted["receipt_id"], consumer=f"n-{number}") for number in range(20))
    replies = await asyncio.gather(*calls, ack(world, accepted["receipt_id"], consumer="nobody"))
    assert [reply.status for reply in replies] == [200] * 20 + [404]
    assert {reply.json()["consumer"] for reply in replies[:20]} == {f"n-{number}" for number in range(20)}
    assert [each.count for each in world.ear.of(ReceiptsClosed)] == [1]
    assert len(world.ear.of(DeliveriesAcked)) < 20


async def test_an_ack_for_an_unknown_consumer_says_that_it_is_the_consumer(world: World) -> None:
    accepted = await received(world)
    reply = await ack(world, accepted["receipt_id"], consumer="nobody")
    assert reply.json()["detail"] == "there is no delivery of that receipt to a consumer of that name"


async def test_there_is_no_ack_for_what_is_not_owed(world: World) -> None:
    accepted = await received(world)
    other = await world.post_event()
    await world.create(name="later")
    unknown = "rcp_" + "0" * 32
    delivery = accepted["deliveries"][0]["id"]
    for receipt, body in (
        (accepted["receipt_id"], {"consumer": "later"}),
        (accepted["receipt_id"], {"consumer": "nobody"}),
        (accepted["receipt_id"], {"delivery_id": other["deliveries"][0]["id"]}),
        (accepted["receipt_id"], {"delivery_id": "no id at all"}),
        (other["receipt_id"], {"delivery_id": delivery}),
        (unknown, {"delivery_id": delivery}),
        ("rcp_1", {"delivery_id": delivery}),
    ):
        reply = await ack(world, receipt, **body)
        assert (reply.status, reply.code) == (404, "not_found"), body
    assert (await world.get(f"/v1/receipts/{accepted['receipt_id']}")).json()["state"] == "open"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"consumer": None},
        {"delivery_id": 7},
        {"consumer": "a", "delivery_id": "b"},
        {"consumer": ""},
        {"all": True},
    ],
    ids=str,
)
async def test_a_call_that_names_no_delivery_or_two_is_refused(shared_world: World, body: dict[str, object]) -> None:
    reply = await ack(shared_world, "rcp_" + "0" * 32, **body)
    assert (reply.status, reply.code) == (422, "invalid")


async def test_a_late_ack_takes_a_dead_letter_off_the_list(world: World) -> None:
    accepted = await received(world)
    await world.sql("update deliveries set status = 'dead', dead_at = now(), dead_reason = 'exhausted'")
    (letter,) = (await world.get("/v1/dead-letters")).json()["data"]
    assert (letter["boundary"], letter["reason"]) == ("B4", "exhausted")
    assert (await ack(world, accepted["receipt_id"], consumer="ledger")).json()["state"] == "closed"
    assert (await world.get("/v1/dead-letters")).json()["data"] == []
    shown = (await world.get(f"/v1/receipts/{accepted['receipt_id']}")).json()
    assert [entry["what"] for entry in shown["timeline"]][-3:] == ["dead_lettered", "acked", "closed"]


async def test_a_database_that_is_away_is_told_to_all_who_wait_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each transaction would wait for it anew, and whoever stands last for all of them."""
    monkeypatch.setattr(acking, "MOST", 1)
    taking: Acking = world.api.state.acking
    asked: list[int] = []
    acknowledge = taking._acks.acknowledge

    async def counted(wanted: Sequence[AckWanted]) -> list[Ack | None]:
        asked.append(len(wanted))
        return await acknowledge(wanted)

    monkeypatch.setattr(taking._acks, "acknowledge", counted)
    await world.database.close()
    calls = (taking.take(AckWanted(TENANT, new_id(), None, "ledger")) for _ in range(3))
    assert [type(each) for each in await asyncio.gather(*calls, return_exceptions=True)] == [StoreUnavailable] * 3
    assert asked == [1]
