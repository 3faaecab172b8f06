"""Four dispatchers and two gateways on one database: each claim holds as with one of each, whoever comes and goes.

What is sent is told by the receiver, what was held and by whom by the attempts on record, what was counted by each
process's own numbers.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from relay.testkit.arrivals import Arrival
from tests.support.accounting import assert_complete
from tests.support.database import Server
from tests.support.installation import (
    BRIEF_LEASE,
    Installation,
    NotInTime,
    Service,
    add_endpoint,
    api,
    eventually,
    kill,
    metrics,
)
from tests.support.producer import Producer, numbered
from tests.support.receiver import Receiver
from tests.system.conftest import ended, fresh_database

DISPATCHERS, GATEWAYS = 4, 2
DEADLINE = 90.0

LEASE_SECONDS = float(BRIEF_LEASE["lease_secs"])
ANSWERS_AFTER_SECONDS = 0.3

SEED = int(os.environ.get("RELAY_FLEET_SEED", "11"))
ROUNDS = int(os.environ.get("RELAY_FLEET_ROUNDS", "6"))
EVENTS_PER_ROUND, BEFORE_IT_STRIKES = 80, 20
"""`make fleet` goes on for longer, by another seed each time."""

ROUNDING = 0.001
"""Times of attempts are kept in 4 bytes, and the one of a lease that ran out stands a microsecond before its claim."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Processes of one installation, and the one that stands still at present."""

    installation: Installation
    gateways: Sequence[Service]
    dispatchers: Sequence[Service]

    @property
    def everybody(self) -> Sequence[Service]:
        return [*self.gateways, *self.dispatchers]

    async def is_up(self) -> None:
        """Return when each of them says that it runs."""
        await asyncio.to_thread(lambda: [service.started for service in self.everybody])

    def producer(self) -> Producer:
        """A sender that takes the other gateway where one does not answer."""
        return Producer([gateway.url for gateway in self.gateways])

    async def all_delivered(self, number: int) -> None:
        """Return when so many receipts have closed as delivered. Raises `NotInTime`."""

        async def are() -> bool:
            return await self.delivered() >= number

        await eventually(are, DEADLINE, f"{number} receipts closed as delivered")

    async def delivered(self) -> int:
        """How many receipts have closed as delivered."""
        return int(await self.installation.value("select count(*) from receipts where outcome = 'delivered'"))


@pytest.fixture(scope="module")
def fleet(
    database_server: Server,
    template_database: str,
    transport: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Fleet]:
    """A fleet that runs, for all tests of the module; each leaves it as whole as it was."""
    with fresh_database(database_server, template_database) as dsn:
        settings = {f"RELAY_{name.upper()}": value for name, value in BRIEF_LEASE.items()}
        installation = Installation(tmp_path_factory.mktemp("fleet"), dsn, {**settings, **transport})
        for running in ended(installation, request):
            gateways = [running.gateway() for _ in range(GATEWAYS)]
            yield Fleet(running, gateways, [running.dispatcher() for _ in range(DISPATCHERS)])


COUNTED = {
    "accepted": "journal_commit_seconds_count",
    "acked": "relay_delivery_seconds_count",
    "success": 'relay_delivery_attempts_total{outcome="success"}',
    "permanent": 'relay_delivery_attempts_total{outcome="permanent"}',
    "closed": 'receipts_closed_total{outcome="delivered"}',
    "dead": 'dlq_inflow_total{consumer="no-such-page",reason="permanent_failure"}',
    "taken back": "relay_leases_reaped_total",
    "lost": "relay_leases_lost_total",
}


async def counted(fleet: Fleet) -> dict[str, float]:
    """What all processes have counted together."""
    said = await asyncio.to_thread(lambda: [metrics(service) for service in fleet.everybody])
    return {what: sum(each.get(name, 0.0) for each in said) for what, name in COUNTED.items()}


async def test_what_each_process_counts_adds_up_to_what_happened(fleet: Fleet, receiver: Receiver) -> None:
    await fleet.is_up()
    add_endpoint(fleet.gateways[0], receiver.url(), event_types=["counted.*"])
    add_endpoint(fleet.gateways[1], receiver.url("/status/404"), event_types=["counted.no"], name="no-such-page")
    before = await counted(fleet)
    await fleet.producer().post(numbered(60, prefix="yes", event_type="counted.yes"), DEADLINE)
    await fleet.producer().post(numbered(20, prefix="no", event_type="counted.no"), DEADLINE)
    happened = {"accepted": 80, "acked": 80, "success": 80, "permanent": 20, "closed": 60, "dead": 20}
    expected = {what: count + happened.get(what, 0) for what, count in before.items()}

    async def as_it_happened() -> bool:
        return await counted(fleet) == expected

    try:
        await eventually(as_it_happened, DEADLINE, "the counters add up")
    except NotInTime:
        assert await counted(fleet) == expected
        raise


WAITING = 'relay_queue_depth{status="pending"}'


async def test_the_queue_is_told_by_one_dispatcher_and_by_another_when_that_one_is_killed(
    fleet: Fleet, receiver: Receiver
) -> None:
    await fleet.is_up()
    waiting, gateway = 30, fleet.gateways[0]
    endpoint = add_endpoint(gateway, receiver.url(), event_types=["waiting.here"])
    with api(gateway) as client:
        assert client.post(f"/v1/endpoints/{endpoint['id']}/pause").status_code == 200
    await fleet.producer().post(numbered(waiting, prefix="waiting", event_type="waiting.here"), DEADLINE)
    sums: list[float] = []

    async def reporter(*others: Service) -> Service | None:
        """Whoever of these reports all that waits."""
        told = await asyncio.to_thread(lambda: [(service, metrics(service)[WAITING]) for service in others])
        sums.append(sum(depth for _, depth in told))
        return next((service for service, depth in told if depth == waiting), None)

    first = await eventually(lambda: reporter(*fleet.dispatchers), DEADLINE, "somebody reports what waits")
    assert first is not None
    first.kill()
    others = [service for service in fleet.dispatchers if service is not first]
    second = await eventually(lambda: reporter(*others), DEADLINE, "somebody else reports what waits")
    first.start()
    await fleet.is_up()
    assert await reporter(*fleet.dispatchers) is second, "who comes back takes nothing over"
    assert set(sums) <= {0.0, waiting}, "no row was ever told twice"
    with api(gateway) as client:
        assert client.post(f"/v1/endpoints/{endpoint['id']}/resume").status_code == 200
    await receiver.arrive(waiting, DEADLINE)


@dataclass(slots=True)
class Fortune:
    """What happens to whom, drawn anew from one seed; one process at the most stands still at a time."""

    fleet: Fleet
    chance: random.Random
    standing_still: Service | None = None
    log: list[str] = field(default_factory=list)

    async def strike(self) -> None:
        """Do something to somebody, and see to it that whoever ended starts again."""
        ways = [self._end, self._kill, self._kill_worker]
        if self.standing_still is None:
            ways.append(self._stop)
        way = self.chance.choice(ways)
        whom = self.chance.choice([each for each in self.fleet.everybody if each is not self.standing_still])
        self.log.append(f"{way.__name__.strip('_')} {whom}")
        await asyncio.to_thread(lambda: whom.started)
        await way(whom)

    async def let_go_on(self) -> None:
        """Have whoever stands still go on, and return when everybody runs."""
        if self.standing_still is not None:
            for pid in self.standing_still.workers().values():
                kill(pid, signal.SIGCONT)
            self.standing_still = None
        await self.fleet.is_up()

    async def _end(self, whom: Service) -> None:
        assert await asyncio.to_thread(whom.stop) == 0, whom.log_tail()
        whom.start()

    async def _kill(self, whom: Service) -> None:
        whom.kill()
        whom.start()

    async def _kill_worker(self, whom: Service) -> None:
        for pid in whom.workers().values():
            kill(pid, signal.SIGKILL)

    async def _stop(self, whom: Service) -> None:
        for pid in whom.workers().values():
            kill(pid, signal.SIGSTOP)
        self.standing_still = whom


async def test_whoever_starts_stops_dies_or_stands_still_nothing_is_lost_and_no_lease_is_held_twice(
    fleet: Fleet, receiver: Receiver
) -> None:
    """Whoever stands still does so beyond its leases, and goes on with what it still had in hand."""
    await fleet.is_up()
    fortune, producer, before = Fortune(fleet, random.Random(SEED)), fleet.producer(), await fleet.delivered()
    events = numbered(ROUNDS * EVENTS_PER_ROUND, prefix=f"struck-{SEED}", event_type="struck.twice")
    for name in ("left", "right"):
        url = receiver.url(f"/slow/{name}?ms={ANSWERS_AFTER_SECONDS * 1000:.0f}")
        add_endpoint(fleet.gateways[0], url, event_types=["struck.twice"])
    await fleet.installation.all_answering()
    for begin in range(0, len(events), EVENTS_PER_ROUND):
        posting = asyncio.create_task(producer.post(events[begin : begin + EVENTS_PER_ROUND], DEADLINE))
        await producer.has_accepted(begin + BEFORE_IT_STRIKES, DEADLINE)
        await fortune.strike()
        if fortune.standing_still in fleet.gateways:  # the other one takes all but what this one has in hand
            await producer.has_accepted(begin + EVENTS_PER_ROUND - producer.connections, DEADLINE)
            await fortune.let_go_on()
        await posting
    await fleet.all_delivered(before + len(events))
    await fortune.let_go_on()
    print(f"seed {SEED}: {', '.join(fortune.log)}")  # noqa: T201 - to read

    assert len(producer.accepted) == len(events)
    arrivals = receiver.received()
    assert_complete(arrivals, producer.accepted, events)
    print(f"{len(arrivals) - 2 * len(events)} of {len(arrivals)} arrivals are duplicates")  # noqa: T201 - to read
    assert_never_there_twice_at_once(arrivals)
    await assert_no_lease_held_twice(fleet.installation)


def assert_never_there_twice_at_once(arrivals: Sequence[Arrival]) -> None:
    """Each delivery that came again came after its last answer had left."""
    came = defaultdict(list)
    for arrival in arrivals:
        came[arrival.delivery_id].append(arrival.at)
    gaps = [b - a for instants in came.values() for a, b in pairwise(instants)]
    assert min(gaps, default=1.0) > ANSWERS_AFTER_SECONDS


async def assert_no_lease_held_twice(installation: Installation) -> None:
    """Each claim that counts has one record, and lasted until its attempt was over or its lease had run out; the next
    claim of that delivery came later. A late record is of a lease that has its own already."""
    uncounted = await installation.value(
        "select count(*) from deliveries d where attempts <> (select count(*) from delivery_attempts a"
        " where a.delivery_id = d.id and not a.late and a.outcome_class <> 'deferred')"
    )
    assert uncounted == 0
    held = await installation.fetch(
        "select delivery_id, attempt, lease_token, at - coalesce(wait_ms, 0) * interval '1 millisecond' as since,"
        " at + case when error_class = 'lease_expired' then $1 else coalesce(total_ms, 0) / 1000 end"
        "      * interval '1 second' as until"
        " from delivery_attempts where not late and outcome_class <> 'deferred' order by delivery_id, attempt",
        LEASE_SECONDS - ROUNDING,
    )
    again = [(a, b) for a, b in pairwise(held) if a["delivery_id"] == b["delivery_id"]]
    assert [pair for pair in again if pair[1]["since"] < pair[0]["until"]] == []
    assert all(a["lease_token"] != b["lease_token"] for a, b in again)
