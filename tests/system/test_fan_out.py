"""One event for a thousand endpoints, its acks recorded by four dispatchers and two gateways at once."""

from __future__ import annotations

import asyncio

import httpx

from tests.support.installation import UNLIMITED, Installation, Service, metrics, post
from tests.support.receiver import Receiver

CONSUMERS = 1_000
AT_ONCE = 8
DELIVERED_SECONDS = 120.0
CLOSED = 'receipts_closed_total{outcome="delivered"}'


async def subscribe(gateway: Service, urls: list[str]) -> None:
    """An endpoint for each url; every other one acks by a call."""
    numbered = list(enumerate(urls))

    async def some(start: int) -> None:
        for number, url in numbered[start::AT_ONCE]:
            ack = "explicit" if "ack-later" in url else "response"
            fields = {"url": url, "name": f"consumer-{number}", "ack": ack, **UNLIMITED}
            answer = await client.post("/v1/endpoints", json=fields)
            assert answer.status_code == 201, answer.text

    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=60.0) as client:
        await asyncio.gather(*map(some, range(AT_ONCE)))


async def test_a_thousand_acks_recorded_by_several_processes_close_a_receipt_once_and_at_the_last(
    patient: Installation,
) -> None:
    gateway = patient.gateway(workers="2")
    dispatcher = patient.dispatcher(workers="4")
    with Receiver(relay_url=gateway.url) as receiver:
        modes = (receiver.url("/ok"), receiver.url("/ack-later?ms=1"))
        await subscribe(gateway, [modes[number % 2] for number in range(CONSUMERS)])
        accepted = post(gateway, b'{"type": "invoice.paid"}').json()
        assert len(accepted["deliveries"]) == CONSUMERS
        await patient.all_closed(1, DELIVERED_SECONDS)
    (row,) = await patient.fetch(
        "select acked, expected, closed_at >= (select max(acked_at) from deliveries) from receipts"
    )
    assert tuple(row) == (CONSUMERS, CONSUMERS, True)
    assert metrics(gateway)[CLOSED] + metrics(dispatcher)[CLOSED] == 1
    assert await patient.value("select count(*) from delivery_attempts where not late") == CONSUMERS
    assert metrics(dispatcher)["relay_leases_lost_total"] == 0
