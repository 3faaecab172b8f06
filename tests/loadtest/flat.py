"""Costs that stay flat: `make bench-flat`, or `python -m tests.loadtest.flat`, `--only NAME` for one case.

Owns the order of the measurements, the table and the verdicts; the cases are `flat_cases`'. A case is drained in turns
with the plain one: two servers are made ready, and dispatchers drain so much of what the one owes, then of what the
other does, round by round. Invariant: a ratio is of two drains one after the other, and of all rounds the middle one
counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import asyncpg

from relay.loadtest.accounting import POSTGRES
from relay.loadtest.bench import bare_client
from relay.loadtest.children import Child, child
from relay.loadtest.installation import Installation, installation, sink_url
from relay.store.database import Database
from tests.docs.tree import ROOT
from tests.loadtest import horizon
from tests.loadtest.flat_cases import CASES, PLAIN, WITHIN_SECONDS, Case, owe, prepare
from tests.support.certificates import issue

WORKERS = 2
LIMIT_SECONDS = 300.0
HORIZON = "horizon"
MOST_PER_SECOND = 14_000
"""More than that are not delivered, so a backlog of so many for each second lasts."""
REST = 0.15
"""Of the rows of a round, so many more are owed: neither the start nor the end of a drain is measured."""
TRUSTING = ROOT / "tests" / "support" / "trusting"
NOTE = (
    "ratio: processor time over the plain case's; with a floor of its own, the plain case's share of its floor over it"
)


def say(line: str) -> None:
    """A line for whoever watches."""
    print(line, flush=True)  # noqa: T201 # this is what the command is for


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain came to: deliveries per second, and µs of processor time and bytes of log for each."""

    rate: float
    dispatcher_us: float
    postgres_us: float
    wal_bytes: float
    floor: float | None = None

    @property
    def processor_us(self) -> float:
        """Of dispatcher and PostgreSQL."""
        return self.dispatcher_us + self.postgres_us


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of each."""

    plain: Drained
    case: Drained

    def ratio(self, case: Case) -> float:
        """What is judged: what a delivery costs over what a plain one does; where the bare client has a floor of its
        own, the share of that which is reached, over the plain one's."""
        if case.own_floor and self.case.floor and self.plain.floor:
            return (self.plain.rate / self.plain.floor) / (self.case.rate / self.case.floor)
        return self.case.processor_us / self.plain.processor_us


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table."""

    name: str
    rate: float
    dispatcher_us: float | None
    postgres_us: float | None
    wal_bytes: float | None
    us_per_kib: float | None
    rate_ratio: float
    ratio: float
    wanted: float

    @property
    def met(self) -> bool:
        """Whether the case costs as little as wanted."""
        return self.ratio <= self.wanted

    def text(self) -> str:
        """For a person."""
        costs = (self.dispatcher_us, self.postgres_us, self.wal_bytes, self.us_per_kib)
        numbers = "".join(f"{'-' if each is None else format(each, ',.1f'):>12}" for each in costs)
        judged = f"{self.rate_ratio:10.2f}{self.ratio:10.2f}{self.wanted:10.2f}  {'met' if self.met else 'missed'}"
        return f"{self.name:{WIDTH}}{self.rate:12,.0f}{numbers}{judged}"


WIDTH = 48
HEAD = f"{'':{WIDTH}}{'per second':>12}{'dispatcher':>12}{'PostgreSQL':>12}{'log bytes':>12}{'per KiB':>12}" + "".join(
    f"{each:>10}" for each in ("of plain", "ratio", "wanted")
)


def rows(case: Case, rounds: list[Round]) -> list[Row]:
    """The lines of a case: the plain drains beside it, and its own."""

    def row(name: str, of: Case, drained: list[Drained], rate_ratio: float, ratio: float, wanted: float) -> Row:
        return Row(
            name,
            statistics.median(each.rate for each in drained),
            statistics.median(each.dispatcher_us for each in drained),
            statistics.median(each.postgres_us for each in drained),
            statistics.median(each.wal_bytes for each in drained),
            statistics.median(each.processor_us for each in drained) / (of.payload_bytes / 1024),
            *(rate_ratio, ratio, wanted),
        )

    rate = statistics.median(each.case.rate / each.plain.rate for each in rounds)
    ratio = statistics.median(each.ratio(case) for each in rounds)
    return [
        row(f"plain, beside {case.name}", PLAIN, [each.plain for each in rounds], 1.0, 1.0, 1.0),
        row(f"{case.name}: {case.title}", case, [each.case for each in rounds], rate, ratio, case.wanted),
    ]


@dataclass(frozen=True, slots=True)
class Side:
    """An installation made ready for a case, its sink, and who vouches for that if it speaks TLS."""

    case: Case
    ground: Installation
    database: Database
    sink: Child
    url: str
    authority: Path | None

    async def prepare(self) -> None:
        """Endpoints that have answered, whatever the case has beside, and nothing of that left to be written back."""
        began = time.monotonic()
        await prepare(self.case, self.ground, self.database, self.url)
        with self.ground.dispatcher(WORKERS) as dispatcher:
            await self._arrived(self.case.endpoints, dispatcher)
        connection = await asyncpg.connect(self.ground.superuser_dsn)
        await connection.execute("checkpoint", timeout=WITHIN_SECONDS)
        await connection.close()
        say(f"{self.case.name} is ready after {time.monotonic() - began:.0f} s")

    async def turn(self, *, floor: bool) -> Drained:
        """Drain as many rows as the case says; with `floor`, after the bare client has sent as many."""
        bare = None
        if floor:
            bare = await bare_client(
                *(self.ground, self.sink, self.url, self.case.rows, self.case.payload_bytes, WORKERS, self.authority)
            )
        await owe(self.case, self.database, int(self.case.rows * (1 + REST)))
        first = self.sink.ask()["requests"]
        with self.ground.dispatcher(WORKERS) as dispatcher:
            had = await self._arrived(first + int(self.case.rows * REST), dispatcher)
            before = await self.ground.spent(dispatcher=dispatcher)
            has = await self._arrived(first + self.case.rows, dispatcher)
            spent = (await self.ground.spent(dispatcher=dispatcher)).since(before)
        cost = spent.each(has - had)
        return Drained(
            rate=(has - had) / spent.seconds,
            dispatcher_us=cost.us["dispatcher"],
            postgres_us=cost.us[POSTGRES],
            wal_bytes=cost.wal_bytes,
            floor=None if bare is None else bare.rate,
        )

    async def _arrived(self, number: int, dispatcher: Child) -> int:
        """Wait until so many requests have come to the sink; answers how many had."""
        ends = time.monotonic() + LIMIT_SECONDS
        while (arrived := int(self.sink.ask()["requests"])) < number:
            if dispatcher.process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"{self.case.name}: {arrived:,} of {number:,} deliveries arrived, then no more")
            await asyncio.sleep(0.05)
        return arrived


@contextlib.asynccontextmanager
async def side(case: Case) -> AsyncIterator[Side]:
    """An installation of its own for the case."""
    with installation(lambda _: None) as ground, contextlib.ExitStack() as stack:
        authority = None
        if case.tls:
            issued = issue(ground.folder, "127.0.0.1")
            authority = issued.authority
            stack.enter_context(trusting(authority))
            sink = stack.enter_context(child("tests.loadtest.tls_sink", str(issued.certificate), str(issued.key)))
            url = sink_url(sink).replace("http:", "https:")
        else:
            sink = stack.enter_context(child("relay.loadtest.sink"))
            url = sink_url(sink)
        database = await Database.connect(ground.dsn, name="relay-flat", size=2, within=WITHIN_SECONDS)
        try:
            yield Side(case, ground, database, sink, url, authority)
        finally:
            await database.close()


def trusting(authority: Path) -> AbstractContextManager[object]:
    """Relay's processes that are started inside the block trust this authority, as if it were the system's."""
    return patch.dict(os.environ, {"TRUSTED_AUTHORITY": str(authority), "PYTHONPATH": str(TRUSTING)})


async def measure(case: Case, plain: Case, number: int) -> list[Row]:
    """The lines of a case, after so many rounds."""
    async with side(plain) as beside, side(case) as special:
        await beside.prepare()
        await special.prepare()
        rounds = []
        for _ in range(number):
            plain_turn = await beside.turn(floor=case.own_floor)
            case_turn = await special.turn(floor=case.own_floor)
            rounds.append(Round(plain_turn, case_turn))
            say(f"{case.name}: plain {plain_turn}, it {case_turn}")
    return rows(case, rounds)


async def measure_horizon(share: float) -> list[Row]:
    """The line of an old snapshot, by its own measurement."""
    usual, pinned = 30.0 * share, 130.0 * share
    # a sample is over before the next one is thought of
    seconds = horizon.WARM_UP_SECONDS + 2 * usual + pinned + 3 * horizon.SAMPLE_SECONDS
    plan = horizon.Plan(min(horizon.EVENTS, int(MOST_PER_SECOND * seconds)), 10, usual, pinned)
    with installation(lambda _: None) as ground:
        left = await horizon.measure(plan, ground)
    title = f"{HORIZON}: a snapshot kept for {plan.pinned_seconds:.0f} s"
    return [Row(title, left.pinned, None, None, None, None, left.share, 1 / left.share, 1 / horizon.WANTED)]


def main() -> int:
    """Measure; exit code 1 if a case costs more than wanted."""
    names = [*(case.name for case in CASES), HORIZON]
    parser = argparse.ArgumentParser(prog="python -m tests.loadtest.flat")
    parser.add_argument("--only", choices=names, action="append", help="a case (may be given several times)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of all rows, to try the measurement itself")
    asked = parser.parse_args()
    table: list[Row] = []
    try:
        for case in CASES:
            if case.name in (asked.only or names):
                made, plain = case.smaller(asked.share), PLAIN.smaller(asked.share)
                table += asyncio.run(measure(made, plain, asked.rounds))
        if HORIZON in (asked.only or names):
            table += asyncio.run(measure_horizon(asked.share))
    except RuntimeError as fault:
        say(f"the measurement failed: {fault}")
        return 1
    say("\n".join([HEAD, *(row.text() for row in table), NOTE]))
    return 0 if all(row.met for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
