"""Everything that moves a lane at once: what is owed comes to its end, no permit stays out, and nothing deadlocks."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from uuid import UUID

from relay.dispatcher import ClaimTuning
from relay.domain.breaker import BreakerPolicy
from relay.domain.endpoint import EndpointState
from relay.domain.telemetry import InFlightChanged, ProcessStopped
from relay.store.queue import Gates
from tests.support.dispatching import RETRY, TENANT, TUNING, House
from tests.support.installation import NotInTime, eventually
from tests.support.receiver import Receiver
from tests.support.verified import assert_right

GATES = Gates(breaker=BreakerPolicy(threshold=3, cooldown_seconds=0.05, max_cooldown_seconds=0.1))
STUBBORN = replace(RETRY, max_attempts=1_000)
BUSY = replace(TUNING, concurrency=16, claim=ClaimTuning(batch=100, lease_seconds=4.0, poll_seconds=0.5))
MOVES = 150
DEADLINE = 30.0

PATHS = (
    "/ok/a",
    "/flaky/b?pct=60&seed=1",
    "/flaky/c?pct=50&status=429",
    "/flaky/d?pct=10&status=410",
    "/slow/e?ms=30",
    "/toggle/f?every=7",
    "/slow/g?ms=20&status=503",
)


def moves(house: House, endpoints: Sequence[UUID], draw: random.Random) -> list[Callable[[], Awaitable[object]]]:
    """What people, time and other processes do to lanes."""

    def one() -> UUID:
        return draw.choice(endpoints)

    def limit() -> Awaitable[object]:
        rate, burst = draw.choice([5.0, 100.0, 100_000.0]), draw.choice([1, 5, 100_000])
        return house.endpoints.update(
            TENANT,
            one(),
            lambda config: replace(config, rate_per_second=rate, burst=burst, max_in_flight=draw.choice([1, 4, 64])),
        )

    return [
        lambda: house.endpoints.set_state(TENANT, one(), EndpointState.PAUSED),
        lambda: house.endpoints.set_state(TENANT, one(), EndpointState.ACTIVE),
        limit,
        lambda: house.events(5, *draw.sample(endpoints, 3)),
        lambda: house.execute(
            "update deliveries set lease_until = now() where status = 'in_flight' and random() < 0.2"
        ),
        lambda: house.queue.reap(batch=100),
        lambda: house.execute("update endpoint_state set probe_until = now() where breaker = 'half_open'"),
        lambda: house.cut_connections(draw.choice(["claims", "records"])),
    ]


async def test_whatever_moves_lanes_at_once_everything_owed_comes_to_its_end(house: House, receiver: Receiver) -> None:
    draw = random.Random(12)
    endpoints = [await house.endpoint(receiver.url(path), max_in_flight=64, timeout_seconds=2.0) for path in PATHS]
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(house.dispatching(BUSY, retry=STUBBORN, gates=GATES))
        await house.events(50, *endpoints)
        for _ in range(MOVES):
            await draw.choice(moves(house, endpoints, draw))()
            await more_happens(house, len(house.ear.heard))
        # the last one never answers well
        assert await house.endpoints.remove(TENANT, endpoints[-1])
        await all_ended(house)
    assert await deadlocks(house) == 0
    await assert_right(house.dsn)
    assert [each.abandoned for each in house.heard(ProcessStopped)] == [0, 0]
    assert house.heard(InFlightChanged)[-1].count == 0


async def more_happens(house: House, than: int) -> None:
    await house.until(lambda: len(house.ear.heard) > than)


async def all_ended(house: House) -> None:
    """Open what people have closed, until nothing is pending or under way."""

    async def ended() -> bool:
        await house.execute("update endpoints set status = 'active', rate_per_second = 1e5, burst = 100000")
        async with house.database.connection() as connection:
            owed = await connection.fetch(
                "select d.endpoint_id, d.status::text, count(*), min(d.due_at) - now() as due, max(s::text) as lane"
                " from deliveries d join endpoint_state s on s.endpoint_id = d.endpoint_id"
                " where d.status in ('pending', 'in_flight') group by 1, 2"
            )
        left[:] = [tuple(row) for row in owed]
        return not owed

    left: list[object] = []
    try:
        await eventually(ended, DEADLINE, "everything owed has come to its end")
    except NotInTime as late:
        raise NotInTime(f"{late}\n{left}") from None


async def deadlocks(house: House) -> int:
    async with house.database.connection() as connection:
        found = await connection.fetchval("select deadlocks from pg_stat_database where datname = current_database()")
    return int(found)
