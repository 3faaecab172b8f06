"""What a sweep says: for a person, as the generated part of a page, and as plots.

Owns the tables, the plots and the rule by which something is worth a change. Invariant: everything here is made from a
sweep's result alone, so that the same result gives the same page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relay.loadtest import plot
from relay.loadtest.histogram import Histogram
from relay.loadtest.results import write_whole
from relay.loadtest.steady import Steady
from relay.loadtest.sweep import BASE, Configuration, Drained, Knob, Measured, Step, Sweep, of_knob

WORTH = 1.1
"""A change is worth it that drains by a tenth more, or by twice what the same configuration differs by from itself."""

PART = re.compile(r"(<!-- sweep: made by [^>]*-->\n\n)(.*?)(\n<!-- sweep: end -->)", re.DOTALL)
TIMES_PLOT = "times.svg"
_TIMES = ("p50", "p90", "p95", "p99", "p99.9", "max")
_SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)


@dataclass(frozen=True, slots=True)
class Advice:
    """What turning a knob is worth: its values where it stands and where it drains most, and how much more that is;
    the same of where it drains least."""

    knob: Knob
    now: int
    best: int
    gain: float
    worst: int
    loss: float

    def is_worth(self, least: float) -> bool:
        """Whether the knob should be turned."""
        return self.gain >= least


def noise(sweep: Sweep) -> float | None:
    """By how much the same configuration differed from itself, as a share; None where it was measured once."""
    rates = [each.drained.rate for each in _bases(sweep) if each.drained is not None]
    return max(rates) / min(rates) - 1 if len(rates) > 1 else None


def _bases(sweep: Sweep) -> list[Measured]:
    return [each for each in sweep.measured if each.step.configuration == BASE and not each.step.delay]


def least_gain(sweep: Sweep) -> float:
    """From what factor on a change is worth it."""
    return max(WORTH, 1 + 2 * (noise(sweep) or 0.0))


def advice(sweep: Sweep) -> list[Advice]:
    """What each knob is worth, the most first; none of knobs whose usual value was not measured."""
    found = []
    for knob in sweep.plan.knobs:
        rates = {_value(knob, step.configuration): drained.rate for step, drained in _drains(sweep, knob)}
        now = _value(knob, knob.base)
        if len(rates) > 1 and now in rates:
            best, worst = max(rates, key=rates.__getitem__), min(rates, key=rates.__getitem__)
            found.append(Advice(knob, now, best, rates[best] / rates[now], worst, rates[worst] / rates[now]))
    return sorted(found, key=lambda each: -each.gain)


def _drains(sweep: Sweep, knob: Knob) -> list[tuple[Step, Drained]]:
    return [(each.step, each.drained) for each in of_knob(sweep, knob) if each.drained is not None]


def _steadies(sweep: Sweep) -> list[tuple[Step, Steady]]:
    return [(each.step, each.steady) for each in sweep.measured if each.steady is not None]


def _value(knob: Knob, configuration: Configuration) -> int:
    return int(getattr(configuration, knob.name))


def part(sweep: Sweep, folder: str) -> str:
    """The generated part of a page whose plots are in this folder."""
    return "\n".join(
        [
            *_machine(sweep),
            *_first(sweep),
            *(line for knob in sweep.plan.knobs for line in _knob(sweep, knob, folder)),
            *_loads(sweep, folder),
            *_faults(sweep),
        ]
    )


def _machine(sweep: Sweep) -> Iterator[str]:
    machine, plan = sweep.machine, sweep.plan
    yield "### The machine"
    yield ""
    yield (
        f"{machine.cores} cores of {machine.processor}, {machine.memory_gib:g} GiB of memory, {machine.system};"
        f" Python {machine.python}, PostgreSQL {machine.postgresql}, Relay {machine.relay}. Load average before:"
        f" {machine.busy:g}. Everything ran on these cores: PostgreSQL, Relay, what posts and what receives."
    )
    yield ""
    wide = noise(sweep)
    differs = (
        f" What all others stand beside was measured several times and differed from itself by {wide:.0%}."
        if wide
        else ""
    )
    yield (
        f"{len(sweep.measured)} of {sweep.steps} configurations in {sweep.seconds / 60:.0f} minutes; backlogs of"
        f" {plan.events:,} events (a share of that for receivers that take their time), {plan.payload_bytes} bytes"
        f" each.{differs}"
    )
    yield ""


def _first(sweep: Sweep) -> Iterator[str]:
    least, quiet = least_gain(sweep), sweep.machine.is_quiet
    yield "### What to change first, on this machine"
    yield ""
    if not quiet:
        yield (
            "**The machine was not quiet before**: it had other work to do, so nothing is advised, and what differs"
            " below by less than a half may be that work's doing."
        )
        yield ""
    yield "| knob | is | drains most at | which is | drains least at | which is | so |"
    yield "|---|---|---|---|---|---|---|"
    for each in advice(sweep):
        verdict = f"**set it to {each.best:,}**" if quiet and each.is_worth(least) else "leave it"
        yield (
            f"| {_called(each.knob)} | {each.now:,} | {each.best:,} | {each.gain:.2f} x | {each.worst:,} |"
            f" {each.loss:.2f} x | {verdict} |"
        )
    yield ""
    yield f"A change is advised from {least:.2f} x on: less is within what this machine's other doings are worth."
    yield ""


def _called(knob: Knob) -> str:
    return f"{knob.called}, receivers that take {knob.delay * 1000:.0f} ms" if knob.delay else knob.called


def _knob(sweep: Sweep, knob: Knob, folder: str) -> Iterator[str]:
    drains = _drains(sweep, knob)
    if not drains:
        return
    yield f"### Drains by {_called(knob)}"
    yield ""
    yield f"![Deliveries per second by {_plain(knob)}]({folder}/{plot_name(knob)})"
    yield ""
    base = knob.base
    yield (
        f"Beside it: {base.dispatchers} dispatcher processes, a claim batch of {base.claim_batch}, a pool of"
        f" {base.pool}, {base.concurrency} requests in flight in a process and {base.in_flight} to an endpoint,"
        f" {knob.endpoints} endpoint(s)."
    )
    yield ""
    yield "| value | deliveries/s | dispatcher, µs each | PostgreSQL, µs each | bytes of log each | commits each |"
    yield "|---|---|---|---|---|---|"
    for step, drained in drains:
        yield f"| {_value(knob, step.configuration):,} | {_cells(drained)} |"
    yield ""


def _cells(drained: Drained) -> str:
    return (
        f"{drained.rate:,.0f} | {drained.dispatcher_us:.0f} | {drained.postgres_us:.0f} | {drained.wal_bytes:,.0f} |"
        f" {drained.commits:.3f}"
    )


def _loads(sweep: Sweep, folder: str) -> Iterator[str]:
    steadies = _steadies(sweep)
    if not steadies:
        return
    yield "### Steady loads"
    yield ""
    yield f"![Time from due to the endpoint's 200, by percentile]({folder}/{TIMES_PLOT})"
    yield ""
    yield f"{sweep.plan.seconds:.0f} seconds each, one endpoint. Milliseconds from when a post was due."
    yield ""
    yield f"| events/s | gateways | dispatchers | until | {' | '.join(_TIMES)} | queue | lost, twice |"
    yield "|---|---|---|---|" + "---|" * (len(_TIMES) + 2)
    for _, steady in steadies:
        load = steady.load
        flat = "" if steady.queue is None else "flat" if steady.queue.is_flat else "grows"
        start = f"| {load.rate:,.0f} | {load.gateways} | {load.dispatchers} |"
        for until, times, rest in (
            ("202", steady.answered_ms, (flat, f"{steady.lost}, {steady.duplicates}")),
            ("200 of the endpoint", steady.arrived_ms, ("", "")),
        ):
            yield f"{start} {until} | " + " | ".join([*(f"{times[name]:.1f}" for name in _TIMES), *rest]) + " |"
    yield ""


def _faults(sweep: Sweep) -> Iterator[str]:
    if found := sweep.faults():
        yield "### What went wrong"
        yield ""
        yield from (f"- {each}" for each in found)
        yield ""


def plots(sweep: Sweep) -> dict[str, str]:
    """The plots by the names of their files."""
    drawn = {}
    for knob in sweep.plan.knobs:
        values = [
            plot.Column(f"{_value(knob, step.configuration):,}", drained.rate, step.configuration == knob.base)
            for step, drained in _drains(sweep, knob)
        ]
        if values:
            delay = f", receivers that take {knob.delay * 1000:.0f} ms" if knob.delay else ""
            drawn[plot_name(knob)] = plot.columns(
                f"Deliveries per second{delay}",
                f"{_plain(knob)} (full colour: what the others are compared with)",
                values,
            )
    gateways, dispatchers = _drawn_processes(sweep)
    lines = [
        _line(step, steady)
        for step, steady in _steadies(sweep)
        if (step.configuration.gateways, step.configuration.dispatchers) == (gateways, dispatchers)
    ]
    if lines:
        drawn[TIMES_PLOT] = plot.percentiles(
            f"Milliseconds from due to the endpoint's 200, gateways {gateways}, dispatchers {dispatchers}",
            "share of deliveries that took at most so long",
            lines,
        )
    return drawn


def _drawn_processes(sweep: Sweep) -> tuple[int, int]:
    """Gateway and dispatcher processes whose loads are drawn, a line for each rate: those of the base, or the first."""
    usual = (BASE.gateways, BASE.dispatchers)
    return usual if usual in sweep.plan.loads else sweep.plan.loads[0]


def _line(step: Step, steady: Steady) -> plot.Line:
    times = Histogram.decode(steady.arrived)
    points = tuple((share, times.seconds_at(share) * 1000) for share in _SHARES)
    return plot.Line(f"{step.rate:,.0f} events/s", tuple((share, ms) for share, ms in points if ms > 0))


def plot_name(knob: Knob) -> str:
    """The file of a knob's plot."""
    return f"{knob.name.replace('_', '-')}.svg"


def _plain(knob: Knob) -> str:
    return knob.called.replace("`", "")


def text(sweep: Sweep) -> str:
    """The report for a person: the tables, without plots."""
    return re.sub(r"^!\[.*\n\n|\*\*|`", "", part(sweep, "."), flags=re.MULTILINE).rstrip()


def with_part(text: str, made: str) -> str:
    """A page's text with its generated part anew. Raises `LookupError` for a page without one."""
    if not PART.search(text):
        raise LookupError("there is no part named sweep")
    return PART.sub(lambda found: found[1] + made + found[3], text)


def look_at_page(page: Path) -> None:
    """Raises `LookupError` for a page without the part that a sweep is written into, and `OSError`."""
    with_part(page.read_text(encoding="utf-8"), "")


def write_page(page: Path, sweep: Sweep) -> None:
    """Put the sweep into a page, and its plots into the folder beside it that has its name. Raises `OSError`."""
    folder = page.with_suffix("")
    folder.mkdir(exist_ok=True)
    for name, drawn in plots(sweep).items():
        write_whole(folder / name, drawn, replace=True)
    made = with_part(page.read_text(encoding="utf-8"), part(sweep, folder.name))
    write_whole(page, made, replace=True)
