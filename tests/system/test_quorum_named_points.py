"""A gateway dies, or loses its connection, at each point between an append and its answer: nothing is lost or doubled.

The tap stands between the gateway and the primary, and stops it at the point; the dispatcher goes around it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from relay.testkit.arrivals import Arrival
from tests.support.accounting import event_of
from tests.support.cluster import Cluster
from tests.support.installation import Installation, Service, add_endpoint, eventually
from tests.support.producer import Event, ask, numbered, until_accepted
from tests.support.receiver import Receiver
from tests.support.tap import Moment, Place, Tap
from tests.support.wire import Cut, Reply, Wire
from tests.system.conftest import QUORUM, ended

DEADLINE = 60.0
JOURNAL_TIMEOUT_MS = "3000"
"""Long enough that what is stopped at a point is dealt with there, and not given up meanwhile."""

APPENDS, BARRIER = "relay gateway appends", "relay gateway barrier"


WAITED_FOR = "pg_logical_emit_message"
"""The barrier: it is sent where the standbys do not have it at once."""


@dataclass(frozen=True, slots=True)
class Point:
    """A named point on the way from an append to its 202."""

    name: str
    moment: Moment
    connection: str
    statement: str


POINTS = (
    Point("append sent", Moment.SENT, APPENDS, "append_events"),
    Point("append committed", Moment.COMMITTED, APPENDS, "append_events"),
    Point("barrier sent", Moment.SENT, BARRIER, WAITED_FOR),
    Point("barrier returned", Moment.ANSWERED, BARRIER, WAITED_FOR),
    Point("proof asked for", Moment.SENT, BARRIER, "listed_standbys"),
    Point("proof read", Moment.ANSWERED, BARRIER, "listed_standbys"),
)
COMMITTED, PROVEN = POINTS[1], POINTS[-1]
each_point = pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name.replace(" ", "-"))


@dataclass(frozen=True, slots=True)
class Tapped:
    """An installation whose gateway reaches its database through a tap."""

    installation: Installation
    gateway: Service
    tap: Tap
    receiver: Receiver

    def at(self, point: Point, event: Event) -> Place:
        """Stop the gateway there, next time; at an append, only if it is this event's."""
        about = event.key.encode() if point.connection == APPENDS else b""
        return self.tap.at(point.moment, connection=point.connection, statement=point.statement, about=about)

    async def stands(self, point: Point, event: Event, cluster: Cluster) -> tuple[Place, asyncio.Task[Reply]]:
        """Post an event and wait until the gateway stands there; answers the place, and the answer to come."""
        place = self.at(point, event)
        if point.statement == WAITED_FOR:
            cluster.freeze()
        asked = asyncio.create_task(ask(self.gateway.url, event, DEADLINE))
        if (point.statement, point.moment) == (WAITED_FOR, Moment.ANSWERED):
            await eventually(partial(barrier_waits, cluster), DEADLINE, "the barrier waits")
            cluster.thaw()
        await place.reached(DEADLINE)
        cluster.thaw()
        return place, asked

    async def kill(self) -> None:
        """Kill the gateway and start it once more; returns when it runs."""
        await asyncio.to_thread(self.gateway.kill)
        self.gateway.start()
        assert await asyncio.to_thread(lambda: self.gateway.started)

    async def arrivals_of(self, event: Event) -> list[Arrival]:
        """Wait until an event has arrived and its receipt is closed; answers each time that it arrived."""

        async def closed() -> bool:
            outcome = "select outcome = 'delivered' from receipts where event_id = $1 and void_at is null"
            return [bool(row[0]) for row in await self.installation.fetch(outcome, event.key)] == [True]

        await eventually(closed, DEADLINE, f"{event.key} is delivered, as one event")
        return [arrival for arrival in self.receiver.received() if event_of(arrival) == event.key]

    async def is_one_event(self, event: Event, accepted: Reply) -> None:
        """What its 202 says is what became of an event, and each further 202 is the same."""
        again = await ask(self.gateway.url, event, DEADLINE)
        assert (again.status, again.body, again.headers["relay-idempotent-replay"]) == (202, accepted.body, "true")
        (promised,) = (owed["id"] for owed in accepted.json()["deliveries"])
        assert {arrival.delivery_id for arrival in await self.arrivals_of(event)} == {promised}
        assert await self.installation.value("select count(*) from journal where event_id = $1", event.key) == 1


async def barrier_waits(cluster: Cluster) -> bool:
    waiting = "select from pg_stat_activity where wait_event = 'SyncRep' and application_name = $1"
    return bool(await cluster.fetch(cluster.primary, waiting, BARRIER))


@pytest.fixture(scope="module")
def tapped(
    session_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Tapped]:
    """One for all tests of this module; each has an event of its own."""

    async def database() -> str:
        await session_cluster.heal()
        return await session_cluster.create_database()

    name = asyncio.run(database())
    made = Installation(tmp_path_factory.mktemp("tapped"), session_cluster.dsn(name), QUORUM)
    # the tap ends after the gateway, which would have nobody to talk to
    with Tap(session_cluster.dsn(name, only=session_cluster.primary)) as tap, Receiver() as receiver:
        for installation in ended(made, request):
            direct = installation.environment["DATABASE_URL"]
            installation.environment["DATABASE_URL"] = tap.dsn
            gateway = installation.gateway(journal_timeout_ms=JOURNAL_TIMEOUT_MS)
            installation.environment["DATABASE_URL"] = direct
            installation.dispatcher()
            add_endpoint(gateway, receiver.url())
            yield Tapped(installation, gateway, tap, receiver)


@pytest.fixture
def event(request: pytest.FixtureRequest) -> Event:
    """An event of this test alone."""
    return numbered(1, prefix=request.node.name)[0]


@each_point
async def test_a_gateway_killed_there_loses_nothing_and_the_retry_gets_its_202_for_one_event(
    cluster: Cluster, tapped: Tapped, event: Event, point: Point
) -> None:
    place, asked = await tapped.stands(point, event, cluster)
    await tapped.kill()
    place.pass_on()
    with pytest.raises(Cut):
        await asked
    await tapped.is_one_event(event, await until_accepted(tapped.gateway.url, event, DEADLINE))


@each_point
async def test_a_connection_cut_there_loses_nothing_and_the_retry_gets_its_202_for_one_event(
    cluster: Cluster, tapped: Tapped, event: Event, point: Point
) -> None:
    place, asked = await tapped.stands(point, event, cluster)
    place.cut_off()
    assert (await asked).status in (202, 503)
    await tapped.is_one_event(event, await until_accepted(tapped.gateway.url, event, DEADLINE))


async def test_what_a_dead_gateway_committed_and_nobody_was_answered_is_delivered_once_it_is_on_the_quorum(
    cluster: Cluster, tapped: Tapped, event: Event
) -> None:
    place, asked = await tapped.stands(COMMITTED, event, cluster)
    await tapped.kill()
    place.cut_off()
    with pytest.raises(Cut):
        await asked
    assert len({arrival.delivery_id for arrival in await tapped.arrivals_of(event)}) == 1


async def test_an_event_whose_void_was_written_by_a_dying_gateway_comes_only_if_it_is_sent_again(
    cluster: Cluster, tapped: Tapped, event: Event
) -> None:
    cluster.freeze()
    place = tapped.tap.at(Moment.COMMITTED, connection=APPENDS, statement="void_events")
    asked = asyncio.create_task(ask(tapped.gateway.url, event, DEADLINE))
    await place.reached(DEADLINE)
    assert await tapped.installation.value("select void_at is not null from receipts where event_id = $1", event.key)
    await tapped.kill()
    place.cut_off()
    (told,) = await asyncio.gather(asked, return_exceptions=True)
    # a sender does not wait for a void for long, and may have heard that nobody knows
    assert isinstance(told, Cut) or (isinstance(told, Reply) and told.status == 503)
    cluster.thaw()
    (later,) = numbered(1, prefix=f"after-{event.key}")
    await tapped.is_one_event(later, await until_accepted(tapped.gateway.url, later, DEADLINE))
    assert event.key not in map(event_of, tapped.receiver.received())
    await tapped.is_one_event(event, await until_accepted(tapped.gateway.url, event, DEADLINE))


async def test_a_sender_that_is_gone_before_its_202_gets_the_same_one_when_it_asks_again(
    cluster: Cluster, tapped: Tapped, event: Event
) -> None:
    place = tapped.at(PROVEN, event)
    async with await Wire.connect(tapped.gateway.url) as wire:
        await wire.write(event.bytes)
        await place.reached(DEADLINE)
    place.pass_on()
    accepted = await until_accepted(tapped.gateway.url, event, DEADLINE)
    assert accepted.headers["relay-idempotent-replay"] == "true"
    await tapped.is_one_event(event, accepted)
