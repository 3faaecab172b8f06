"""Machines are lost under load, standbys and primaries: every event that got its 202 is there, and is delivered.

`RELAY_FAILOVER_ROUNDS` says how many primaries are lost, one after the other; `make failover` loses twenty.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

from tests.support.accounting import assert_complete
from tests.support.cluster import Cluster
from tests.support.installation import Installation, Service, add_endpoint, eventually, kill
from tests.support.producer import Event, Producer, ask, numbered, until_accepted
from tests.support.receiver import Receiver

DEADLINE = 90.0
ROUNDS = int(os.environ.get("RELAY_FAILOVER_ROUNDS", "2"))
SOME = 100
"""Events that are accepted between two losses."""


class Load:
    """A steady stream of events, until it is ended."""

    def __init__(self, gateway: Service) -> None:
        self.sent: list[Event] = []
        self.producer = Producer([gateway.url], connections=4)
        self._ended = False

    def __iter__(self) -> Iterator[Event]:
        while not self._ended:
            (event,) = numbered(1, prefix=f"load-{len(self.sent)}")
            self.sent.append(event)
            yield event

    @asynccontextmanager
    async def running(self, within: float) -> AsyncIterator[None]:
        """Posts inside the block, and until the last event is accepted."""
        posting = asyncio.create_task(self.producer.post(iter(self), within))
        try:
            yield
        finally:
            self._ended = True
            await posting

    async def goes_on(self) -> None:
        """Return when some more have been accepted."""
        await self.producer.has_accepted(len(self.producer.accepted) + SOME, DEADLINE)


async def assert_nothing_is_missing(installation: Installation, load: Load, receiver: Receiver) -> None:
    """Every accepted event is in the journal and was delivered, as one event, and the positions have no gap."""
    assert load.producer.accepted.keys() == {event.key for event in load.sent}
    await installation.all_closed(len(load.sent), DEADLINE)
    assert_complete(receiver.received(), load.producer.accepted, load.sent)
    positions = "select partition, min(number), max(number), count(*) from journal group by partition"
    for partition, first, last, count in await installation.fetch(positions):
        assert (first, last) == (1, count), f"partition {partition} has a gap"


async def test_standbys_that_are_lost_and_built_anew_under_load_cost_no_event(
    on_three: Installation, cluster: Cluster, receiver: Receiver
) -> None:
    gateway = on_three.gateway()
    on_three.dispatcher()
    add_endpoint(gateway, receiver.url())
    load = Load(gateway)
    async with load.running(DEADLINE):
        await load.goes_on()
        for name in cluster.standbys:
            await cluster.rebuild(name)
            await load.goes_on()
        for name in cluster.standbys:
            cluster.destroy(name)
        refused = load.producer.refusals[503]
        await eventually(lambda: _is(load.producer.refusals[503] > refused), DEADLINE, "senders are refused")
        for name in cluster.standbys:
            await cluster.rebuild(name)
        await load.goes_on()
    await assert_nothing_is_missing(on_three, load, receiver)


async def _is(holds: bool) -> bool:
    return holds


async def test_primaries_that_are_lost_under_load_cost_no_event(
    on_three: Installation, cluster: Cluster, receiver: Receiver
) -> None:
    gateway = on_three.gateway()
    on_three.dispatcher()
    add_endpoint(gateway, receiver.url())
    load = Load(gateway)
    async with load.running(DEADLINE * ROUNDS):
        for _ in range(ROUNDS):
            await load.goes_on()
            lost = cluster.primary
            cluster.destroy(lost)
            await cluster.promote_furthest()
            await load.goes_on()
            await cluster.rebuild(lost)
    await assert_nothing_is_missing(on_three, load, receiver)


async def test_a_lost_primary_that_takes_connections_and_says_nothing_is_left_for_the_next_one(
    on_three: Installation, cluster: Cluster, cluster_database: str
) -> None:
    """A machine without power, behind a network: nobody is told that it is gone, and it is the first in the address."""
    gateway = on_three.gateway()
    before, during, after = numbered(3)
    await until_accepted(gateway.url, before, DEADLINE)
    lost = cluster.primary
    await cluster.part(*cluster.standbys)
    cluster.freeze(lost)
    try:
        await cluster.promote_furthest()
        await until_accepted(gateway.url, during, DEADLINE)
        await until_accepted(on_three.gateway().url, after, DEADLINE)
        on_three.dsn = cluster.dsn(cluster_database)
        assert await events_are(on_three, 3)
    finally:
        cluster.destroy(lost)


async def test_what_only_a_lost_primary_had_is_not_confirmed_by_the_next_one(
    on_three: Installation, cluster: Cluster
) -> None:
    """An event waits while its primary is lost, and the next barrier does find a quorum: of a journal without it."""
    gateway = on_three.gateway(journal_timeout_ms="60000")
    worker = gateway.worker()
    lost = cluster.primary
    await cluster.part(*cluster.standbys)
    asked = []
    # the barrier is out for the first when the second is written, so it is the next one that the second waits for
    for number, event in enumerate(numbered(2), start=1):
        asked.append(asyncio.create_task(ask(gateway.url, event, DEADLINE)))
        await eventually(partial(events_are, on_three, number), DEADLINE, "the event is written")
        await eventually(partial(barrier_waits, cluster), DEADLINE, "the barrier waits")
    kill(worker, signal.SIGSTOP)
    cluster.destroy(lost)
    await cluster.join(*cluster.standbys)
    await cluster.promote_furthest()
    kill(worker, signal.SIGCONT)
    replies = await asyncio.gather(*asked)
    assert await events_are(on_three, 0)
    assert [reply.status for reply in replies] == [503, 503]


async def barrier_waits(cluster: Cluster) -> bool:
    waiting = "select from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'relay gateway barrier'"
    return bool(await cluster.fetch(cluster.primary, waiting))


async def events_are(installation: Installation, count: int) -> bool:
    return bool(await installation.value("select count(*) = $1 from journal", count))
