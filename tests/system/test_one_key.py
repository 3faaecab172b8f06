"""One name, one event: whoever asks, however many at once, before a restart and after it."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.installation import Installation, Service, add_endpoint
from tests.support.receiver import Receiver
from tests.support.wire import Reply, Wire, request

ASKING = 100
DELIVERED_SECONDS = 30.0
BODY = b'{"type": "order.paid", "amount": 4999.0, "id": 7}'


def named(key: str, body: bytes = BODY) -> bytes:
    return request(
        "POST", "/v1/events", headers={"content-type": "application/json", "idempotency-key": key}, body=body
    )


async def all_at_once(gateways: list[Service], count: int, data: bytes) -> list[Reply]:
    """Ask over so many connections, spread over the gateways, none of which has written a byte before all are there."""
    wires = [await Wire.connect(gateways[number % len(gateways)].url) for number in range(count)]
    try:
        return list(await asyncio.gather(*(wire.ask(data) for wire in wires)))
    finally:
        for wire in wires:
            await wire.close()


@pytest.mark.usefixtures("patient")
async def test_a_hundred_simultaneous_requests_of_one_name_are_one_event(
    installation: Installation, receiver: Receiver
) -> None:
    gateways = [installation.gateway(workers="2"), installation.gateway()]
    dispatcher = installation.dispatcher()
    for name in ("ledger", "mailer"):
        add_endpoint(gateways[0], receiver.url(f"/ok/{name}"), name=name)

    replies = await all_at_once(gateways, ASKING, named('"order-7"'))
    assert {reply.status for reply in replies} == {202}
    assert len({reply.body for reply in replies}) == 1
    assert sum("relay-idempotent-replay" not in reply.headers for reply in replies) == 1
    answer = replies[0].json()
    assert len(answer["deliveries"]) == 2

    await installation.all_closed(1, DELIVERED_SECONDS)
    arrived = receiver.received()
    assert sorted(arrival.path for arrival in arrived) == ["/ok/ledger", "/ok/mailer"]
    assert {arrival.delivery_id for arrival in arrived} == {delivery["id"] for delivery in answer["deliveries"]}

    # the same after a restart of everything, also for the key in its other spelling
    for service in (*gateways, dispatcher):
        assert service.stop() == 0
    for service in (*gateways, dispatcher):
        service.start()
    again = await all_at_once(gateways, 10, named("order-7"))
    assert {(reply.status, reply.body) for reply in again} == {(202, replies[0].body)}
    assert {reply.headers.get("relay-idempotent-replay") for reply in again} == {"true"}

    other = await all_at_once(gateways, 10, named('"order-7"', BODY + b" "))
    assert {(reply.status, reply.json()["code"]) for reply in other} == {(409, "idempotency_key_reused")}
    assert {reply.headers["content-type"] for reply in other} == {"application/problem+json"}

    counts = await installation.fetch(
        "select (select count(*) from journal), (select count(*) from receipts), (select count(*) from deliveries)"
    )
    assert tuple(counts[0]) == (1, 1, 2)
    assert len(receiver.received()) == 2


@pytest.mark.usefixtures("patient")
async def test_of_two_bodies_under_one_name_exactly_one_wins_however_they_race(installation: Installation) -> None:
    gateways = [installation.gateway(), installation.gateway()]
    wires = [await Wire.connect(gateways[number % 2].url) for number in range(40)]
    bodies = [b'{"type": "order.paid", "by": %d}' % (number // 2 % 2) for number in range(40)]
    replies = await asyncio.gather(*(wire.ask(named("k", body)) for wire, body in zip(wires, bodies, strict=True)))
    for wire in wires:
        await wire.close()

    won = {body for body, reply in zip(bodies, replies, strict=True) if reply.status == 202}
    assert len(won) == 1
    assert {reply.status for body, reply in zip(bodies, replies, strict=True) if body not in won} == {409}
    assert len({reply.body for reply in replies if reply.status == 202}) == 1
    assert await installation.value("select count(*) from journal") == 1
    assert await installation.value("select payload from journal") == won.pop()
