"""`make bench-quorum`: what it costs to wait for a second machine, beside not waiting and beside the bare wait.

Owns the order of the measurements, the target and the report. The target is for people: no test depends on it.
Invariant: every number of a report comes from one run on the same three servers, since only ratios travel.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict, dataclass

import msgspec

from relay.loadtest.children import child
from relay.loadtest.installation import Installation, Tell, installation
from relay.loadtest.machine import QUIET_LOAD
from relay.loadtest.quorum_floor import Floor
from relay.loadtest.steady import Load, Steady, measure
from relay.loadtest.times import times_head, times_row

SERVERS = 3
QUORUM = 2

WANTED_MS = 30.0
"""The longest that a 202 may take, 99 of 100 times, on a machine that has nothing else to do."""

GOAL_MS = 12.0
"""What it should come to be."""


@dataclass(frozen=True, slots=True)
class Plan:
    """So many posts per second for so many seconds."""

    rate: float
    seconds: float
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    """One run: the bare wait, the load confirmed by one machine, and by two.

    `busy` is how many processes, on average over the minute before, wanted one of the machine's `cores`.
    """

    plan: Plan
    busy: float
    cores: int
    floor: Floor
    alone: Steady
    quorum: Steady

    @property
    def p99_ms(self) -> float:
        """What the target is about."""
        return self.quorum.answered_ms["p99"]

    @property
    def met(self) -> bool:
        """Whether the 202 was as quick as wanted."""
        return self.p99_ms <= WANTED_MS

    @property
    def quiet(self) -> bool:
        """Whether the machine had nothing else to do."""
        return self.busy <= QUIET_LOAD * self.cores

    def ratios(self) -> dict[str, dict[str, float]]:
        """The time until the 202 of the quorum, over that of one machine and over the floor."""
        beside = {"to_one_machine": self.alone.answered_ms, "to_floor": self.floor.proven_ms}
        return {
            name: {part: round(self.quorum.answered_ms[part] / max(times[part], 0.001), 2) for part in ("p50", "p99")}
            for name, times in beside.items()
        }


def run(plan: Plan, tell: Tell) -> Report:
    """Measure all three. Raises `RuntimeError` if a process of the measurement fails."""
    busy = os.getloadavg()[0]
    with installation(tell, servers=SERVERS, quorum=QUORUM) as ground:
        tell("floor: commit, barrier and proof without Relay")
        floor = asyncio.run(_floor(plan, ground))
        tell("the load, confirmed by one machine")
        alone = asyncio.run(measure(_load(plan, 1), ground))
        tell(f"the load, confirmed by {QUORUM} machines of {SERVERS}")
        quorum = asyncio.run(measure(_load(plan, QUORUM), ground))
    return Report(plan, busy, os.cpu_count() or 1, floor, alone, quorum)


def _load(plan: Plan, quorum: int) -> Load:
    return Load(
        plan.rate,
        plan.seconds,
        endpoints=1,
        payload_bytes=plan.payload_bytes,
        gateways=1,
        dispatchers=1,
        quorum=quorum,
    )


async def _floor(plan: Plan, ground: Installation) -> Floor:
    await ground.migrate()
    arguments = (
        *("--rate", str(plan.rate), "--number", str(int(plan.rate * plan.seconds))),
        *("--quorum", str(QUORUM)),
    )
    with child("relay.loadtest.quorum_floor", *arguments, environ={"DATABASE_URL": ground.dsn}) as running:
        return msgspec.convert(await asyncio.to_thread(running.line), Floor)


def text(report: Report) -> str:
    """The report for a person."""
    plan, floor, alone, quorum = report.plan, report.floor, report.alone, report.quorum
    ratios = report.ratios()
    title = (
        f"{plan.rate:,.0f} events/s for {plan.seconds:.0f} s, {plan.payload_bytes} bytes each, to one endpoint;"
        f" {SERVERS} servers on this machine"
    )
    lines = [
        title,
        times_head("ms from due to"),
        times_row("bare commit, barrier and proof", floor.proven_ms),
        times_row("1 machine: answered (the 202)", alone.answered_ms),
        times_row("1 machine: arrived", alone.arrived_ms),
        times_row(f"{QUORUM} machines: answered (the 202)", quorum.answered_ms),
        times_row(f"{QUORUM} machines: arrived", quorum.arrived_ms),
        times_head("of the bare ones, ms for each"),
        times_row("local commit", floor.commit_ms),
        times_row("barrier", floor.barrier_ms),
        times_row("proof", floor.proof_ms),
        *(_outcome(steady) for steady in (alone, quorum)),
        *(
            f"the 202 of {QUORUM} machines, as a multiple of {name}: p50 {ratios[key]['p50']}, p99 {ratios[key]['p99']}"
            for name, key in (("1 machine's", "to_one_machine"), ("the bare barrier's", "to_floor"))
        ),
        _verdict(report),
    ]
    return "\n".join(lines)


def _outcome(steady: Steady) -> str:
    machines = f"{steady.load.quorum} machine{'s' if steady.load.quorum > 1 else ''}"
    answers = ", ".join(f"{number:,} x {answer}" for answer, number in sorted(steady.answers.items()))
    costs = (
        f"gateway {steady.gateway_us:.0f}, dispatcher {steady.dispatcher_us:.0f}, PostgreSQL {steady.postgres_us:.0f}"
    )
    return (
        f"{machines}: {answers}; lost {steady.lost}, duplicates {steady.duplicates};"
        f" processor time per event in µs: {costs}"
    )


def _verdict(report: Report) -> str:
    target = f"wanted: p99 of the 202 at most {WANTED_MS:.0f} ms (goal {GOAL_MS:.0f} ms)"
    verdict = f"{target}: {report.p99_ms:.1f} ms, {'met' if report.met else 'missed'}"
    if report.quiet:
        return verdict
    return f"{verdict}; the machine was not quiet before (load {report.busy:.1f} on {report.cores} cores)"


def as_json(report: Report) -> str:
    """The report for a program."""
    judged = {
        "ratios": report.ratios(),
        "target": {"p99_ms": report.p99_ms, "wanted_ms": WANTED_MS, "goal_ms": GOAL_MS, "met": report.met},
        "quiet": report.quiet,
    }
    return json.dumps({**asdict(report), **judged})
