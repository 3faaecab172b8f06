"""`relay verify` of a system that lives: always right, whatever moves meanwhile, and exact once it has come to rest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.installation import Installation, add_endpoint
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
