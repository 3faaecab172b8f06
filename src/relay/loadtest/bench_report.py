"""What `make bench` says: a table of rates and costs, and how they stand to what is wanted.

Owns the report for people and for programs, and the wanted values. Invariant: a verdict is said to count on an idle
machine with two cores only, and whether this one was that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from relay.loadtest.bench import Floor, Report, Sustained
from relay.loadtest.times import times_head, times_row

WANTED_DRAIN = 8_500.0
GOAL_DRAIN = 12_000.0
"""Deliveries per second out of a backlog."""

WANTED_US = 190.0
GOAL_US = 130.0
"""Processor time of dispatcher and PostgreSQL together, per delivery of a backlog."""

WANTED_RATE = 4_000.0
GOAL_RATE = 5_000.0
"""Events per second, one post each, accepted and delivered as they come."""

WANTED_P99_MS = 106.0
"""From the moment at which a post was due until its event was at its endpoint, 99 of 100 times."""

CORES = 2
QUIET_LOAD = 0.25
"""Per core: with more than that under way before the measurement, a target that was missed says little."""

_WIDTH = 34
_COLUMNS = ("per second", "gateway", "dispatcher", "PostgreSQL", "sink", "load", "other", "log bytes", "commits")


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that is wanted: what was measured of it, and whether that is enough."""

    name: str
    measured: float
    wanted: str
    met: bool


def targets(report: Report) -> list[Target]:
    """What this run can judge."""
    drain, processor = report.drain, report.drain.dispatcher_us + report.drain.postgres_us
    judged = [
        Target(
            "drain, deliveries/s",
            round(drain.rate),
            f"at least {WANTED_DRAIN:,.0f}, goal {GOAL_DRAIN:,.0f}",
            drain.rate >= WANTED_DRAIN,
        ),
        Target(
            "dispatcher + PostgreSQL, µs per delivery",
            round(processor, 1),
            f"at most {WANTED_US:.0f}, goal {GOAL_US:.0f}",
            processor <= WANTED_US,
        ),
    ]
    if report.sustained:
        judged += _of_load(report.sustained)
    lost = drain.lost + (report.sustained.steady.lost if report.sustained else 0)
    return [*judged, Target("lost", lost, "0", lost == 0)]


def _of_load(sustained: Sustained) -> Iterator[Target]:
    steady = sustained.steady
    refused = sum(number for answer, number in steady.answers.items() if answer != "202")
    yield Target(
        "events/s that were all accepted",
        steady.load.rate,
        f"at least {WANTED_RATE:,.0f}, goal {GOAL_RATE:,.0f}",
        steady.load.rate >= WANTED_RATE and not refused,
    )
    p99 = steady.arrived_ms["p99"]
    yield Target("p99 from due to arrived, ms", p99, f"at most {WANTED_P99_MS:.0f}", p99 <= WANTED_P99_MS)
    if steady.queue:
        yield Target("owed at the end", steady.queue.owed[-1], "no more than before", steady.queue.is_flat)


def is_quiet(report: Report) -> bool:
    """Whether this was the machine that the wanted values are meant for, with nothing else to do."""
    return report.cores == CORES and report.busy <= QUIET_LOAD * report.cores


def text(report: Report) -> str:
    """The report for a person: rates, where the processor's time goes, and what is wanted."""
    shape, drain = report.plan.shape, report.drain
    title = (
        f"{shape.deliveries:,} deliveries of {shape.payload_bytes} bytes to {shape.endpoints} endpoint(s)"
        f" by {report.plan.workers} dispatcher process(es)"
    )
    busy = (
        f"dispatcher + PostgreSQL: {drain.dispatcher_us + drain.postgres_us:.1f} µs a delivery of the backlog;"
        f" while it was drained, {drain.rate * drain.machine_us / 1e6:.1f} of {report.cores} cores were busy"
    )
    lines = [
        title,
        f"{'processor time in µs per delivery':{_WIDTH}}" + "".join(f"{name:>12}" for name in _COLUMNS),
        *_table(report),
        busy,
        f"ratio to the slower floor: {report.ratio:.2f}",
        f"drain: lost {drain.lost}, duplicates {drain.duplicates}",
        *(_load_lines(report.sustained) if report.sustained else ()),
        *_verdicts(report),
    ]
    return "\n".join(lines)


def _table(report: Report) -> Iterator[str]:
    client, queue, drain = report.client_floor, report.queue_floor, report.drain
    yield _row("floor: bare client, no queue", client.rate, _parties(client) | {"sink": client.sink_us})
    yield _row("floor: queue, no HTTP", queue.rate, _parties(queue) | {"postgres": queue.postgres_us}, queue)
    parties = {"dispatcher": drain.dispatcher_us, "postgres": drain.postgres_us, "sink": drain.sink_us}
    yield _row("drain: claim, sign, send, record", drain.rate, parties | {"machine": drain.machine_us}, drain)
    if report.sustained:
        steady, cost = report.sustained.steady, report.sustained.cost
        name = f"events posted one by one for {steady.load.seconds:.0f} s"
        yield _row(name, steady.load.rate, dict(cost.us), report.sustained.cost)


def _parties(floor: Floor) -> dict[str, float]:
    """Who worked for a floor: its client stands where the dispatcher does."""
    return {"dispatcher": floor.client_us, "machine": floor.machine_us}


def _row(name: str, rate: float, parties: dict[str, float], written: object = None) -> str:
    """One line of the table; `written` has what the server wrote, where it was asked."""
    other = parties.pop("machine") - sum(parties.values())
    shown = [parties.get(each) for each in ("gateway", "dispatcher", "postgres", "sink", "load")]
    cells = [f"{rate:12,.0f}", *(_cell(each, ".1f") for each in (*shown, max(other, 0.0)))]
    cells += [_cell(getattr(written, "wal_bytes", None), ",.0f"), _cell(getattr(written, "commits", None), ".4f")]
    return f"{name:{_WIDTH}}" + "".join(cells)


def _cell(value: float | None, form: str) -> str:
    return f"{'-' if value is None else format(value, form):>12}"


def _load_lines(sustained: Sustained) -> Iterator[str]:
    steady = sustained.steady
    answers = ", ".join(f"{number:,} x {answer}" for answer, number in sorted(steady.answers.items()))
    yield f"posts: {answers}; lost {steady.lost}, duplicates {steady.duplicates}"
    yield times_head("ms from due to")
    yield times_row("answered (the 202)", steady.answered_ms)
    yield times_row("arrived at its endpoint", steady.arrived_ms)
    if steady.queue:
        owed = ", ".join(f"{number:,}" for number in steady.queue.owed)
        yield f"owed as each quarter of the posts had left: {owed}"


def _verdicts(report: Report) -> Iterator[str]:
    yield f"wanted (this counts on an idle machine with {CORES} cores only):"
    for each in targets(report):
        yield f"  {each.name}: {each.measured:,g}, wanted {each.wanted}: {'met' if each.met else 'missed'}"
    if not is_quiet(report):
        yield f"  this machine was not that: load {report.busy:.1f} before, {report.cores} cores"


def as_json(report: Report) -> str:
    """The report for a program."""
    judged = {"targets": [asdict(each) for each in targets(report)], "quiet": is_quiet(report)}
    return json.dumps({**asdict(report), **judged})
