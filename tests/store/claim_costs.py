"""What a claim costs per row, beside what it costs in a small queue: `python -m tests.store.claim_costs`.

Owns the shapes that are compared, all on one server in one run, since only ratios travel. The server waits for the disk
as in earnest.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from relay.embedded import EmbeddedServer
from relay.store.database import Commits, Database
from relay.store.health import Health
from relay.store.migrate import migrate
from relay.store.queue import FIRST_LANE, Queue
from tests.store import bulk
from tests.store.world import new_id
from tests.support.database import Server
from tests.support.postgres import throwaway_server

BATCH = 300
CLAIMS = 60
WARM_UP = 5
ALLOWED = 1.5
"""How much more a row may cost than in the small queue."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A queue: so many rows due in so many lanes; a closed lane has the oldest share of them."""

    title: str
    rows: int
    lanes: int
    closed_share: float = 0.0


FILLING_SECONDS = 600.0
"""How long the queue may take to be filled."""

SMALL = Shape("10,000 rows, 100 lanes", 10_000, 100)
SHAPES = (
    Shape("1,000,000 rows, 10,000 lanes, one closed lane has half", 1_000_000, 10_000, 0.5),
    Shape("500,000 rows, one lane", 500_000, 1),
)


@asynccontextmanager
async def filled(server: EmbeddedServer, name: str, shape: Shape) -> AsyncIterator[tuple[Queue, Database]]:
    """A database of its own with that queue in it."""
    host = Server(server.superuser_dsn)
    await host.run(f"create database {name}")
    dsn = host.dsn(name)
    database = await Database.connect(dsn, name="costs", size=2, within=FILLING_SECONDS)
    claims = await Database.connect(dsn, name="costs", size=1, commits=Commits.LAZY)
    try:
        await migrate(database)
        async with database.connection() as connection:
            lanes = await bulk.add_lanes(connection, shape.lanes)
            await bulk.owe(connection, shape.rows, lanes, last_lanes_share=shape.closed_share)
            if shape.closed_share:
                await connection.execute("update endpoints set status = 'paused' where id = $1", lanes[-1])
            await bulk.analyze(connection)
        yield Queue(claims, database), database
    finally:
        await claims.close()
        await database.close()


async def cost(queue: Queue, *, batch: int = BATCH, claims: int = CLAIMS) -> tuple[float, float]:
    """Microseconds per claimed row (the median over claims), and rows per claim."""
    after, costs, rows = FIRST_LANE, [], 0
    for place in range(claims + WARM_UP):
        began = time.perf_counter()
        claim = await queue.claim_due(after=after, batch=batch, token=new_id(), lease_seconds=600)
        spent = time.perf_counter() - began
        after = claim.resume_after
        if place >= WARM_UP and claim.deliveries:
            costs.append(1e6 * spent / len(claim.deliveries))
            rows += len(claim.deliveries)
    return statistics.median(costs), rows / len(costs)


async def measure(server: EmbeddedServer) -> bool:
    """Print the costs; answers whether each ratio is allowed."""
    fine = True
    smallest = float("inf")
    # the small queue before and after each other one: the machine's own unrest is seen in their difference
    for place, shape in enumerate((SMALL, SHAPES[0], SMALL, SHAPES[1], SMALL)):
        claims = 25 if shape is SMALL else CLAIMS
        async with filled(server, f"costs_{place}", shape) as (queue, database):
            row, claimed = await cost(queue, claims=claims)
            began = time.perf_counter()
            async with Health(database).reporting() as reporting:
                assert reporting is not None, "nobody else is here"
                await reporting.measure()
            measured = 1e3 * (time.perf_counter() - began)
        if shape is SMALL:
            smallest = min(smallest, row)
        ratio = row / smallest
        fine = fine and ratio <= ALLOWED
        print(  # noqa: T201 # this is what the command is for
            f"{row:7.1f} µs a row  {ratio:5.2f} x  {claimed:5.0f} rows a claim  {shape.title}"
            f"  (measuring the queue: {measured:.0f} ms)",
            flush=True,
        )
    return fine


def main() -> int:
    """Measure; exit code 1 if a row costs more than it may."""
    with throwaway_server(settings={}) as server:
        return 0 if asyncio.run(measure(server)) else 1


if __name__ == "__main__":
    sys.exit(main())
