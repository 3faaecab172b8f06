"""How many dispatchers one database feeds: `make simulate-claims`, or `python -m tests.loadtest.claim_simulation`.

Owns a model of the claims, as small as it can be and still have what decides: the server's cores, the locks of lanes,
the wake-ups and the pace. Invariant: the same seed gives the same table. What it assumes:

- The server does one statement per core at a time, and others wait in line; disk, network and planning cost nothing.
- A claim costs the server `CLAIM_MS` and `ROW_MS` for each row, a record `RECORD_MS` and `RECORDED_MS` for each row,
  the append of each event `APPEND_MS`, and to ask when something is due `NEXT_DUE_MS`. All of them were counted as
  processor time (`make bench-scale`, `make bench`).
- A claim goes on behind the lane where the last one of its dispatcher ended, visits at most 64 lanes that have
  something due and that no other claim holds, and takes from each its share of the batch; it holds them until it is
  done. Lanes that are held are passed over, and the next claim comes after 3 ms instead of 10.
- Events come at random, for lanes by Zipf's law. Each append wakes every dispatcher that is at rest, after 1 ms.
- A send takes 20 ms; a dispatcher has 512 under way at most, and 50 of each lane.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

CLAIM_MS, ROW_MS = 0.6, 0.024
RECORD_MS, RECORDED_MS = 0.4, 0.035
APPEND_MS, NEXT_DUE_MS = 0.06, 0.2
PACE_MS, CONTENDED_MS, WAKE_MS, SEND_MS = 10.0, 3.0, 1.0, 20.0
BATCH, OPEN_LANES, IN_FLIGHT, PER_LANE = 300, 64, 512, 50


Work = Callable[[], tuple[float, Callable[[], None]]]
"""What a statement does when a core begins with it: answers its cost in milliseconds and what is then done."""


@dataclass(frozen=True, slots=True)
class Case:
    """So many dispatchers on a server of so many cores, which get so many events a second for so many lanes."""

    dispatchers: int
    cores: int
    rate: float
    lanes: int
    seconds: float
    seed: int = 1
    woken: bool = True
    """Whether each append wakes every dispatcher, or (as a broker does) the one that gets the work."""


@dataclass(slots=True)
class Dispatcher:
    """What one process knows: where its next claim begins, what it has under way."""

    after: int = -1
    under_way: Counter[int] = field(default_factory=Counter)
    rests: bool = True

    @property
    def room(self) -> int:
        return IN_FLIGHT - self.under_way.total()


@dataclass(slots=True)
class Seen:
    """What came of it."""

    delivered: int = 0
    waited_ms: list[float] = field(default_factory=list)
    claims: int = 0
    empty: int = 0
    contended: int = 0
    busy_ms: float = 0.0


class Simulation:
    """One run; times are milliseconds."""

    def __init__(self, case: Case) -> None:
        self.case, self.seen, self.now = case, Seen(), 0.0
        self._draw = random.Random(case.seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._waiting: deque[Work] = deque()
        self._free = case.cores
        self._due: dict[int, list[float]] = {}
        self._held: set[int] = set()
        self._weights = list(itertools.accumulate(1.0 / (place + 1) for place in range(case.lanes)))
        self._fleet = [Dispatcher() for _ in range(case.dispatchers)]

    def run(self) -> Seen:
        """Play all of it."""
        self._arrive()
        while self._events and self._events[0][0] < 1000.0 * self.case.seconds:
            self.now, _, happen = heapq.heappop(self._events)
            happen()
        return self.seen

    def _after(self, ms: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + ms, next(self._numbers), happen))

    def _serve(self, work: Work) -> None:
        """Have a core of the server do this, as soon as one is free."""
        if self._free:
            self._begin(work)
        else:
            self._waiting.append(work)

    def _begin(self, work: Work) -> None:
        self._free -= 1
        cost, done = work()
        self.seen.busy_ms += cost

        def end() -> None:
            self._free += 1
            done()
            if self._waiting and self._free:
                self._begin(self._waiting.popleft())

        self._after(cost, end)

    def _arrive(self) -> None:
        self._after(self._draw.expovariate(self.case.rate / 1000.0), self._arrive)
        (lane,) = self._draw.choices(range(self.case.lanes), cum_weights=self._weights)

        def appended() -> None:
            self._due.setdefault(lane, []).append(self.now)
            resting = [each for each in self._fleet if each.rests]
            for each in resting if self.case.woken else resting[:1]:
                each.rests = False
                self._after(WAKE_MS, partial(self._claim, each))

        self._serve(lambda: (APPEND_MS, appended))

    def _claim(self, by: Dispatcher) -> None:
        if by.room < BATCH // 2:
            self._after(PACE_MS, lambda: self._claim(by))
            return
        began = self.now

        def work() -> tuple[float, Callable[[], None]]:
            picked, contended = self._pick(by)
            rows = sum(len(due) for due in picked.values())
            self._held.update(picked)
            return CLAIM_MS + ROW_MS * rows, lambda: self._claimed(by, began, picked, contended)

        self._serve(work)

    def _pick(self, by: Dispatcher) -> tuple[dict[int, list[float]], bool]:
        """What a claim takes: its share from each of the lanes behind the last one; and whether any was held."""
        lanes = sorted(self._due, key=lambda lane: (lane <= by.after, lane))
        contended = any(lane in self._held for lane in lanes[: 8 * OPEN_LANES])
        opened = [lane for lane in lanes if lane not in self._held and by.under_way[lane] < PER_LANE][:OPEN_LANES]
        batch = min(BATCH, by.room)
        share = -(-batch // max(len(opened), 1))
        picked: dict[int, list[float]] = {}
        for lane in opened:
            take = min(share, batch, PER_LANE - by.under_way[lane])
            if take <= 0:
                break
            due = self._due[lane]
            picked[lane], left = due[:take], due[take:]
            batch -= len(picked[lane])
            by.after = lane
            if left:
                self._due[lane] = left
            else:
                del self._due[lane]
        return picked, contended

    def _claimed(self, by: Dispatcher, began: float, picked: dict[int, list[float]], contended: bool) -> None:
        self._held.difference_update(picked)
        self.seen.claims += 1
        self.seen.contended += contended
        self.seen.empty += not picked
        rows = 0
        for lane, due in picked.items():
            self.seen.waited_ms += [self.now - at for at in due]
            by.under_way[lane] += len(due)
            rows += len(due)
        if picked:
            self._after(SEND_MS, lambda: self._record(by, picked, rows))
        if not picked and not contended and not self._due:
            self._serve(lambda: (NEXT_DUE_MS, lambda: self._rest(by)))
            return
        pause = CONTENDED_MS if contended else PACE_MS
        self._after(0.0 if rows >= BATCH else max(0.0, began + pause - self.now), lambda: self._claim(by))

    def _rest(self, by: Dispatcher) -> None:
        """Rest, unless something came meanwhile, of which the wake-up was for nobody."""
        by.rests = not self._due
        if not by.rests:
            self._after(PACE_MS, lambda: self._claim(by))

    def _record(self, by: Dispatcher, picked: dict[int, list[float]], rows: int) -> None:
        def recorded() -> None:
            self.seen.delivered += rows
            for lane, due in picked.items():
                by.under_way[lane] -= len(due)

        self._serve(lambda: (RECORD_MS + RECORDED_MS * rows, recorded))


def percentile(values: list[float], share: float) -> float:
    """The value that so much of them does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def row(case: Case) -> str:
    """A row of the table."""
    seen = Simulation(case).run()
    rows = len(seen.waited_ms)
    return (
        f"| {case.dispatchers} | {case.cores} | {case.rate:,.0f} | {'all' if case.woken else 'one'} |"
        f" {seen.delivered / case.seconds:,.0f} | {rows / max(seen.claims - seen.empty, 1):.0f} |"
        f" {seen.empty / max(seen.claims, 1):.0%} | {seen.contended / max(seen.claims, 1):.0%} |"
        f" {percentile(seen.waited_ms, 0.5):.0f} | {percentile(seen.waited_ms, 0.99):.0f} |"
        f" {seen.busy_ms / (1000.0 * case.seconds * case.cores):.0%} |"
    )


HEAD = (
    "| dispatchers | cores | events/s | an append wakes | delivered/s | rows a claim | claims in vain | claims that met"
    " another | due to claimed p50, ms | p99, ms | server busy |\n|" + "---|" * 11
)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.loadtest.claim_simulation")
    parser.add_argument("--lanes", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(HEAD)  # noqa: T201 # this is what the command is for
    for dispatchers, cores, rate, woken in CASES:
        case = Case(dispatchers, cores, rate, asked.lanes, asked.seconds, asked.seed, woken)
        print(row(case), flush=True)  # noqa: T201 # likewise
    return 0


CASES = (
    (1, 8, 500.0, True),
    (1, 8, 5_000.0, True),
    (10, 8, 500.0, True),
    (10, 8, 5_000.0, True),
    (10, 32, 20_000.0, True),
    (100, 32, 500.0, True),
    (100, 32, 5_000.0, True),
    (100, 32, 20_000.0, True),
    (100, 32, 500.0, False),
    (100, 32, 5_000.0, False),
    (100, 32, 20_000.0, False),
)
"""Dispatchers, cores, events per second, and whether an append wakes everybody."""


if __name__ == "__main__":
    sys.exit(main())
