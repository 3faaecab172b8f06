"""What hangs, refuses or has no address has its share of a dispatcher, and no more; what answers has the rest.

All of it without a broker and with one, where nothing is owed before the broker serves.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from relay.broker import Broker
from relay.dispatcher import ClaimTuning
from relay.dispatcher.lanes import FIRST_WINDOW
from relay.domain.outcome import OutcomeClass
from relay.domain.telemetry import AttemptsRecorded, BrokerModeChanged, ReceiptsClosed
from relay.sender import SendLimits
from tests.store import bulk
from tests.support.dispatching import RETRY, TUNING, House
from tests.support.gate import Gate
from tests.support.memory_broker import MemoryBroker, MemoryStream
from tests.support.receiver import Receiver

DEADLINE = 30.0
HANGING_SECONDS = 600.0
HANGING: dict[str, Any] = {
    "limits": SendLimits(silence_seconds=HANGING_SECONDS),
    "timeout_seconds": HANGING_SECONDS,
}
"""What hangs goes on hanging as long as a test runs, however slow its machine is. A send that came to its end would
give its place to the next, and after a stall of this process it says nothing about its endpoint, which has its first
window again then."""

PERMITS = 16
LEASE_SECONDS = HANGING_SECONDS + 60.0
FEW = replace(TUNING, claim=replace(TUNING.claim, lease_seconds=LEASE_SECONDS), concurrency=PERMITS, drain_seconds=0.2)
MANY = replace(
    TUNING,
    claim=ClaimTuning(batch=300, lease_seconds=LEASE_SECONDS, poll_seconds=0.5),
    concurrency=512,
    drain_seconds=0.2,
)


@pytest.fixture(params=["polling", "broker"])
def broker(request: pytest.FixtureRequest, house: House) -> Broker | None:
    return None if request.param == "polling" else MemoryBroker(MemoryStream(), consumer="one", emit=house.ear)


@asynccontextmanager
async def dispatching(house: House, broker: Broker | None, *arguments: Any, **how: Any) -> AsyncIterator[None]:
    """A dispatcher that runs inside the block, and claims by way of its broker if it has one."""
    async with house.dispatching(*arguments, broker=broker, **how):
        await house.until(lambda: broker is None or bool(house.heard(BrokerModeChanged)))
        yield
        assert [told.active for told in house.heard(BrokerModeChanged)] == ([] if broker is None else [True])


def closed(house: House) -> int:
    return sum(each.count for each in house.heard(ReceiptsClosed))


async def until_closed(house: House, number: int) -> None:
    await house.until(lambda: closed(house) >= number, DEADLINE)


def failed(house: House) -> int:
    facts = [fact for told in house.heard(AttemptsRecorded) for fact in told.attempts]
    return sum(fact.outcome_class is not OutcomeClass.SUCCESS for fact in facts)


async def owe(house: House, number: int, *endpoints: UUID) -> None:
    """So many deliveries, in turn."""
    async with house.database.connection() as connection:
        await bulk.owe(connection, number, list(endpoints))


def report(what: str, began: float, number: int) -> None:
    print(f"{what}: {(time.monotonic() - began) / number * 1000:.1f} ms each")  # noqa: T201 - to read


async def delivered(house: House) -> Counter[UUID]:
    """How many deliveries each endpoint has got, as recorded."""
    async with house.database.connection() as connection:
        rows = await connection.fetch("select endpoint_id from deliveries where status = 'delivered'")
    return Counter(row[0] for row in rows)


async def test_where_permits_are_scarce_every_endpoint_that_answers_has_its_share(
    house: House, receiver: Receiver, broker: Broker | None
) -> None:
    """Eight endpoints that answer after a while want four times the permits that there are."""
    lanes = [await house.endpoint(receiver.url("/slow?ms=50"), max_in_flight=16) for _ in range(8)]
    tuning = replace(TUNING, concurrency=32, claim=replace(TUNING.claim, batch=32))
    async with dispatching(house, broker, tuning):
        await owe(house, 800, *lanes)
        for number in (200, 400, 600):
            await until_closed(house, number)
            shares = await delivered(house)
            assert 2 * min(shares[lane] for lane in lanes) >= max(shares.values()), shares


async def test_an_endpoint_that_hangs_with_twenty_thousand_owed_keeps_its_first_window_and_no_more(
    house: House, receiver: Receiver, broker: Broker | None
) -> None:
    """Case C106."""
    async with Gate() as hanging:
        crowded = await house.endpoint(hanging.url, max_in_flight=64)
        healthy = await house.endpoint(receiver.url("/ok"))
        async with dispatching(house, broker, FEW, **HANGING):
            await owe(house, 20_000, crowded)
            await hanging.visits(FIRST_WINDOW, DEADLINE)
            began = time.monotonic()
            for number in range(50):
                await house.event(healthy)
                await until_closed(house, number + 1)
            report("beside an endpoint that hangs", began, 50)
            assert failed(house) == 0, "it hangs still"
        assert hanging.waiting == 0


async def test_endpoints_in_doubt_share_half_of_the_permits(
    house: House, receiver: Receiver, broker: Broker | None
) -> None:
    async with Gate() as hanging:
        in_doubt = [await house.endpoint(hanging.url, max_in_flight=64) for _ in range(PERMITS * 2)]
        await house.execute("update endpoint_state set answered_at = null")
        healthy = await house.endpoint(receiver.url("/ok"), max_in_flight=64)
        async with dispatching(house, broker, FEW, **HANGING):
            await owe(house, 1_000, *in_doubt)
            await hanging.visits(PERMITS // 2, DEADLINE)
            await house.events(200, healthy)
            await until_closed(house, 200)
            assert failed(house) == 0, "they hang still"
        assert hanging.waiting == 0


async def test_a_hundred_dead_endpoints_hold_up_no_healthy_one(
    house: House, receiver: Receiver, broker: Broker | None
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens: connections are refused
        refused = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        async with Gate() as hanging:
            urls = [hanging.url] * 34 + [refused] * 33 + [f"http://dead-{number}.invalid/" for number in range(33)]
            dead = [await house.endpoint(url, max_in_flight=64) for url in urls]
            healthy = [await house.endpoint(receiver.url(f"/ok/{number}")) for number in range(10)]
            async with dispatching(house, broker, MANY, **HANGING):
                await owe(house, 5_000, *dead)
                await hanging.visits(34 * FIRST_WINDOW, DEADLINE)
                began = time.monotonic()
                for number in range(20):
                    await house.event(*healthy)
                    await until_closed(house, number + 1)
                report("beside a hundred dead endpoints", began, 20)
            assert hanging.waiting == 0, "what hangs got its first windows and no more"


async def test_a_receiver_that_answers_429_over_and_over_is_charged_for_requests_alone(
    house: House, broker: Broker | None
) -> None:
    """Case C90: what waits behind the hold spends nothing, and so nothing dies although few attempts are allowed."""
    owed, refusals = 40, 12
    async with Gate() as gate:
        endpoint = await house.endpoint(gate.url, max_in_flight=1)
        async with dispatching(house, broker, retry=replace(RETRY, max_attempts=5)):
            receipts = await house.events(owed, endpoint)
            for number in range(owed + refusals):
                (await gate.visit(DEADLINE)).answer(429 if number < refusals else 200)
            await until_closed(house, owed)
    assert sum([(await house.delivery(receipt)).attempts for receipt in receipts]) == owed + refusals


async def test_a_limit_that_holds_deliveries_back_many_times_spends_no_attempt(
    house: House, receiver: Receiver, broker: Broker | None
) -> None:
    """Case C90."""
    endpoint = await house.endpoint(receiver.url("/ok"), rate_per_second=20.0, burst=1)
    async with dispatching(house, broker, retry=replace(RETRY, max_attempts=5)):
        receipts = await house.events(30, endpoint)
        await until_closed(house, 30)
    assert {(await house.delivery(receipt)).attempts for receipt in receipts} == {1}
