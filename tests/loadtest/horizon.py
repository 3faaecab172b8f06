"""What an old snapshot costs: `make bench-horizon`, or `python -m tests.loadtest.horizon`.

Owns the order of the measurement. Dispatchers drain one backlog all the while; in the middle of it a transaction keeps
a snapshot open, so that nothing that is done with can be cleaned away. Rates are of one run on one machine, and the one
in the middle is compared with those around it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

import asyncpg

from relay.loadtest.accounting import tree_seconds
from relay.loadtest.backlog import Shape
from relay.loadtest.children import Child, child
from relay.loadtest.installation import Installation, installation, sink_url

EVENTS = 2_500_000
WANTED = 0.7
"""The share of the usual throughput that must be left."""
SAMPLE_SECONDS = 10.0
WARM_UP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """So many events to so many endpoints, and the seconds before, with and after the snapshot."""

    events: int
    endpoints: int
    usual_seconds: float
    pinned_seconds: float


@dataclass(frozen=True, slots=True)
class Left:
    """Deliveries per second beside the snapshot, and which share that is of the usual ones."""

    pinned: float
    share: float


def say(line: str) -> None:
    """A line for whoever watches."""
    print(line, flush=True)  # noqa: T201 # this is what the command is for


@asynccontextmanager
async def snapshot(dsn: str) -> AsyncIterator[None]:
    """A transaction that has looked once, and stays."""
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute("select count(*) from tenants")
            yield
    finally:
        await connection.close()


@dataclass(frozen=True, slots=True)
class Running:
    """What is measured: the dispatchers of an installation, and who receives their `events`."""

    ground: Installation
    dispatchers: Child
    sink: Child
    events: int

    def sample(self) -> tuple[float, int, float]:
        """The time, the deliveries and the processor time of dispatchers and PostgreSQL so far, in seconds.

        Raises `RuntimeError` once all events have arrived.
        """
        arrived = self.sink.ask()["requests"]
        if arrived >= self.events:
            raise RuntimeError("the backlog came to its end before the measurement did: give it more --events")
        return time.monotonic(), arrived, tree_seconds(self.dispatchers.pid) + self.ground.postgres_seconds()

    async def rates(self, seconds: float, title: str) -> list[float]:
        """Deliveries per second, sample by sample. Raises `RuntimeError` once all events have arrived."""
        seen = [self.sample()]
        while seen[-1][0] < seen[0][0] + seconds:
            await asyncio.sleep(SAMPLE_SECONDS)
            seen.append(self.sample())
            (began, had, used), (now, has, uses) = seen[-2:]
            if has == had:
                raise RuntimeError("nothing is delivered: see dispatcher.log")
            cost = (uses - used) / (has - had) * 1e6
            say(f"{title:>20} {(has - had) / (now - began):8,.0f} deliveries/s {cost:7,.0f} µs of processor time each")
        return [(has - had) / (now - began) for (began, had, _), (now, has, _) in pairwise(seen)]


async def measure(plan: Plan, ground: Installation) -> Left:
    """Print the rates; answers what is left of them."""
    with child("relay.loadtest.sink") as sink:
        await ground.fill(sink_url(sink), Shape(plan.events, plan.endpoints, 300))
        with ground.dispatcher(2) as dispatchers:
            running = Running(ground, dispatchers, sink, plan.events)
            await asyncio.sleep(WARM_UP_SECONDS)
            before = await running.rates(plan.usual_seconds, "before")
            async with snapshot(ground.dsn):
                pinned = await running.rates(plan.pinned_seconds, "with an old snapshot")
            after = await running.rates(plan.usual_seconds, "after")
    usual = [mean(before), mean(after)]
    last = pinned[-max(len(pinned) // 3, 1) :]
    say(
        f"before {usual[0]:,.0f}/s, with {mean(pinned):,.0f}/s (its last third {mean(last):,.0f}/s),"
        f" after {usual[1]:,.0f}/s"
    )
    left = Left(mean(pinned), mean(pinned) / mean(usual))
    say(f"left: {left.share:.0%} of the usual, in its last third {mean(last) / mean(usual):.0%}; wanted: {WANTED:.0%}")
    return left


def mean(values: list[float]) -> float:
    """The average."""
    return sum(values) / len(values)


def main() -> int:
    """Measure; exit code 1 if too little is left."""
    parser = argparse.ArgumentParser(prog="python -m tests.loadtest.horizon")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--endpoints", type=int, default=10)
    parser.add_argument("--usual-seconds", type=float, default=30.0)
    parser.add_argument("--pinned-seconds", type=float, default=130.0)
    asked = parser.parse_args()
    plan = Plan(asked.events, asked.endpoints, asked.usual_seconds, asked.pinned_seconds)
    try:
        with installation(say) as ground:
            return 0 if asyncio.run(measure(plan, ground)).share >= WANTED else 1
    except RuntimeError as fault:
        say(str(fault))
        return 1


if __name__ == "__main__":
    sys.exit(main())
