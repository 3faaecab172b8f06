"""An idle Relay costs next to nothing and yet is there at once; and a wake-up that gets lost costs a poll, no more."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping

from relay.store.database import Database
from relay.store.journal import Journal, Versions
from tests.store.world import event
from tests.support.installation import Installation, add_endpoint, cpu_seconds
from tests.support.link import Link
from tests.support.producer import Event, Producer, numbered
from tests.support.receiver import Receiver
from tests.support.wire import Wire

IDLE_SECONDS = 8.0
SHARE_OF_A_CORE = 0.05
"""Several times what is measured on a quiet machine: this counts processor time, which others cannot use up."""

GATEWAYS, DISPATCHERS, WORKERS = 2, 4, 2
A_GATEWAY_ASKS, A_DISPATCHER_ASKS = 2.0, 8.0
"""Statements a second, more than twice what they are. Each poll asks for a claim and then for how long there is
nothing to claim; every few seconds come the heartbeat and a round of each housekeeping loop."""

DEADLINE = 60.0
AT_ONCE_SECONDS = 15.0
"""On a machine that is busy with other tests; the poll, which would find the event too, comes every 60 seconds."""

FRESH_EVENTS = 20


async def test_an_idle_fleet_uses_next_to_no_processor_time_and_asks_the_database_next_to_nothing(
    installation: Installation, receiver: Receiver, transport: Mapping[str, str]
) -> None:
    installation.environment |= transport
    assert installation.dsn is not None
    async with Link(installation.dsn) as link:
        installation.environment["DATABASE_URL"] = link.dsn
        gateways = [installation.gateway(heartbeat_secs="5") for _ in range(GATEWAYS)]
        dispatchers = [installation.dispatcher(heartbeat_secs="5", workers=str(WORKERS)) for _ in range(DISPATCHERS)]
        await asyncio.to_thread(lambda: [each.started for each in (*gateways, *dispatchers)])
        await asyncio.to_thread(add_endpoint, gateways[0], receiver.url())
        # what is only made for a first event is made
        await Producer([each.url for each in gateways], connections=2).post(numbered(20), DEADLINE)
        await installation.all_closed(20, DEADLINE)

        processes = {
            f"{service} {role}": pid
            for service in (*gateways, *dispatchers)
            for role, pid in (("parent", service.pid), *service.workers().items())
        }
        assert len(processes) == 2 * GATEWAYS + (1 + WORKERS) * DISPATCHERS
        before = {name: cpu_seconds(pid) for name, pid in processes.items()}
        asked, began = link.statements, time.monotonic()
        # nothing is waited for: that nothing happens is the test
        await asyncio.sleep(IDLE_SECONDS)
        passed, asked = time.monotonic() - began, link.statements - asked
        shares = {name: (cpu_seconds(pid) - before[name]) / passed for name, pid in processes.items()}
        await asyncio.to_thread(installation.close)
    by_share = sorted(shares.items(), key=lambda each: -each[1])
    print("share of a core when idle:", {name: f"{share:.2%}" for name, share in by_share})  # noqa: T201 - to read
    print(f"{asked / passed:.1f} statements a second, of {len(processes)} processes")  # noqa: T201 - to read
    assert max(shares.values()) < SHARE_OF_A_CORE, shares
    allowed = GATEWAYS * A_GATEWAY_ASKS + DISPATCHERS * WORKERS * A_DISPATCHER_ASKS
    assert asked < allowed * passed


async def test_a_fresh_event_is_at_its_endpoint_at_once_although_all_was_quiet(
    installation: Installation, receiver: Receiver, transport: Mapping[str, str]
) -> None:
    """The poll is far away, so it is the wake-up that does it."""
    installation.environment |= transport
    gateway = installation.gateway()
    installation.dispatcher(poll_secs="60")
    add_endpoint(gateway, receiver.url())
    took = []
    async with await Wire.connect(gateway.url) as wire:
        for number in range(FRESH_EVENTS):
            began = time.time()
            reply = await wire.ask(Event(f"fresh-{number}", b"{}").bytes)
            assert reply.status == 202
            arrived = (await receiver.arrive(number + 1, DEADLINE))[-1].at
            took.append(arrived - began)
            # quiet again: the outcome is recorded, and the claimer has found that nothing is left
            await installation.all_closed(number + 1, DEADLINE)
    took_ms = [round(seconds * 1000, 1) for seconds in took]
    print(f"post to arrival, ms: median {statistics.median(took_ms)}, all {took_ms}")  # noqa: T201 - to read
    assert statistics.median(took) < AT_ONCE_SECONDS


async def test_an_event_whose_wake_up_was_lost_is_delivered_by_the_poll(
    installation: Installation, receiver: Receiver, transport: Mapping[str, str]
) -> None:
    """Case C113: one event, stored by somebody who then dies without a word, and no later traffic."""
    installation.environment |= transport
    gateway = installation.gateway()
    installation.dispatcher(poll_secs="0.5")
    endpoint = add_endpoint(gateway, receiver.url())
    owner = await installation.value("select id from endpoints")
    assert owner.hex in endpoint["id"]
    rules, credentials, schemas = (await installation.fetch("select rules, credentials, schemas from versions"))[0]
    assert installation.dsn is not None
    database = await Database.connect(installation.dsn, name="relay-tests", size=1)
    try:
        journal = Journal(database, key_retention_seconds=60)
        await journal.append(Versions(rules, credentials, schemas), [event(to=[owner])])
    finally:
        await database.close()
    await receiver.arrive(1, DEADLINE)
    await installation.all_closed(1, DEADLINE)
