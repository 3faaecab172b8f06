"""`relay verify` of a system that lives: always right, whatever moves meanwhile, and exact once it has come to rest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.installation import Installation, add_endpoint, api, eventually, post
from tests.support.producer import Event, Producer, numbered
from tests.support.receiver import Receiver

DEADLINE = 90.0
TIMES = 3


def until(stopped: asyncio.Event) -> Iterator[Event]:
    """Events without an end, until it is reached."""
    for event in numbered(1_000_000):
        if stopped.is_set():
            return
        yield event


async def verify(installation: Installation) -> dict[str, Any]:
    """What `relay verify` says; it must find nothing wrong."""
    done = await asyncio.to_thread(installation.run, "verify")
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}\n{done.stderr}"
    return dict(json.loads(done.stdout))


@pytest.mark.timeout(240)
async def test_a_system_that_accepts_delivers_and_buries_is_right_whenever_it_is_looked_at(
    installation: Installation, receiver: Receiver
) -> None:
    gateway = installation.gateway()
    installation.dispatcher()
    for path in ("/ok", "/flaky?pct=30", "/status/404"):
        add_endpoint(gateway, receiver.url(path))
    stopped = asyncio.Event()
    producer = Producer([gateway.url], connections=4)
    posting = asyncio.create_task(producer.post(until(stopped), DEADLINE))
    await producer.has_accepted(200, DEADLINE)

    counted = []
    for _ in range(TIMES):
        before = len(producer.accepted)
        found = await verify(installation)
        assert before <= found["events"]
        assert found["events"] < len(producer.accepted) + 200, "it ends, although more events come all the time"
        counted.append(found["events"])
        await producer.has_accepted(len(producer.accepted) + 100, DEADLINE)
    assert counted == sorted(set(counted))

    stopped.set()
    await posting
    at_rest = await verify(installation)
    accepted = len(producer.accepted)
    assert (at_rest["events"], at_rest["matched"], at_rest["unaccounted"]) == (accepted, 3 * accepted, 0)


BURIALS: dict[str, dict[str, Any]] = {
    "/status/400": {},
    "/status/410": {},
    "/status/404": {"ack": "explicit"},
    "/always500": {"retry": {"max_attempts": 1}},
    "/status/503": {"ack": "explicit", "retry": {"max_attempts": 1}},
}
"""Endpoints at which a delivery dies, each in a way of its own; behind a 410 the next one waits."""

DEAD = 2 * len(BURIALS) - 1
"""What dies of two events."""


async def test_what_was_acked_after_its_burial_is_accounted_for(installation: Installation, receiver: Receiver) -> None:
    """Acks of dead letters of each kind: as they lie, given up, and of endpoints that were removed."""
    gateway = installation.gateway()
    installation.dispatcher()
    for path, fields in BURIALS.items():
        add_endpoint(gateway, receiver.url(path), event_types=["acked"], **fields)
    removed = add_endpoint(gateway, receiver.url("/ok"), event_types=["acked"], ack="explicit")
    receipts = [post(gateway, b'{"type": "acked"}').json()["receipt_id"] for _ in range(2)]
    with api(gateway) as client:
        await eventually(lambda: _is_dead(installation, DEAD), DEADLINE, "all that can die is dead")
        assert client.delete(f"/v1/endpoints/{removed['id']}").is_success
        await eventually(lambda: _is_dead(installation, DEAD + 2), DEADLINE, "the removed one's as well")
        for receipt, given_up in zip(receipts, (False, True), strict=True):
            if given_up:
                assert client.post("/v1/dead-letters/discard", json={}).json()["count"] == len(BURIALS)
            for delivery in client.get(f"/v1/receipts/{receipt}").json()["deliveries"]:
                acked = client.post(f"/v1/receipts/{receipt}/acks", json={"delivery_id": delivery["id"]})
                assert acked.is_success, acked.text
            assert client.get(f"/v1/receipts/{receipt}").json()["outcome"] == "delivered"
    found = await verify(installation)
    assert (found["matched"], found["unaccounted"]) == (2 * len(BURIALS) + 2, 0)


async def _is_dead(installation: Installation, number: int) -> bool:
    return bool(await installation.value("select count(*) from deliveries where status = 'dead'") == number)
