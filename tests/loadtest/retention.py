"""What retention costs those who work beside it: `make bench-retention`, or `python -m tests.loadtest.retention`.

Owns what there is to remove, the order of the measurement and its verdict. The same load is put on an installation
three times; in the middle of the second time, thirty days with a million attempts are dropped, and a day of events is
pruned with all that belongs to it. What is compared is of one run on one machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from relay.dispatcher.maintainer import Maintainer
from relay.dispatcher.pruner import Pruner
from relay.domain.housekeeping import DaysDropped
from relay.domain.telemetry import LoopHeldUp
from relay.loadtest.installation import Installation, installation
from relay.loadtest.steady import Load, measure
from relay.loadtest.times import times_head, times_row
from relay.store.database import Database
from relay.store.health import Health
from relay.store.retention import Retention, Windows
from tests.loadtest import past
from tests.support.world import Ear, real_ambient

WANTED = 1.5
"""How much longer the slowest of a hundred answers may take while retention runs than without."""
DAYS = 30
LIMIT_SECONDS = 120.0
AFTER_SECONDS = 3.0
"""How long posts come in before retention begins."""

_DEAD_ROWS = """
select coalesce(sum(n_dead_tup), 0)::integer from pg_stat_all_tables where relname like 'delivery_attempts%'
"""


def say(line: str) -> None:
    """A line for whoever watches."""
    print(line, flush=True)  # noqa: T201 # this is what the command is for


@dataclass(slots=True)
class Bench:
    """One run: so many attempts in thirty days, so many events in a day, removed beside a load."""

    attempts: int
    events: int
    posting: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, line: str) -> None:
        """Show what goes on, and notice when posts begin."""
        say(line)
        if line.startswith("posting"):
            self.posting.set()

    async def fill(self, database: Database) -> None:
        """Make what is to be removed."""
        today = datetime.now(UTC).date()
        for days in range(31, 31 + DAYS):
            await past.attempts(database, today - timedelta(days=days + 1), self.attempts // DAYS)
        await past.events(database, today - timedelta(days=40), self.events)
        async with database.connection() as connection:
            await past.analyze(connection)

    async def retain(self, database: Database) -> None:
        """Remove all of it, once posts have come in for some seconds."""
        await self.posting.wait()
        await asyncio.sleep(AFTER_SECONDS)
        ear, windows, world = Ear(), Windows(), real_ambient()
        maintainer = Maintainer(
            store=Health(database),
            retention=Retention(database),
            attempts_days=windows.attempts_days,
            ambient=world,
            emit=ear,
        )
        pruner = Pruner(store=Retention(database), windows=windows, ambient=world, emit=ear)
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            loops = [group.create_task(maintainer.run()), group.create_task(pruner.run())]
            await ear.until(lambda: len(ear.of(DaysDropped)) == DAYS + 1, LIMIT_SECONDS)
            say(f"{self.attempts:,} attempts in {DAYS} days, and a day of events: {time.monotonic() - began:.1f} s")
            while await self._left(database):
                await ear.until(lambda: True)
                await asyncio.sleep(0.1)
            say(f"{self.events:,} events with receipts and deliveries gone in {time.monotonic() - began:.1f} s")
            say(f"rounds that were held up: {len(ear.of(LoopHeldUp))}")
            for each in loops:
                each.cancel()

    async def _left(self, database: Database) -> int:
        async with database.connection() as connection:
            return int(await connection.fetchval("select count(*) from old_days where swept_at is null"))


async def run(bench: Bench, load: Load, ground: Installation) -> bool:
    """Measure; answers whether retention was little enough in the way."""
    await ground.subscribe(["http://127.0.0.1:1/none"])
    database = await Database.connect(ground.dsn, name="relay retention", size=2, within=300.0)
    # before the first time, so that what the server has to do with what it was filled with is no part of any difference
    await bench.fill(database)
    alone = await measure(load, ground)
    bench.posting.clear()
    removing = asyncio.create_task(bench.retain(database))
    beside = await measure(load, ground)
    await removing
    again = await measure(load, ground)
    async with database.connection() as connection:
        dead = await connection.fetchval(_DEAD_ROWS)
    await database.close()
    say(times_head("ms from due to answered"))
    for title, steady in (("alone", alone), ("beside retention", beside), ("alone again", again)):
        say(times_row(title, steady.answered_ms) + f"  {steady.answers}")
    ratio = beside.answered_ms["p99"] / max(alone.answered_ms["p99"], again.answered_ms["p99"])
    say(f"dead rows among the attempts: {dead}; p99 beside it {ratio:.2f} x the slower one alone, wanted {WANTED} x")
    return ratio <= WANTED and dead == 0


def main() -> int:
    """Measure; exit code 1 if retention is in the way."""
    parser = argparse.ArgumentParser(prog="python -m tests.loadtest.retention")
    parser.add_argument("--attempts", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    asked = parser.parse_args()
    # what there is to remove is left to this process
    os.environ |= {"RELAY_RETAIN_ATTEMPTS_DAYS": "3650", "RELAY_RETAIN_DELIVERED_DAYS": "3650"}
    os.environ["RELAY_RETAIN_DEAD_DAYS"] = "3650"
    bench = Bench(asked.attempts, asked.events)
    load = Load(asked.rate, asked.seconds, 1, 500, 1, 1)
    with installation(bench.tell) as ground:
        return 0 if asyncio.run(run(bench, load, ground)) else 1


if __name__ == "__main__":
    sys.exit(main())
