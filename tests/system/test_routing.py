"""Routing: an endpoint that was answered is routed to, and an event is stored with its whole fan-out or not at all."""

from __future__ import annotations

import asyncio
import signal

import asyncpg
import httpx

from tests.support.installation import UNLIMITED, Installation, eventually, kill
from tests.support.producer import Event, Producer, numbered
from tests.support.receiver import Receiver
from tests.support.wire import Wire, request

ROUNDS = 100
LOAD = 100_000
DELIVERED_SECONDS = 60.0
RECOVERED_SECONDS = 60.0


async def test_an_endpoint_created_a_moment_before_a_post_is_always_routed_to_under_load(
    installation: Installation, receiver: Receiver
) -> None:
    gateways = [installation.gateway(), installation.gateway()]
    installation.dispatcher()
    load = Producer([gateway.url for gateway in gateways], connections=4)
    loading = asyncio.create_task(load.post(numbered(LOAD), DELIVERED_SECONDS))
    await load.has_accepted(20, DELIVERED_SECONDS)
    clients = [httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30.0) for gateway in gateways]
    wires = [await Wire.connect(gateway.url) for gateway in gateways]
    try:
        for number in range(ROUNDS):
            there, elsewhere = number % 2, (number + number // 2) % 2
            fields = {"url": receiver.url("/ok/fresh"), "event_types": [f"fresh.n{number}"], **UNLIMITED}
            created = await clients[there].post("/v1/endpoints", json=fields)
            assert created.status_code == 201, created.text
            reply = await wires[elsewhere].ask(Event(f"fresh-{number}", b"{}", f"fresh.n{number}").bytes)
            assert reply.status == 202, reply.body
            assert [owed["endpoint_id"] for owed in reply.json()["deliveries"]] == [created.json()["id"]]
    finally:
        loading.cancel()
        await asyncio.wait([loading])
        for client in clients:
            await client.aclose()
        for wire in wires:
            await wire.close()
    assert len(load.accepted) > 100, "there was load"
    await receiver.arrive(ROUNDS, DELIVERED_SECONDS, "/ok/fresh")


async def test_a_gateway_killed_in_the_middle_of_an_append_leaves_an_event_with_its_whole_fan_out_or_none(
    installation: Installation, receiver: Receiver
) -> None:
    gateway = installation.gateway()
    installation.dispatcher()
    consumers = 20
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30.0) as client:
        for number in range(consumers):
            fields = {"url": receiver.url(f"/ok/c{number}"), "name": f"c{number}", **UNLIMITED}
            assert (await client.post("/v1/endpoints", json=fields)).status_code == 201
    post = Event("cut", b'{"cut": true}').bytes

    # the append writes deliveries and receipts, and waits for the partition's head before the journal
    holder = await asyncpg.connect(installation.dsn)
    holding = holder.transaction()
    await holding.start()
    await holder.execute("select from journal_heads for update")
    wire = await Wire.connect(gateway.url)
    await wire.write(post)

    async def append_waits() -> bool:
        waiting = (
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%append_events%'"
        )
        return bool(await installation.value(waiting))

    await eventually(append_waits, RECOVERED_SECONDS, "the append waits for the head")
    killed = gateway.worker()
    kill(killed, signal.SIGKILL)
    await wire.closed()
    await wire.close()
    await holding.rollback()
    await holder.close()

    producer = Producer([gateway.url], connections=1)
    await producer.post([Event("cut", b'{"cut": true}')], RECOVERED_SECONDS)
    assert gateway.worker() != killed
    owed = producer.accepted["cut"].json()["deliveries"]
    assert len(owed) == consumers
    await installation.all_closed(1, DELIVERED_SECONDS)
    assert await installation.value("select count(*) from journal") == 1
    assert {str(row[0]) for row in await installation.fetch("select id from deliveries")} == {d["id"] for d in owed}
    assert {arrival.delivery_id for arrival in receiver.received()} == {d["id"] for d in owed}


async def test_an_event_that_nobody_subscribed_to_is_accepted_and_says_so(installation: Installation) -> None:
    gateway = installation.gateway()
    async with await Wire.connect(gateway.url) as wire:
        reply = await wire.ask(Event("lonely", b"{}").bytes)
        assert (reply.status, reply.json()["deliveries"]) == (202, [])
        receipt = await wire.ask(request("GET", f"/v1/receipts/{reply.json()['receipt_id']}"))
    assert receipt.json()["reason"] == "no_route"
