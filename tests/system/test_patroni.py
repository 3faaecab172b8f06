"""Three nodes under Patroni with the settings of `ops/patroni`, and what a 202 is worth when they are lost.

Everything is real: Patroni, etcd, PostgreSQL, a gateway and a dispatcher with the address of all three. Minutes go by
until a lease in etcd has run out, so `make test` leaves these out: `make test-ha` runs them. `RELAY_HA_KILLS` says how
many leaders are killed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.accounting import assert_complete, event_of
from tests.support.installation import Installation, Service, add_endpoint, api, eventually
from tests.support.patroni import NAMES, Patroni, find_tools, patroni_nodes
from tests.support.producer import Event, ask, numbered
from tests.support.receiver import Receiver
from tests.support.wire import Reply
from tests.system.conftest import QUORUM, ended

pytestmark = [
    pytest.mark.skipif(os.environ.get("RELAY_TEST_HA") != "1", reason="takes many minutes: `make test-ha` runs it"),
    pytest.mark.timeout(3600),
]

DEADLINE = 180.0
KILLS = int(os.environ.get("RELAY_HA_KILLS", "10"))
RATE = 200.0
"""Events a second."""

SOME = 400
"""Events that are accepted between two losses."""

AT_ONCE = 32
ASK_SECONDS = 30.0
AGAIN_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
LEASE_SECONDS = 20.0
"""The ttl of ops/patroni/patroni.yml."""


@dataclass(slots=True)
class OpenLoop:
    """Events leave at times that were fixed in advance, whatever the answers.

    What is not accepted is posted again under its key, later and later, until it is.
    """

    url: str
    sent: list[Event] = field(default_factory=list)
    accepted: dict[str, Reply] = field(default_factory=dict)
    accepted_at: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Post inside the block, and until the last event is accepted."""
        async with asyncio.TaskGroup() as posts:
            pacing = asyncio.create_task(self._pace(posts))
            try:
                yield
            finally:
                pacing.cancel()
                with suppress(asyncio.CancelledError):
                    await pacing

    async def goes_on(self) -> None:
        """Return when some more events have been accepted that were posted first after this call."""
        begun = len(self.sent)

        async def some() -> bool:
            return sum(event.key in self.accepted for event in self.sent[begun:]) >= SOME

        await eventually(some, DEADLINE, "events are accepted")

    def longest_pause(self, since: float) -> float:
        """Seconds between two answers of 202 one after the other, at most, from the last one before that instant on."""
        first = max((number for number, at in enumerate(self.accepted_at) if at <= since), default=0)
        return max((after - before for before, after in pairwise(self.accepted_at[first:])), default=0.0)

    async def _pace(self, posts: asyncio.TaskGroup) -> None:
        began = time.monotonic()
        while True:
            due = int((time.monotonic() - began) * RATE) + 1
            while len(self.sent) < due:
                (event,) = numbered(1, prefix=f"load-{len(self.sent)}")
                self.sent.append(event)
                posts.create_task(self._post(event))
            await asyncio.sleep(1 / RATE)

    async def _post(self, event: Event) -> None:
        tries = 0
        while not await self._is_accepted(event):
            await asyncio.sleep(AGAIN_SECONDS[min(tries, len(AGAIN_SECONDS) - 1)])
            tries += 1

    async def _is_accepted(self, event: Event) -> bool:
        async with self._room:
            try:
                reply = await ask(self.url, event, ASK_SECONDS)
            except (OSError, TimeoutError):
                self.unanswered += 1
                return False
        if reply.status == 202:
            self.accepted[event.key] = reply
            self.accepted_at.append(time.monotonic())
            return True
        assert reply.status == 503, f"{event.key} was answered {reply.status}: {reply.body!r}"
        self.refused[reply.json()["code"]] += 1
        return False


@dataclass(frozen=True, slots=True)
class Run:
    """Relay on the nodes, under load."""

    installation: Installation
    nodes: Patroni
    gateway: Service
    receiver: Receiver
    load: OpenLoop

    async def nothing_is_lost(self) -> None:
        """Every accepted event was delivered with its bytes, the journal has no gap, and it is said how often twice."""
        await self.installation.all_closed(len(self.load.sent), DEADLINE)
        arrivals = self.receiver.received()
        assert self.load.accepted.keys() == {event.key for event in self.load.sent}
        assert_complete(arrivals, self.load.accepted, self.load.sent)
        verified = await asyncio.to_thread(self.installation.run, "verify")
        assert verified.returncode == 0, verified.stdout + verified.stderr
        twice = len(arrivals) - len({event_of(arrival) for arrival in arrivals})
        tell(
            f"{len(self.load.accepted)} accepted, all delivered, {twice} of {len(arrivals)} arrivals were duplicates;"
            f" refused on the way: {dict(self.load.refused)}, unanswered: {self.load.unanswered};"
            f" verify: {' '.join(verified.stdout.split())}"
        )


def tell(line: str) -> None:
    print(f"\n{time.strftime('%H:%M:%S')} {line}", flush=True)  # noqa: T201 - `make test-ha` shows what was measured


@pytest.fixture(scope="module")
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patroni]:
    """The nodes, for all tests here; each leaves them whole."""
    with patroni_nodes(find_tools(request.config, tmp_path_factory)) as running:
        yield running


@pytest.fixture
def on_nodes(nodes: Patroni, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """An installation on a migrated database of its own."""
    dsn = nodes.dsn(asyncio.run(nodes.create_database()))
    for made in ended(Installation(tmp_path, dsn, QUORUM), request):
        migrated = made.run("migrate")
        assert migrated.returncode == 0, migrated.stderr
        yield made
        asyncio.run(nodes.whole())


@pytest.fixture
def run(on_nodes: Installation, nodes: Patroni, receiver: Receiver) -> Run:
    """A gateway and a dispatcher that deliver to a receiver."""
    gateway = on_nodes.gateway()
    assert on_nodes.dispatcher().started, "its port may have been taken by another run on this machine"
    add_endpoint(gateway, receiver.url())
    return Run(on_nodes, nodes, gateway, receiver, OpenLoop(gateway.url))


async def test_leaders_that_are_killed_under_load_cost_no_event_that_was_accepted(run: Run) -> None:
    async with run.load.running():
        await run.load.goes_on()
        for number in range(1, KILLS + 1):
            lost = await run.nodes.whole()
            at = time.monotonic()
            run.nodes.kill(lost)
            leader = await run.nodes.leader(but=lost)
            led = time.monotonic() - at
            await run.load.goes_on()
            pause = run.load.longest_pause(at)
            run.nodes.start(lost)
            await run.nodes.whole()
            tell(f"kill {number}: {lost} lost, {leader} leads after {led:.1f} s, {pause:.1f} s without a 202")
        await run.load.goes_on()
    await run.nothing_is_lost()


async def test_a_leader_whose_server_alone_is_killed_is_replaced_at_once(run: Run) -> None:
    """Its Patroni lives and gives up the lease; nobody has to wait until that has run out."""
    async with run.load.running():
        await run.load.goes_on()
        lost, at = await run.nodes.whole(), time.monotonic()
        run.nodes.kill_server(lost)
        await run.nodes.leader(but=lost)
        await run.load.goes_on()
        tell(f"server killed: {run.load.longest_pause(at):.1f} s without a 202")
        await run.nodes.whole()
    await run.nothing_is_lost()


async def test_a_switchover_costs_no_event(run: Run) -> None:
    async with run.load.running():
        await run.load.goes_on()
        await run.nodes.whole()
        at = time.monotonic()
        await run.nodes.switch_over()
        await run.load.goes_on()
        tell(f"switchover: {run.load.longest_pause(at):.1f} s without a 202")
        await run.nodes.whole()
    await run.nothing_is_lost()


async def test_while_etcd_is_away_the_leader_goes_on_and_so_does_relay(run: Run) -> None:
    """`failsafe_mode`: it reaches the other nodes, so none of them can have become the leader."""
    async with run.load.running():
        await run.load.goes_on()
        leader, at = await run.nodes.whole(), time.monotonic()
        run.nodes.kill_etcd()
        # nothing is waited for: that nobody gives up the lead while leases run out is the test
        await asyncio.sleep(2 * LEASE_SECONDS)
        await run.load.goes_on()
        assert await run.nodes.leader() == leader
        run.nodes.start_etcd()
        assert await run.nodes.whole() == leader
        tell(f"etcd away for {2 * LEASE_SECONDS:.0f} s: {run.load.longest_pause(at):.1f} s without a 202")
    await run.nothing_is_lost()


async def test_a_leader_that_stood_still_and_goes_on_is_believed_by_nobody(run: Run) -> None:
    """Without a watchdog it wakes up as a leader for a moment: no standby follows it, so it proves nothing."""
    async with run.load.running():
        await run.load.goes_on()
        frozen, at = await run.nodes.whole(), time.monotonic()
        run.nodes.freeze(frozen)
        await run.nodes.leader(but=frozen)
        await run.load.goes_on()
        pause = run.load.longest_pause(at)
        run.nodes.thaw(frozen)
        thawed = time.monotonic()
        await eventually(lambda: _follows(run.nodes, frozen), DEADLINE, f"{frozen} has become a standby")
        tell(f"frozen: {pause:.1f} s without a 202; thawed: a standby after {time.monotonic() - thawed:.1f} s")
        await run.nodes.whole()
        await run.load.goes_on()
    await run.nothing_is_lost()


async def _follows(nodes: Patroni, name: str) -> bool:
    answer = await nodes.ask(name, "/replica")
    return answer is not None and answer.status_code == 200


@pytest.mark.parametrize("strict", [False, True], ids=["not-strict", "strict"])
async def test_with_no_standby_left_nothing_is_accepted_and_it_is_said_why(run: Run, strict: bool) -> None:
    """Patroni changes the list of standbys under Relay: it empties it, or puts a * into it."""
    await run.nodes.configure(synchronous_mode_strict=strict)
    leader = await run.nodes.whole()
    standbys = [name for name in NAMES if name != leader]
    first, second, third = numbered(3)
    assert (await ask(run.gateway.url, first, ASK_SECONDS)).status == 202
    for name in standbys:
        run.nodes.kill(name)
    nobody = "ANY 1 (*)" if strict else ""

    async def given_up() -> bool:
        return await run.nodes.names_waited_for(leader) == nobody

    await eventually(given_up, DEADLINE, "Patroni has no standby left to wait for")
    refused = await ask(run.gateway.url, second, ASK_SECONDS)
    assert (refused.status, refused.json()["code"]) == (503, "journal_quorum")
    why = await eventually(lambda: _told_by_readiness(run.gateway), DEADLINE, "readiness says why")
    assert why is not None
    tell(f"strict {strict}: {why}")
    # a commit that nobody releases says nothing of the list, and a start looks without one
    assert ("no standby has confirmed" if strict else "synchronous_standby_names is empty") in why
    late = run.installation.gateway()
    assert late.wait(DEADLINE) == 1
    assert "RELAY_JOURNAL_QUORUM cannot be kept" in late.log_tail()
    run.nodes.start(standbys[0])

    async def accepted() -> bool:
        return (await ask(run.gateway.url, third, ASK_SECONDS)).status == 202

    await eventually(accepted, DEADLINE, "one standby is enough, and nothing has to be started anew")
    run.nodes.start(standbys[1])
    await run.nodes.whole()
    await run.nodes.configure(synchronous_mode_strict=None)


async def _told_by_readiness(gateway: Service) -> str | None:
    with api(gateway) as client:
        answer = client.get("/readyz")
    checks = answer.json()
    return None if answer.status_code == 200 else str(checks)
