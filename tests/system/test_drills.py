"""A drill for each way in which Relay may break: what rings names it, nothing else pages, and nothing is lost.

The ways are in `tests/support/drill`, and in the table of `docs/operations.md`. Each drill breaks a real Relay under a
real Prometheus, waits until it is told, mends it, and waits until everything that got a 202 has been acked and nothing
rings any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.docs.tree import ROOT
from tests.support.accounting import assert_complete
from tests.support.cluster import Cluster
from tests.support.drill import DEADLINE, MODES, Drill, watching
from tests.support.gate import Gate, Visit
from tests.support.installation import Installation, add_endpoint, eventually
from tests.support.link import Link
from tests.support.programs import Programs
from tests.support.receiver import Receiver
from tests.support.small_disk import SmallDisk, server_on, small_disk
from tests.system.conftest import ended

EVENTS = 30
CUT_SECONDS = 10.0

JUMPING = ROOT / "tests" / "support" / "jumping"
SOON_AGAIN = {"breaker_cooldown_secs": "0.5", "breaker_max_cooldown_secs": "1"}


@asynccontextmanager
async def answering(gate: Gate, acked: set[str], answer: Callable[[Visit], bool]) -> AsyncIterator[None]:
    """Inside the block whoever comes to the gate is answered; what was acked, as the answer says, is kept."""

    async def answers() -> None:
        while True:
            visit = await gate.visit(10 * DEADLINE)
            if answer(visit):
                acked.add(visit.delivery_id)

    task = asyncio.create_task(answers())
    try:
        yield
    finally:
        task.cancel()


def acks(visit: Visit) -> bool:
    """Take it."""
    visit.answer(200)
    return True


def asks_for_a_second(visit: Visit) -> bool:
    """Be overrun."""
    visit.answer(429, retry_after=1)
    return False


async def queue_is_not_late(drill: Drill) -> bool:
    """Whether this gateway finds nothing wrong but an endpoint: it is ready."""
    return await drill.readiness() == (200, dict.fromkeys(("database", "journal", "dispatcher", "queue"), "ok"))


async def test_slow_endpoint(programs: Programs, patient: Installation) -> None:
    acked: set[str] = set()
    async with Gate() as gate, watching(MODES["slow_endpoint"], programs, patient) as drill:
        add_endpoint(drill.gateway, gate.url, name="crm", max_in_flight=2)
        await patient.all_answering()
        await drill.post(EVENTS)
        await drill.is_told()
        assert await queue_is_not_late(drill), "a lane that is full is not late"
        async with answering(gate, acked, acks):
            await drill.is_over()
        assert acked == drill.all_promised()


async def test_dead_endpoint(programs: Programs, installation: Installation) -> None:
    acked: set[str] = set()
    async with Gate() as gate, watching(MODES["dead_endpoint"], programs, installation, **SOON_AGAIN) as drill:
        add_endpoint(drill.gateway, gate.url, name="crm")
        async with answering(gate, acked, acks):
            await drill.post(1)
            await installation.all_closed(1, DEADLINE)
            await gate.die()
            await drill.post(EVENTS)
            assert (await drill.is_told()).labels["consumer"] == "crm"
            assert await queue_is_not_late(drill), "a lane behind a breaker is not late"
            await gate.rise()
            await drill.is_over()
        assert acked == drill.all_promised()


async def test_endpoint_that_limits_us(programs: Programs, installation: Installation) -> None:
    acked: set[str] = set()
    async with Gate() as gate, watching(MODES["endpoint_that_limits_us"], programs, installation) as drill:
        add_endpoint(drill.gateway, gate.url, name="crm")
        async with answering(gate, acked, asks_for_a_second):
            await drill.post(EVENTS)
            await drill.is_told()
            assert await queue_is_not_late(drill), "a lane that is held is not late"
        async with answering(gate, acked, acks):
            await drill.is_over()
        assert acked == drill.all_promised()


async def test_database_cut_for_ten_seconds(programs: Programs, installation: Installation, receiver: Receiver) -> None:
    assert installation.dsn is not None
    async with Link(installation.dsn) as link:
        installation.environment["DATABASE_URL"] = link.dsn
        async with watching(MODES["database_cut_for_ten_seconds"], programs, installation) as drill:
            await asyncio.to_thread(add_endpoint, drill.gateway, receiver.url("/slow?ms=20"), max_in_flight=4)
            await drill.post(EVENTS)
            link.go_down()
            down_until = time.monotonic() + CUT_SECONDS
            posting = asyncio.create_task(drill.post(EVENTS))
            await drill.is_told()

            async def is_long_enough() -> bool:
                status, checks = await drill.readiness()
                assert (status, checks["database"]) == (503, "the database does not answer")
                return time.monotonic() > down_until

            await eventually(is_long_enough, DEADLINE, f"the cut lasts for {CUT_SECONDS:g} s")
            assert drill.producer.refusals[503] > 0, "senders were told to come again"
            link.come_up()
            await posting
            await drill.is_over()
            assert_complete(receiver.received(), drill.producer.accepted, drill.events)


async def test_dead_dispatchers(programs: Programs, installation: Installation, receiver: Receiver) -> None:
    async with watching(MODES["dead_dispatchers"], programs, installation, workers="2") as drill:
        add_endpoint(drill.gateway, receiver.url("/slow?ms=200"), max_in_flight=4)
        await drill.post(EVENTS)
        await receiver.arrive(1, DEADLINE)
        drill.dispatcher.kill()
        await drill.post(EVENTS)
        await drill.is_told()
        assert len(drill.producer.accepted) == 2 * EVENTS, "a gateway needs no dispatcher to accept"
        drill.dispatcher.start()
        await drill.is_over()
        assert_complete(receiver.received(), drill.producer.accepted, drill.events)


async def test_quorum_gone(programs: Programs, on_three: Installation, cluster: Cluster, receiver: Receiver) -> None:
    async with watching(MODES["quorum_gone"], programs, on_three) as drill:
        add_endpoint(drill.gateway, receiver.url())
        await drill.post(EVENTS)
        cluster.freeze()
        posting = asyncio.create_task(drill.post(EVENTS))
        await drill.is_told()
        status, checks = await drill.readiness()
        assert (status, checks["database"]) == (503, "ok")
        assert checks["journal"] != "ok"
        cluster.thaw()
        await posting
        await drill.is_over()
        assert_complete(receiver.received(), drill.producer.accepted, drill.events)


@pytest.fixture
def clock(installation: Installation) -> Path:
    """A file that says by how many seconds the clocks of the installation's processes are off."""
    offset = installation.folder / "offset"
    jump_to(offset, 0)
    installation.environment |= {"PYTHONPATH": str(JUMPING), "CLOCK_OFFSET_FILE": str(offset)}
    return offset


def jump_to(clock: Path, seconds: int) -> None:
    """Have the clocks off by so much from now on, at one moment."""
    new = clock.with_suffix(".new")
    new.write_text(str(seconds))
    new.replace(clock)


@pytest.mark.parametrize("seconds", [3600, -3600])
async def test_clock_jump(programs: Programs, installation: Installation, clock: Path, seconds: int) -> None:
    """Of the machine of the gateway and the dispatcher, with deliveries under way; not of the database's."""
    acked: set[str] = set()
    async with Gate() as gate, watching(MODES["clock_jump"], programs, installation) as drill:
        add_endpoint(drill.gateway, gate.url, name="crm")
        await drill.post(EVENTS)
        jump_to(clock, seconds)
        await drill.post(EVENTS)
        await drill.is_told()
        for job in ("relay-gateway", "relay-dispatcher"):
            named = f'ALERTS{{alertname="{drill.mode.alert}", alertstate="firing", job="{job}"}}'
            await drill.prometheus.until(named, DEADLINE)
        async with answering(gate, acked, acks):
            jump_to(clock, 0)
            await drill.is_over()
        assert acked == drill.all_promised()


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    with small_disk() as mounted:
        yield mounted


@pytest.fixture
def on_small_disk(disk: SmallDisk, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """An installation whose database is on that disk."""
    with server_on(disk) as server:
        yield from ended(Installation(tmp_path, server.dsn), request)


async def test_full_disk(programs: Programs, on_small_disk: Installation, disk: SmallDisk, receiver: Receiver) -> None:
    assert on_small_disk.run("migrate").returncode == 0
    async with watching(MODES["full_disk"], programs, on_small_disk) as drill:
        add_endpoint(drill.gateway, receiver.url())
        await drill.post(EVENTS)
        disk.fill()
        posting = asyncio.create_task(drill.post(EVENTS, kilobytes=100))
        await drill.is_told()
        status, checks = await drill.readiness()
        assert (status, "its disk is full" in checks["database"]) == (503, True)
        disk.empty()
        await posting
        await drill.is_over()
        assert_complete(receiver.received(), drill.producer.accepted, drill.events)
