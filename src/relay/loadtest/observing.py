"""A look at a load while it runs: how far it has come, what is owed, how much memory is taken.

Owns the samples and the line about progress. Looks as each part of the posts has left, which the generator says, so it
sees as much of a short load as of a long one. Invariant: looking costs the measured system a count of what is owed at
each quarter, and nothing between.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relay.loadtest.children import Child
from relay.loadtest.installation import Installation
from relay.loadtest.memory import Memory, judged, tree_mib

QUARTERS = 4
MOST_LOOKS = 240
"""However long a load is, it is looked at so often at most."""

LEVEL_SECONDS = 0.25
"""So many seconds' worth of deliveries may be owed at any time: they are on their way."""

LEVEL_RATIO = 1.5


@dataclass(frozen=True, slots=True)
class Queue:
    """What endpoints that live were owed as each quarter of the posts had left. `under_way` is how many deliveries are
    on their way at any time. `unanswered` is how many posts had no answer then: a gateway that cannot keep up lets
    them wait, and nothing of them is owed yet."""

    owed: tuple[int, ...]
    under_way: int
    unanswered: tuple[int, ...] = ()

    @property
    def is_flat(self) -> bool:
        """Whether about as much waits at the end as in the middle, or no more than what is on its way."""
        return all(
            waiting[-1] <= max(LEVEL_RATIO * waiting[1], self.under_way)
            for waiting in (self.owed, self.unanswered)
            if waiting
        )


@dataclass(slots=True)
class Observer:
    """Looks at one load of so many deliveries per second; `trees` are the processes whose memory counts, by name."""

    ground: Installation
    sink: Child
    trees: Mapping[str, int]
    seconds: float
    rate: float
    samples: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    owed: list[int] = field(default_factory=list)
    unanswered: list[int] = field(default_factory=list)

    @property
    def parts(self) -> int:
        """In how many parts the posts are told of: about one a second, and quarters in any case."""
        return QUARTERS * math.ceil(min(self.seconds, MOST_LOOKS) / QUARTERS)

    async def until_done(self, posts: Child) -> dict[str, Any]:
        """Look on until all posts have their answers; what the generator says then."""
        await self._look_at_memory(0.0)
        part = 0
        while True:
            line = await asyncio.to_thread(posts.line)
            if "answers" in line:
                return line
            passed = int(line["share"] * self.parts)
            quarters = passed * QUARTERS // self.parts - part * QUARTERS // self.parts
            part = passed
            self._tell(line)
            if quarters:  # several of them, where the generator itself was held up
                owed = max(0, await self.ground.owed() - int(line["undeliverable"]))
                self.owed += [owed] * quarters
                self.unanswered += [int(line["posted"] - line["answered"])] * quarters
            await self._look_at_memory(line["elapsed"])

    async def _look_at_memory(self, elapsed: float) -> None:
        for name, pid in self.trees.items():
            mib = await asyncio.to_thread(tree_mib, pid)
            self.samples.setdefault(name, []).append((round(elapsed, 1), mib))

    def _tell(self, line: Mapping[str, float]) -> None:
        counts = self.sink.ask()
        arrived = counts["requests"] - counts["failed"] - counts["throttled"] - counts["cut"]
        self.ground.tell(
            f"{line['elapsed']:.0f} s of {self.seconds:.0f}: posted {line['posted']:,.0f},"
            f" answered {line['answered']:,.0f}, arrived {arrived:,}, owed {max(0, int(line['owed']) - arrived):,},"
            f" posts at most {line['late'] * 1000:.1f} ms late"
        )

    def queue(self) -> Queue | None:
        """What was owed meanwhile; None where the posts ended before it could be told."""
        if len(self.owed) < QUARTERS:
            return None
        return Queue(tuple(self.owed), round(self.rate * LEVEL_SECONDS), tuple(self.unanswered))

    def memory(self) -> dict[str, Memory]:
        """What each tree of processes took."""
        return {name: judged(samples) for name, samples in self.samples.items()}
