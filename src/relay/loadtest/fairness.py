"""`make bench-fairness`: how long deliveries to healthy endpoints take, alone and beside endpoints that are not.

Owns the bad neighbours, the order of the measurements, the target and the report. The target is for people: no test
depends on it. Invariant: what is compared comes from one run, in turns, since only ratios travel.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from relay.loadtest.installation import Installation, Tell, installation
from relay.loadtest.steady import Backlog, Load, Steady, measure
from relay.loadtest.times import times_head, times_row

WANTED_RATIO = 1.5
"""How much longer the slowest of a hundred deliveries to a healthy endpoint may take beside bad ones than alone."""

LOOPBACK = "127.0.0.1"
ACCEPTED = 4096
"""Connections that the system accepts for a receiver that never looks."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`healthy` endpoints get `rate` events per second in all, for so many seconds in each of three cases, and all of
    that so many times. `owed` events wait for the one that hangs, and as many for `dead` dead ones together."""

    rate: float
    seconds: float
    healthy: int
    owed: int
    dead: int
    rounds: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Round:
    """The same load, alone, beside one endpoint that hangs, and beside the dead ones."""

    alone: Steady
    hanging: Steady
    dead: Steady


@dataclass(frozen=True, slots=True)
class Report:
    """One run. `busy` is how many processes, on average over the minute before, wanted one of the machine's `cores`."""

    plan: Plan
    busy: float
    cores: int
    rounds: tuple[Round, ...]

    def ratios(self) -> dict[str, dict[str, float]]:
        """The time until arrival beside the bad ones, over that alone; of all rounds the middle one."""
        return {name: {part: self._ratio(name, part) for part in ("p50", "p99")} for name in ("hanging", "dead")}

    def _ratio(self, name: str, part: str) -> float:
        each: list[float] = [
            getattr(measured, name).arrived_ms[part] / max(measured.alone.arrived_ms[part], 0.001)
            for measured in self.rounds
        ]
        return round(statistics.median(each), 2)

    @property
    def worst(self) -> float:
        """What the target is about."""
        return max(ratio["p99"] for ratio in self.ratios().values())

    @property
    def met(self) -> bool:
        """Whether the bad ones made so little difference as wanted."""
        return self.worst <= WANTED_RATIO


def run(plan: Plan, tell: Tell) -> Report:
    """Measure all cases in turns. Raises `RuntimeError` if a process of the measurement fails."""
    busy = os.getloadavg()[0]
    with installation(tell) as ground, _hanging() as hanging, _refused() as refused, _blackhole() as blackhole:
        dead = tuple((refused, blackhole, f"http://dead-{place}.invalid/")[place % 3] for place in range(plan.dead))
        beside_dead = Backlog(dead, max(1, plan.owed // max(1, plan.dead)))
        rounds = tuple(
            asyncio.run(_round(plan, ground, Backlog((hanging,), plan.owed), beside_dead)) for _ in range(plan.rounds)
        )
    return Report(plan, busy, os.cpu_count() or 1, rounds)


async def _round(plan: Plan, ground: Installation, hanging: Backlog, dead: Backlog) -> Round:
    load = Load(plan.rate, plan.seconds, plan.healthy, plan.payload_bytes, gateways=1, dispatchers=1, in_turn=True)
    ground.tell("healthy endpoints alone")
    alone = await measure(load, ground)
    ground.tell(f"beside one that hangs, with {plan.owed:,} owed")
    beside_hanging = await measure(load, ground, beside=hanging)
    ground.tell(f"beside {plan.dead} dead ones")
    return Round(alone, beside_hanging, await measure(load, ground, beside=dead))


@contextlib.contextmanager
def _hanging() -> Iterator[str]:
    """An endpoint whose system accepts connections, and that never reads one."""
    with socket.create_server((LOOPBACK, 0), backlog=ACCEPTED) as listener:
        yield _url(listener)


@contextlib.contextmanager
def _refused() -> Iterator[str]:
    """A port that nobody listens on, and nobody else gets."""
    with socket.socket() as held:
        held.bind((LOOPBACK, 0))
        yield _url(held)


@contextlib.contextmanager
def _blackhole() -> Iterator[str]:
    """A port where a connection is neither made nor refused: its queue is full."""
    with socket.create_server((LOOPBACK, 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        for _ in range(8):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield _url(listener)


def _url(held: socket.socket) -> str:
    return f"http://{LOOPBACK}:{held.getsockname()[1]}/"


def text(report: Report) -> str:
    """The report for a person."""
    plan, ratios = report.plan, report.ratios()
    title = (
        f"{plan.rate:,.0f} events/s for {plan.seconds:.0f} s to {plan.healthy} healthy endpoints in turn,"
        f" {plan.payload_bytes} bytes each; {plan.owed:,} events owed to the others"
    )
    lines = [title, times_head("ms from due to arrived")]
    for number, measured in enumerate(report.rounds, 1):
        cases = (("alone", measured.alone), ("one hangs", measured.hanging), (f"{plan.dead} dead", measured.dead))
        lines += [times_row(f"round {number}: {name}", steady.arrived_ms) for name, steady in cases]
    lines.append(_outcome(report))
    for name, key in (("the one that hangs", "hanging"), ("the dead ones", "dead")):
        lines.append(f"beside {name}, as a multiple of alone: p50 {ratios[key]['p50']}, p99 {ratios[key]['p99']}")
    lines.append(_verdict(report))
    return "\n".join(lines)


def _outcome(report: Report) -> str:
    every = [steady for each in report.rounds for steady in (each.alone, each.hanging, each.dead)]
    answers = sum((Counter(steady.answers) for steady in every), Counter[str]())
    told = ", ".join(f"{number:,} x {answer}" for answer, number in sorted(answers.items()))
    lost, duplicates = sum(steady.lost for steady in every), sum(steady.duplicates for steady in every)
    return f"{told}; lost {lost}, duplicates {duplicates}"


def _verdict(report: Report) -> str:
    verdict = "met" if report.met else "missed"
    busy = f"load {report.busy:.1f} on {report.cores} cores before"
    return f"wanted: p99 at most {WANTED_RATIO} x alone: {report.worst} x, {verdict} ({busy})"


def as_json(report: Report) -> str:
    """The report for a program."""
    judged = {
        "ratios": report.ratios(),
        "target": {"p99_ratio": report.worst, "wanted_ratio": WANTED_RATIO, "met": report.met},
    }
    return json.dumps({**asdict(report), **judged})
