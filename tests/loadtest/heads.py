"""What appends of many gateways wait for: `make bench-scale`, or `python -m tests.loadtest.heads`.

Owns so many appenders on one database, each with one append under way as a gateway has, and what they waited for: the
heads of the partitions are held until a commit is on the disk, so that positions are gapless and in its order.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import asyncpg

from relay.loadtest.installation import Installation, installation
from relay.store.database import Database
from relay.store.vault import Vault, new_key
from tests.store.world import World, event

APPENDERS = (1, 4, 16, 64)
SECONDS = 3.0
EVENTS = 4
"""In each append."""
PARTITIONS = 16
_WAITS = """
select case when a.wait_event_type = 'Lock' then 'another append' else coalesce(a.wait_event_type, 'nothing') end
from pg_stat_activity a
where a.datname = current_database() and a.application_name = 'appends' and a.state = 'active'
"""


def say(line: str) -> None:
    """A line for whoever watches."""
    print(line, flush=True)  # noqa: T201 # this is what the command is for


@dataclass(slots=True)
class Run:
    """What came of it: milliseconds of each append, and what those under way were seen waiting for."""

    took_ms: list[float] = field(default_factory=list)
    waits: Counter[str] = field(default_factory=Counter)

    def row(self, appenders: int, title: str) -> str:
        """A row of the table."""
        cuts = statistics.quantiles(self.took_ms, n=100)
        seen = max(self.waits.total(), 1)
        return (
            f"| {appenders} | {title} | {len(self.took_ms) / SECONDS:,.0f} | {cuts[49]:.0f} | {cuts[98]:.0f} |"
            f" {self.waits['another append'] / seen:.0%} |"
        )


async def played(ground: Installation, appenders: int, *, one_partition: bool) -> Run:
    """So many appenders for some seconds, on all partitions in turn or on one."""
    run = Run()
    database = await Database.connect(ground.dsn, name="appends", size=appenders)
    looking = await asyncpg.connect(ground.dsn)
    world = World.over(database, vault=Vault([new_key()]))
    versions = await world.versions()
    ends = time.monotonic() + SECONDS

    async def append(first: int) -> None:
        place = first
        while time.monotonic() < ends:
            group = []
            for _ in range(EVENTS):
                place += 1
                group.append(event(partition=6 if one_partition else place % PARTITIONS))
            began = time.perf_counter()
            await world.journal.append(versions, group)
            run.took_ms.append(1e3 * (time.perf_counter() - began))

    async def look() -> None:
        while time.monotonic() < ends:
            run.waits.update(row[0] for row in await looking.fetch(_WAITS))
            await asyncio.sleep(0.02)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(look())
            for number in range(appenders):
                group.create_task(append(number * 5))
    finally:
        await looking.close()
        await database.close()
    return run


async def count() -> list[str]:
    """All rows."""
    rows = []
    with installation(say) as ground:
        await ground.migrate()
        for appenders in APPENDERS:
            for title, one in (("all in turn", False), ("one", True)):
                rows.append((await played(ground, appenders, one_partition=one)).row(appenders, title))
    return rows


def main() -> int:
    """Count and print the table."""
    rows = asyncio.run(count())
    say("| appenders | partitions | appends/s | p50, ms | p99, ms | of those under way, waiting for another append |")
    say("|---|---|---|---|---|---|\n" + "\n".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
