"""`make bench`: drain a backlog into a local sink, beside two floors measured in the same run.

Owns the order of the measurements and the report. Timings here are for people and for ratios; no test depends on them.
Invariant: every number of a report comes from one run on one machine, since only ratios travel.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import asdict, dataclass

from relay.loadtest.accounting import tree_seconds
from relay.loadtest.backlog import Shape
from relay.loadtest.children import Child, child
from relay.loadtest.installation import Installation, Tell, installation, sink_url
from relay.loadtest.sink import read_record

LIMIT_SECONDS = 600.0
"""A drain that has not ended by then has failed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: the backlog's shape and how many dispatcher processes drain it."""

    shape: Shape
    workers: int


@dataclass(frozen=True, slots=True)
class Floor:
    """How fast one part goes alone: per second over all processes, processor µs of those and of PostgreSQL per row."""

    rate: float
    client_us: float
    postgres_us: float


@dataclass(frozen=True, slots=True)
class Drain:
    """How the backlog was drained; `lost` deliveries never reached the sink or are not recorded as delivered."""

    rate: float
    dispatcher_us: float
    postgres_us: float
    sink_us: float
    deliveries: int
    lost: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class Report:
    """One run. `ratio` is the drain's rate over the slower floor's."""

    plan: Plan
    client_floor: Floor
    queue_floor: Floor
    drain: Drain
    ratio: float


def run(plan: Plan, tell: Tell) -> Report:
    """Measure both floors and the drain. Raises `RuntimeError` if a process of the measurement fails."""
    with installation(tell) as ground:
        bench = _Bench(plan, ground)
        client_floor = bench.client_floor()
        queue_floor = asyncio.run(bench.queue_floor())
        drain = asyncio.run(bench.drain())
    ratio = drain.rate / min(client_floor.rate, queue_floor.rate)
    return Report(plan, client_floor, queue_floor, drain, ratio)


def text(report: Report) -> str:
    """The report for a person: rates, and where the processor's time goes."""
    client, queue, drain = report.client_floor, report.queue_floor, report.drain
    shape = report.plan.shape
    rows = (
        ("floor: bare client, no queue", client.rate, client.client_us, None),
        ("floor: queue, no HTTP", queue.rate, queue.client_us, queue.postgres_us),
        ("drain: claim, sign, send, record", drain.rate, drain.dispatcher_us, drain.postgres_us),
    )
    title = (
        f"{shape.events:,} deliveries of {shape.payload_bytes} bytes to {shape.endpoints} endpoint(s)"
        f" by {report.plan.workers} dispatcher process(es); processor time in µs per delivery"
    )
    lines = [
        title,
        f"{'':34}{'per second':>12}{'Python':>10}{'PostgreSQL':>12}",
        *(f"{name:34}{rate:12,.0f}{own:10.1f}{_or_dash(postgres):>12}" for name, rate, own, postgres in rows),
        f"dispatcher + PostgreSQL: {drain.dispatcher_us + drain.postgres_us:.1f} µs; the sink: {drain.sink_us:.1f} µs",
        f"ratio to the slower floor: {report.ratio:.2f}",
        f"lost {drain.lost}, duplicates {drain.duplicates}",
    ]
    return "\n".join(lines)


def _or_dash(microseconds: float | None) -> str:
    return "-" if microseconds is None else f"{microseconds:.1f}"


def as_json(report: Report) -> str:
    """The report for a program."""
    return json.dumps(asdict(report))


class _Bench:
    """The measurements of one run, on one server with durable defaults."""

    def __init__(self, plan: Plan, ground: Installation) -> None:
        self._plan = plan
        self._ground = ground

    def client_floor(self) -> Floor:
        """Send the backlog's requests from a list."""
        plan = self._plan
        self._ground.tell("floor: the bare client")
        with child("relay.loadtest.sink") as sink, contextlib.ExitStack() as stack:
            arguments = (
                *("client", "--url", sink_url(sink)),
                *("--requests", str(plan.shape.events // plan.workers)),
                *("--payload-bytes", str(plan.shape.payload_bytes)),
            )
            clients = [stack.enter_context(child("relay.loadtest.floors", *arguments)) for _ in range(plan.workers)]
            return self._floor(clients)

    async def queue_floor(self) -> Floor:
        """Claim and record a backlog without sending it."""
        await self._ground.fill("http://127.0.0.1:1/none", self._plan.shape)
        self._ground.tell("floor: the queue without HTTP")
        with contextlib.ExitStack() as stack:
            environ = {"DATABASE_URL": self._ground.dsn}
            clients = [
                stack.enter_context(child("relay.loadtest.floors", "queue", environ=environ))
                for _ in range(self._plan.workers)
            ]
            return self._floor(clients)

    def _floor(self, clients: list[Child]) -> Floor:
        postgres = self._ground.postgres_seconds()
        lines = [each.line() for each in clients]
        postgres = self._ground.postgres_seconds() - postgres
        done = sum(int(line["done"]) for line in lines)
        rate = sum(float(line["done"]) / max(float(line["seconds"]), 1e-9) for line in lines)
        spent = sum(float(line["cpu_seconds"]) for line in lines)
        return Floor(rate, spent / done * 1e6, postgres / done * 1e6)

    async def drain(self) -> Drain:
        """Let dispatchers drain the backlog into the sink."""
        plan, record = self._plan, self._ground.folder / "arrivals"
        capacity = str(plan.shape.events * 2)
        with child("relay.loadtest.sink", "--record", str(record), "--capacity", capacity) as sink:
            await self._ground.fill(sink_url(sink), plan.shape)
            self._ground.tell(f"drain: {plan.workers} dispatcher process(es)")
            with self._ground.dispatcher(plan.workers) as dispatcher:
                measured = await self._watch(sink, dispatcher)
            deliveries = sink.ask()["requests"]
        arrived = {delivery for delivery, _ in read_record(record)}
        events = plan.shape.events
        return Drain(
            rate=events / measured.seconds,
            dispatcher_us=measured.dispatcher / events * 1e6,
            postgres_us=measured.postgres / events * 1e6,
            sink_us=measured.sink / events * 1e6,
            deliveries=deliveries,
            lost=max(events - len(arrived), await self._ground.owed()),
            duplicates=deliveries - len(arrived),
        )

    async def _watch(self, sink: Child, dispatcher: Child) -> _Spent:
        """What it took from the first arrival until everything is recorded."""

        def spent() -> _Spent:
            return _Spent(
                time.monotonic(),
                tree_seconds(dispatcher.pid),
                self._ground.postgres_seconds(),
                tree_seconds(sink.pid),
            )

        deadline = time.monotonic() + LIMIT_SECONDS
        before = spent()
        while not sink.ask()["requests"]:
            await asyncio.sleep(0.005)
            before = spent()
            _check(dispatcher, deadline)
        while sink.ask()["requests"] < self._plan.shape.events or await self._ground.owed():
            await asyncio.sleep(0.1)
            _check(dispatcher, deadline)
        return spent().since(before)


@dataclass(frozen=True, slots=True)
class _Spent:
    """Seconds on the clock, and of processor time by party."""

    seconds: float
    dispatcher: float
    postgres: float
    sink: float

    def since(self, before: _Spent) -> _Spent:
        """What was spent since then."""
        return _Spent(
            self.seconds - before.seconds,
            self.dispatcher - before.dispatcher,
            self.postgres - before.postgres,
            self.sink - before.sink,
        )


def _check(dispatcher: Child, deadline: float) -> None:
    if dispatcher.process.poll() is not None:
        raise RuntimeError("the dispatcher ended before the backlog was drained")
    if time.monotonic() > deadline:
        raise RuntimeError(f"the backlog was not drained within {LIMIT_SECONDS:.0f} s")
