"""A look at a load from beside it: what each party spends while posts come in and until all is delivered.

Owns the samples and what is read from them. The load itself is `steady`'s, and knows nothing of this. Invariant: what
is said of a load is the difference of two samples: the last one before its first post, and the first one after its last
post with nothing owed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from relay.loadtest.accounting import Spent, child_seconds
from relay.loadtest.installation import Installation
from relay.store.health import Health

EVERY_SECONDS = 0.5

LOAD = "load"
PARTIES = {
    "gateway": ("relay", "gateway"),
    "dispatcher": ("relay", "dispatcher"),
    "sink": ("relay.loadtest.sink",),
    LOAD: ("relay.loadtest.open_loop",),
}
"""How to tell the processes of a load, by their arguments."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What had been spent, what was owed, and whether posts came in."""

    spent: Spent
    owed: int
    posting: bool


@dataclass(slots=True)
class Watch:
    """The samples of a block; use `watching` to take them."""

    samples: list[Sample] = field(default_factory=list)

    def spent(self) -> Spent:
        """From the last sample before posts came in to the first after them with nothing owed.

        Raises `RuntimeError` if no posts were seen.
        """
        posting = [place for place, each in enumerate(self.samples) if each.posting]
        if not posting:
            raise RuntimeError("no posts were seen: the load was too short to be watched")
        after = self.samples[posting[-1] + 1 :]
        last = next((each for each in after if not each.owed), self.samples[-1])
        return last.spent.since(self.samples[max(posting[0] - 1, 0)].spent)


@contextlib.asynccontextmanager
async def watching(ground: Installation) -> AsyncIterator[Watch]:
    """Take samples of the load that is put on this installation inside the block."""
    watch = Watch()
    await ground.migrate()
    database = await ground.looking()
    task = asyncio.create_task(_look(watch, ground, Health(database)))
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.wait([task])
        await database.close()
    if not task.cancelled():
        task.result()


async def _look(watch: Watch, ground: Installation, health: Health) -> None:
    seen = dict.fromkeys(PARTIES, 0.0)
    while True:
        now = {party: child_seconds(*arguments) for party, arguments in PARTIES.items()}
        # of who has ended, what was seen last
        seen |= {party: seconds for party, seconds in now.items() if seconds is not None}
        spent = await ground.spent_by(seen, health)
        watch.samples.append(Sample(spent, await health.owed(), now[LOAD] is not None))
        await asyncio.sleep(EVERY_SECONDS)
