"""`make load-test`: the same work under one configuration after the other, one knob at a time.

Owns the knobs and their values, the order, and what is kept of each measurement; `sweep_report` says what follows from
them. Each measurement has a fresh database, and the configuration that all others are compared with is measured three
times, first, in the middle and last: what these differ by is what the machine's other doings are worth. Invariant: what
was measured is kept, whatever becomes of the rest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import msgspec

from relay import settings
from relay.loadtest.backlog import Shape
from relay.loadtest.bench import drained
from relay.loadtest.children import child
from relay.loadtest.installation import IN_FLIGHT, Installation, Tell, installation, sink_url
from relay.loadtest.machine import Machine, this_machine
from relay.loadtest.receivers import ALL_WELL, Receivers, Share
from relay.loadtest.steady import Load, Steady, measure

FORM = "relay loadtest sweep, 1"

_DEFAULTS = settings.read({})


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """How Relay is set up: processes, settings, and how many requests each endpoint may have under way."""

    gateways: int = 1
    dispatchers: int = 2
    claim_batch: int = _DEFAULTS.claim_batch
    pool: int = _DEFAULTS.database_pool
    concurrency: int = _DEFAULTS.global_concurrency
    in_flight: int = IN_FLIGHT

    def settings(self) -> dict[str, str]:
        """The same as the environment of a process."""
        return {
            "RELAY_CLAIM_BATCH": str(self.claim_batch),
            "RELAY_DATABASE_POOL": str(self.pool),
            "RELAY_GLOBAL_CONCURRENCY": str(self.concurrency),
        }


BASE = Configuration()


@dataclass(frozen=True, slots=True)
class Knob:
    """Something to turn: its name in `Configuration`, what people call it, and the values that are tried.

    A backlog of a share of the plan's events is drained, to so many endpoints that answer after `delay` seconds.
    """

    name: str
    called: str
    values: tuple[int, ...]
    base: Configuration = BASE
    endpoints: int = 1
    delay: float = 0.0
    share: float = 1.0

    def configurations(self) -> Iterator[Configuration]:
        """Each with another value, that of the base among them."""
        for value in sorted({*self.values, getattr(self.base, self.name)}):
            yield replace(self.base, **{self.name: value})


KNOBS = (
    Knob("dispatchers", "dispatcher processes", (1, 2, 3, 4)),
    Knob("claim_batch", "`RELAY_CLAIM_BATCH`", (50, 150, 300, 600, 1200)),
    Knob("pool", "`RELAY_DATABASE_POOL`", (6, 9, 16)),
    Knob("concurrency", "`RELAY_GLOBAL_CONCURRENCY`", (64, 128, 256, 512, 1024), endpoints=8, delay=0.05, share=0.2),
    Knob(
        "in_flight",
        "`max_in_flight` of the endpoint",
        (16, 32, 64, 128, 256),
        base=replace(BASE, in_flight=32),
        delay=0.05,
        share=0.2,
    ),
)
"""With receivers that answer at once few requests are under way at any time, however many may be: what bounds them is
tried with receivers that take a twentieth of a second."""

LOADS = ((1, 1), (1, 2), (2, 2))
"""Gateway and dispatcher processes that a steady load is put on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: knobs with backlogs of so many events, loads of so many seconds at these rates."""

    knobs: tuple[Knob, ...] = KNOBS
    events: int = 30_000
    payload_bytes: int = 500
    rates: tuple[float, ...] = (500.0, 2_000.0, 4_000.0)
    seconds: float = 8.0
    loads: tuple[tuple[int, int], ...] = LOADS


@dataclass(frozen=True, slots=True)
class Drained:
    """How a backlog was drained: deliveries per second, and what each cost, in microseconds and bytes of log."""

    rate: float
    dispatcher_us: float
    postgres_us: float
    wal_bytes: float
    commits: float


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement: a drain or, with a rate, a steady load; for a knob, or `again` of what all are compared with."""

    configuration: Configuration
    knob: str = ""
    events: int = 0
    endpoints: int = 1
    delay: float = 0.0
    rate: float = 0.0
    again: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a step; `fault` where nothing did."""

    step: Step
    drained: Drained | None = None
    steady: Steady | None = None
    fault: str = ""

    def faults(self) -> list[str]:
        """What must not be, a sentence each."""
        lost = [] if self.steady is None else self.steady.faults()
        return [*lost, *([self.fault] if self.fault else [])]


@dataclass(slots=True)
class Sweep:
    """All of it, as far as it came. `seconds` is what it took."""

    plan: Plan
    machine: Machine
    measured: list[Measured] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    form: str = FORM

    @property
    def is_whole(self) -> bool:
        """Whether every step was measured."""
        return len(self.measured) == self.steps

    def faults(self) -> list[str]:
        """What must not be, a sentence each: something lost, or a step that could not be measured."""
        return [f"{told(each.step)}: {fault}" for each in self.measured for fault in each.faults()]


class NotASweep(ValueError):
    """A file that no sweep has written, or one of another version."""


def read(text: str | bytes) -> Sweep:
    """What `written` wrote. Raises `NotASweep`."""
    try:
        sweep = msgspec.json.decode(text, type=Sweep)
    except msgspec.MsgspecError as fault:
        raise NotASweep(f"no result of a sweep: {fault}") from fault
    if sweep.form != FORM:
        raise NotASweep(f"the form is {sweep.form!r}, not {FORM!r}")
    return sweep


def written(sweep: Sweep) -> str:
    """What a result file holds."""
    return msgspec.json.format(msgspec.json.encode(sweep), indent=1).decode() + "\n"


def steps(plan: Plan) -> list[Step]:
    """All measurements in order, none twice but the base of the drains: it is the first and, again, in the middle and
    the last."""
    found: list[Step] = []
    for knob in plan.knobs:
        events = max(1, round(plan.events * knob.share))
        for configuration in knob.configurations():
            step = Step(configuration, knob.name, events, knob.endpoints, knob.delay)
            if not any(_alike(step, each) for each in found):
                found.append(step)
    drains = [step for step in found if step.configuration == BASE and not step.delay]
    base = drains[:1]
    found = base + [step for step in found if step not in base]
    found += [Step(Configuration(*processes), rate=rate) for processes in plan.loads for rate in plan.rates]
    again = [replace(step, again=True) for step in base]
    middle = len(found) // 2
    return [*found[:middle], *again, *found[middle:], *again]


def _alike(one: Step, other: Step) -> bool:
    return replace(one, knob="") == replace(other, knob="")


def of_knob(sweep: Sweep, knob: Knob) -> list[Measured]:
    """What was measured of a knob, by its value; a configuration that several knobs share was measured once."""
    wanted = set(knob.configurations())
    found = [
        each
        for each in sweep.measured
        if each.step.configuration in wanted
        and (each.step.endpoints, each.step.delay) == (knob.endpoints, knob.delay)
        and not each.step.rate
        and not each.step.again
    ]
    return sorted(found, key=lambda each: int(getattr(each.step.configuration, knob.name)))


def run(plan: Plan, tell: Tell, keep: Callable[[Sweep], None]) -> Sweep:
    """Measure all of it, and have it kept after each step. What an interrupt leaves undone is left out."""
    to_do = steps(plan)
    began = time.monotonic()
    with installation(_silence) as ground:
        sweep = Sweep(plan, this_machine(asyncio.run(ground.version())), steps=len(to_do))
    try:
        for place, step in enumerate(to_do):
            tell(f"{place + 1} of {len(to_do)}: {told(step)}{_left(time.monotonic() - began, place, len(to_do))}")
            sweep.measured.append(_measured(plan, step))
            sweep.seconds = round(time.monotonic() - began, 1)
            keep(sweep)
    except KeyboardInterrupt:
        tell(f"interrupted: {len(sweep.measured)} of {len(to_do)} are measured")
    return sweep


def told(step: Step) -> str:
    """A step in a few words."""
    configuration = step.configuration
    if step.rate:
        return f"{step.rate:,.0f} events/s, gateways {configuration.gateways}, dispatchers {configuration.dispatchers}"
    if step.again:
        return "what all are compared with, again"
    return f"drain, {step.knob.replace('_', ' ')} {getattr(configuration, step.knob)}"


def _left(spent: float, done: int, number: int) -> str:
    if not done:
        return ""
    minutes, seconds = divmod(round(spent / done * (number - done)), 60)
    return f" (about {minutes}:{seconds:02} min left)"


def _silence(_: str) -> None:
    """Hear of nothing: what an installation says of itself is the same each time."""


def _measured(plan: Plan, step: Step) -> Measured:
    """Measure one step on an installation of its own; one that fails is told of, and ends nothing."""
    try:
        with installation(_silence) as ground:
            ground.settings, ground.in_flight = step.configuration.settings(), step.configuration.in_flight
            if step.rate:
                return Measured(step, steady=asyncio.run(measure(_load(plan, step), ground)))
            return Measured(step, drained=asyncio.run(_drained(plan, step, ground)))
    except RuntimeError as fault:
        return Measured(step, fault=str(fault))


def _load(plan: Plan, step: Step) -> Load:
    processes = step.configuration
    return Load(step.rate, plan.seconds, 1, plan.payload_bytes, processes.gateways, processes.dispatchers)


async def _drained(plan: Plan, step: Step, ground: Installation) -> Drained:
    receivers = Receivers(slow=Share(1.0, step.delay)) if step.delay else ALL_WELL
    with child("relay.loadtest.sink", *receivers.arguments()) as sink:
        await ground.fill(sink_url(sink), Shape(step.events, step.endpoints, plan.payload_bytes))
        with ground.dispatcher(step.configuration.dispatchers) as dispatcher:
            seconds, cost = await drained(ground, step.events, sink=sink, dispatcher=dispatcher)
    return Drained(
        round(step.events / seconds, 1), cost.us["dispatcher"], cost.us["postgres"], cost.wal_bytes, cost.commits
    )
