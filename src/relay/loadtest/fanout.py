"""`make bench-fan-out`: what a delivery costs whose receipt a thousand acks share, beside one that has its own.

Owns the comparison and its verdict. Both backlogs owe as much to the same endpoints, and several processes claim and
record them at once without HTTP, so that all that differs is how many acks close a receipt. Invariant: every receipt is
told as closed exactly once, or the measurement has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
from dataclasses import asdict, dataclass

from relay.loadtest.backlog import Shape
from relay.loadtest.children import child
from relay.loadtest.installation import NOWHERE, Installation, Tell, installation

WANTED_RATIO = 1.5
"""How much more a delivery may cost whose receipt many share."""


@dataclass(frozen=True, slots=True)
class Plan:
    """So many endpoints get so many events each, by so many processes, and all of that so many times."""

    endpoints: int
    events: int
    workers: int
    rounds: int
    payload_bytes: int = 500


@dataclass(frozen=True, slots=True)
class Cost:
    """What a delivery took: microseconds of the clock, and of the processor in the workers and in PostgreSQL."""

    clock_us: float
    worker_us: float
    postgres_us: float

    @property
    def processor_us(self) -> float:
        """Of both together."""
        return self.worker_us + self.postgres_us


@dataclass(frozen=True, slots=True)
class Round:
    """The same deliveries, each with a receipt of its own, and with one receipt for all endpoints."""

    own: Cost
    shared: Cost


@dataclass(frozen=True, slots=True)
class Report:
    """One run."""

    plan: Plan
    rounds: tuple[Round, ...]

    def ratios(self) -> dict[str, float]:
        """What a shared receipt costs over an own one; of all rounds the middle one."""
        clock = [each.shared.clock_us / each.own.clock_us for each in self.rounds]
        processor = [each.shared.processor_us / each.own.processor_us for each in self.rounds]
        return {"clock": round(statistics.median(clock), 2), "processor": round(statistics.median(processor), 2)}

    @property
    def met(self) -> bool:
        """Whether sharing costs as little as wanted, on the clock and of the processor."""
        return max(self.ratios().values()) <= WANTED_RATIO


def run(plan: Plan, tell: Tell) -> Report:
    """Measure both in turns. Raises `RuntimeError` if a receipt did not close exactly once, or a process fails."""
    own = Shape(plan.endpoints * plan.events, plan.endpoints, plan.payload_bytes)
    shared = Shape(plan.events, plan.endpoints, plan.payload_bytes, fan_out=plan.endpoints)
    with installation(tell) as ground:
        rounds = tuple(Round(_drained(plan, own, ground), _drained(plan, shared, ground)) for _ in range(plan.rounds))
    return Report(plan, rounds)


def _drained(plan: Plan, shape: Shape, ground: Installation) -> Cost:
    """What it took to claim and record a backlog of that shape."""
    asyncio.run(ground.fill(NOWHERE, shape))
    ground.tell(f"{plan.workers} processes record, {shape.fan_out} deliveries to a receipt")
    with contextlib.ExitStack() as stack:
        environ = {"DATABASE_URL": ground.dsn}
        workers = [
            stack.enter_context(child("relay.loadtest.floors", "queue", environ=environ)) for _ in range(plan.workers)
        ]
        before = ground.postgres_seconds()
        lines = [each.line() for each in workers]
        postgres = ground.postgres_seconds() - before
    done, closed = (sum(int(line[what]) for line in lines) for what in ("done", "closed"))
    if (done, closed) != (shape.deliveries, shape.events):
        raise RuntimeError(
            f"{done} of {shape.deliveries} deliveries recorded, {closed} of {shape.events} receipts closed"
        )
    clock = max(float(line["seconds"]) for line in lines)
    spent = sum(float(line["cpu_seconds"]) for line in lines)
    return Cost(*(round(each / done * 1e6, 1) for each in (clock, spent, postgres)))


def text(report: Report) -> str:
    """The report for a person."""
    plan, ratios = report.plan, report.ratios()
    lines = [
        f"{plan.events} events to each of {plan.endpoints:,} endpoints, recorded by {plan.workers} processes; µs each",
        f"{'':34}{'clock':>10}{'Python':>10}{'PostgreSQL':>12}",
    ]
    for number, measured in enumerate(report.rounds, 1):
        cases = (("receipts of their own", measured.own), (f"{plan.endpoints:,} to a receipt", measured.shared))
        lines += [
            f"{f'round {number}: {name}':34}{cost.clock_us:10.1f}{cost.worker_us:10.1f}{cost.postgres_us:12.1f}"
            for name, cost in cases
        ]
    verdict = "met" if report.met else "missed"
    lines.append("each receipt closed once")
    lines.append(
        f"wanted: at most {WANTED_RATIO} x: {ratios['clock']} x on the clock,"
        f" {ratios['processor']} x of the processor, {verdict}"
    )
    return "\n".join(lines)


def as_json(report: Report) -> str:
    """The report for a program."""
    ratios = report.ratios()
    target = {"ratio": max(ratios.values()), "wanted_ratio": WANTED_RATIO, "met": report.met}
    return json.dumps({**asdict(report), "ratios": ratios, "target": target})
