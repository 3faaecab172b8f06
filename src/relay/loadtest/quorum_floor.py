"""The floor of a quorum: a small commit, a barrier and a proof at a given pace, without Relay around them.

Owns the work of its one process. Relay sends a barrier only where a look at the standbys does not prove it first, so
its wait may be shorter. Like the gateway it has one commit under way and one barrier, each for all that fell due
meanwhile. Run as `python -m relay.loadtest.quorum_floor --rate …`; prints one line of JSON, an object like `Floor`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from array import array
from dataclasses import asdict, dataclass

import uvloop

from relay.loadtest.histogram import percentiles
from relay.loadtest.open_loop import TICK_SECONDS
from relay.store.barrier import cross
from relay.store.database import Commits, Database
from relay.store.quorum import look

WAIT_SECONDS = 60.0
"""How long after the last one fell due all may take to be proven."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Milliseconds: from due to proven, and of each commit, barrier and proof by itself; `barriers` were sent."""

    proven_ms: dict[str, float]
    commit_ms: dict[str, float]
    barrier_ms: dict[str, float]
    proof_ms: dict[str, float]
    barriers: int


class _Pace:
    """So many small commits per second, each proven to be on `quorum` machines."""

    def __init__(self, commits: Database, barriers: Database, *, rate: float, number: int, quorum: int) -> None:
        self._commits = commits
        self._barriers = barriers
        self._rate = rate
        self._number = number
        self._quorum = quorum
        self._began = 0.0
        self._committed = 0
        self._more = asyncio.Event()
        self._proven, self._commit, self._barrier, self._proof = (array("d") for _ in range(4))

    async def run(self) -> Floor:
        self._began = time.monotonic()
        async with asyncio.timeout(self._number / self._rate + WAIT_SECONDS), asyncio.TaskGroup() as both:
            both.create_task(self._commit_all())
            both.create_task(self._prove_all())
        return Floor(
            percentiles(self._proven),
            percentiles(self._commit),
            percentiles(self._barrier),
            percentiles(self._proof),
            len(self._barrier),
        )

    async def _commit_all(self) -> None:
        async with self._commits.kept_connection() as connection:
            while self._committed < self._number:
                began = time.monotonic()
                due = min(int((began - self._began) * self._rate) + 1, self._number)
                if due == self._committed:
                    await asyncio.sleep(TICK_SECONDS)
                    continue
                await cross(connection)  # on this connection it waits for the server's own disk alone
                self._commit.append(time.monotonic() - began)
                self._committed = due
                self._more.set()

    async def _prove_all(self) -> None:
        proven = 0
        async with self._barriers.kept_connection() as connection:
            while proven < self._number:
                await self._more.wait()
                self._more.clear()
                upto, began = self._committed, time.monotonic()
                log_to = await cross(connection)
                crossed = time.monotonic()
                while not (await look(connection, log_to, awaits=True)).proves(self._quorum):
                    pass  # the barrier has waited for it; each look waits for the server
                ended = time.monotonic()
                self._barrier.append(crossed - began)
                self._proof.append(ended - crossed)
                self._proven.extend(ended - self._began - place / self._rate for place in range(proven, upto))
                proven = upto


async def measure(dsn: str, rate: float, number: int, quorum: int) -> Floor:
    """Keep up the pace until so many are proven. Raises `TimeoutError` if they are not in the end."""
    commits = await Database.connect(dsn, name="relay-floor", size=1)
    barriers = await Database.connect(dsn, name="relay-floor", size=1, commits=Commits.AS_SERVER_SAYS)
    try:
        return await _Pace(commits, barriers, rate=rate, number=number, quorum=quorum).run()
    finally:
        await commits.close()
        await barriers.close()


def main() -> None:
    """The command line; see the module's description."""
    parser = argparse.ArgumentParser(
        prog="python -m relay.loadtest.quorum_floor", description="Barriers at a pace, on the server of DATABASE_URL."
    )
    parser.add_argument("--rate", type=float, required=True, help="commits per second")
    parser.add_argument("--number", type=int, required=True, help="commits in all")
    parser.add_argument("--quorum", type=int, required=True, help="machines that have each")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        floor = runner.run(measure(os.environ["DATABASE_URL"], options.rate, options.number, options.quorum))
    json.dump(asdict(floor), sys.stdout)
    sys.stdout.write("\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
