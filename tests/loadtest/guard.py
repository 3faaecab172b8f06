"""A guard against getting slower: `make bench-check` and `make bench-baseline`, or `python -m tests.loadtest.guard`.

Owns which ratios are compared, by how much each may be worse, and the baseline, `baseline.json` beside this file.
Microseconds differ from machine to machine and from hour to hour; what travels is how much more than its floor a part
takes, both measured in one run, and what is counted. How much worse a ratio may be is measured as well: as much as the
worst of the runs that made the baseline was worse than their middle one. Invariant: of three runs the middle one is
compared, ratio by ratio, and a machine on which a run is worse by a third makes no baseline.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from relay.loadtest.accounting import POSTGRES
from relay.loadtest.backlog import Shape
from relay.loadtest.bench import Plan, Report, Sustained, run
from relay.loadtest.bench_report import is_quiet, text
from relay.loadtest.steady import Load

BASELINE = Path(__file__).with_name("baseline.json")
RUNS = 3
BASELINE_RUNS = 9
MOST_APART = 0.33
"""A run that is worse than the middle one by more says nothing: others used the machine."""

WORKERS = 2
PLAN = Plan(
    Shape(60_000, 1, 500),
    WORKERS,
    Load(4_000.0, 15.0, endpoints=1, payload_bytes=500, gateways=1, dispatchers=WORKERS, in_turn=True),
)


@dataclass(frozen=True, slots=True)
class Measure:
    """A ratio, and the least share by which it may be worse than the baseline's, however alike those runs were."""

    name: str
    of: Callable[[Report], float]
    least: float
    more_is_better: bool = False

    def worse_by(self, baseline: float, now: float) -> float:
        """The share by which this is worse than it was; negative for what is better."""
        return (baseline - now) / baseline if self.more_is_better else (now - baseline) / baseline


def _sustained(report: Report) -> Sustained:
    assert report.sustained is not None, "the plan has a load"
    return report.sustained


def _load_to_floors(report: Report) -> float:
    """What the three parties spend on an event that is posted, over both floors, which have no gateway."""
    spent = sum(_sustained(report).cost.us[party] for party in ("gateway", "dispatcher", POSTGRES))
    client, queue = report.client_floor, report.queue_floor
    return spent / (client.client_us + queue.client_us + queue.postgres_us)


TIMED = 0.1
WRITTEN = 0.03
COMMITTED = 0.1
"""How many share a commit depends on when they come, so it is counted and yet not always the same."""

MEASURES = (
    Measure("rate of the drain to the slower floor", lambda r: r.ratio, TIMED, more_is_better=True),
    Measure("dispatcher to the bare client", lambda r: r.drain.dispatcher_us / r.client_floor.client_us, TIMED),
    Measure("PostgreSQL to the queue alone", lambda r: r.drain.postgres_us / r.queue_floor.postgres_us, TIMED),
    Measure("an event posted to both floors", _load_to_floors, TIMED),
    Measure("log bytes per delivery of the drain", lambda r: r.drain.wal_bytes, WRITTEN),
    Measure("commits per delivery of the drain", lambda r: r.drain.commits, COMMITTED),
    Measure("log bytes per event posted", lambda r: _sustained(r).cost.wal_bytes, WRITTEN),
    Measure("commits per event posted", lambda r: _sustained(r).cost.commits, COMMITTED),
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A ratio of the baseline, and the share by which it may be worse."""

    middle: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class Compared:
    """A ratio of the baseline and what it is now."""

    measure: Measure
    baseline: Recorded
    now: float

    @property
    def worse_by(self) -> float:
        """As a share of the baseline."""
        return self.measure.worse_by(self.baseline.middle, self.now)

    @property
    def is_worse(self) -> bool:
        """Whether it is worse by more than what runs differ by anyway."""
        return self.worse_by > self.baseline.tolerance

    def text(self) -> str:
        """For a person."""
        change = f"{abs(self.worse_by):.1%} {'worse' if self.worse_by > 0 else 'better'}"
        verdict = "WORSE" if self.is_worse else "as before"
        if self.worse_by < -self.baseline.tolerance:
            verdict = "better: `make bench-baseline` would keep it"
        numbers = f"{self.baseline.middle:10.4g} -> {self.now:10.4g}"
        return f"{self.measure.name:46}{numbers}  {change:>13}, allowed {self.baseline.tolerance:.0%}: {verdict}"


def middle(reports: Sequence[Report]) -> dict[str, float]:
    """Of each ratio the middle one of these runs."""
    return {each.name: statistics.median(each.of(report) for report in reports) for each in MEASURES}


def record(reports: Sequence[Report]) -> dict[str, Recorded]:
    """What these runs make as a baseline. Raises `ValueError` if they are too far apart for that."""
    made = {}
    for each in MEASURES:
        values = [each.of(report) for report in reports]
        among = statistics.median(values)
        apart = max(each.worse_by(among, value) for value in values)
        if apart > MOST_APART:
            raise ValueError(f"{each.name}: one run was {apart:.0%} worse, so others used this machine")
        made[each.name] = Recorded(float(f"{among:.4g}"), round(max(apart, each.least), 3))
    return made


def compare(baseline: Mapping[str, Recorded], now: Mapping[str, float]) -> list[Compared]:
    """Every ratio beside its baseline. Raises `KeyError` for one that either lacks."""
    return [Compared(each, baseline[each.name], now[each.name]) for each in MEASURES]


def say(line: str) -> None:
    """A line for whoever watches."""
    print(line, flush=True)  # noqa: T201 # this is what the command is for


def faults_of(report: Report) -> list[str]:
    """Why what a run took cannot be compared: something was lost, or was not accepted and so cost less."""
    steady = _sustained(report).steady
    found = steady.faults()
    if report.drain.lost:
        found.append(f"{report.drain.lost} deliveries of the backlog are lost")
    if refused := sum(number for answer, number in steady.answers.items() if answer != "202"):
        found.append(f"{refused} posts were not accepted")
    return found


def measured(number: int) -> list[Report]:
    """So many runs, each on an installation of its own. Raises `RuntimeError` where one loses anything."""
    reports = []
    for place in range(number):
        report = run(PLAN, lambda _: None)
        say(f"run {place + 1} of {number}")
        say("\n".join(f"  {name}: {value:.4g}" for name, value in middle([report]).items()))
        if faults := faults_of(report):
            say(text(report))
            raise RuntimeError(f"what this run took says nothing: {'; '.join(faults)}")
        reports.append(report)
    return reports


def write(baseline: Mapping[str, Recorded]) -> None:
    """Make this the baseline."""
    text_of_it = json.dumps({name: asdict(each) for name, each in baseline.items()}, indent=2, ensure_ascii=False)
    BASELINE.write_text(text_of_it + "\n", encoding="utf-8")


def read() -> dict[str, Recorded]:
    """The baseline."""
    document = json.loads(BASELINE.read_text(encoding="utf-8"))
    return {name: Recorded(**each) for name, each in document.items()}


def main() -> int:
    """Measure and compare; exit code 1 if anything is worse. With `--write`, make it the baseline instead."""
    parser = argparse.ArgumentParser(prog="python -m tests.loadtest.guard")
    parser.add_argument("--write", action="store_true", help="make what is measured the baseline")
    parser.add_argument("--runs", type=int, help=f"by default {RUNS}, and {BASELINE_RUNS} for a baseline")
    asked = parser.parse_args()
    try:
        reports = measured(asked.runs or (BASELINE_RUNS if asked.write else RUNS))
        if asked.write:
            write(record(reports))
            say(f"written to {BASELINE.name}")
            return 0
    except (RuntimeError, ValueError) as fault:
        say(f"the measurement failed: {fault}")
        return 1
    compared = compare(read(), middle(reports))
    say("\n".join(each.text() for each in compared))
    if not is_quiet(reports[0]):  # before the later ones the earlier ones were at work
        say("others used this machine: what is worse by little may be theirs")
    return 1 if any(each.is_worse for each in compared) else 0


if __name__ == "__main__":
    sys.exit(main())
