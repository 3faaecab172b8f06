"""The database goes away and comes back under load: everybody recovers alone, and nothing that was accepted is lost."""

from __future__ import annotations

import asyncio
import signal

import pytest

from relay.embedded import EmbeddedServer
from tests.support.installation import Installation, add_endpoint, api, eventually, kill
from tests.support.producer import Producer, numbered
from tests.support.receiver import Receiver

EVENTS = 2_000
DEADLINE = 90.0


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "crashed"])
async def test_a_database_that_restarts_under_load_loses_nothing_and_needs_no_help(
    on_that_server: Installation, server: EmbeddedServer, receiver: Receiver, crash: bool
) -> None:
    installation = on_that_server
    assert installation.run("migrate").returncode == 0
    gateway, dispatcher = installation.gateway(), installation.dispatcher()
    processes = {gateway.worker(), dispatcher.worker()}
    add_endpoint(gateway, receiver.url("/slow?ms=10"))
    events = numbered(EVENTS)
    producer = Producer([gateway.url])
    posting = asyncio.create_task(producer.post(events, DEADLINE))
    await producer.has_accepted(EVENTS // 5, DEADLINE)

    if crash:
        kill(server.pid, signal.SIGQUIT)  # PostgreSQL's immediate end: no checkpoint, nobody is told
    await asyncio.to_thread(server.stop)

    async def says_so() -> bool:
        with api(gateway) as client:
            answer = await asyncio.to_thread(client.get, "/readyz")
        return answer.status_code == 503 and answer.json()["checks"]["database"] != "ok"

    await eventually(says_so, DEADLINE, "the gateway says that the database is away")
    await eventually(lambda: _true(producer.refusals[503] > 0), DEADLINE, "senders are told to try again")
    await asyncio.to_thread(server.start)
    await posting
    await installation.all_closed(EVENTS, DEADLINE)

    async def ready() -> bool:
        with api(gateway) as client:
            return (await asyncio.to_thread(client.get, "/readyz")).status_code == 200

    await eventually(ready, DEADLINE, "the gateway is ready again")
    assert {gateway.worker(), dispatcher.worker()} == processes, "nobody had to be restarted"
    for service in (gateway, dispatcher):
        assert "traceback" not in service.log.read_text().lower(), "a database that is away is no bug"
    assert "loop_held_up" in dispatcher.log.read_text()
    assert len(producer.accepted) == EVENTS
    assert await installation.value("select count(*) from journal") == EVENTS
    promised = {reply.json()["deliveries"][0]["id"] for reply in producer.accepted.values()}
    assert {arrival.delivery_id for arrival in receiver.received()} == promised


async def _true(holds: bool) -> bool:
    return holds
