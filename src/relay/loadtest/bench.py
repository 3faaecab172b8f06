"""`make bench`: drain a backlog and keep up with a steady load, beside two floors measured in the same run.

Owns the order of the measurements; what is said of them is `bench_report`'s. Timings here are for people and for
ratios; no test depends on them. Invariant: every number of a report comes from one run on one machine, since only
ratios travel.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from relay.loadtest.accounting import MACHINE, POSTGRES, Cost
from relay.loadtest.backlog import Shape
from relay.loadtest.children import Child, child
from relay.loadtest.installation import NOWHERE, Installation, Tell, installation, sink_url
from relay.loadtest.sink import read_record
from relay.loadtest.steady import Load, Steady, measure
from relay.loadtest.watching import watching

LIMIT_SECONDS = 600.0
"""A drain that has not ended by then has failed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: the backlog's shape, how many dispatcher processes drain it, and the load afterwards, if any."""

    shape: Shape
    workers: int
    load: Load | None = None


@dataclass(frozen=True, slots=True)
class Floor:
    """How fast one part goes alone: per second over all processes, processor µs of those, of PostgreSQL and of the sink
    per row, and bytes of PostgreSQL's log and commits."""

    rate: float
    client_us: float
    postgres_us: float
    sink_us: float
    machine_us: float
    wal_bytes: float
    commits: float


@dataclass(frozen=True, slots=True)
class Drain:
    """How the backlog was drained; `lost` deliveries never reached the sink or are not recorded as delivered.

    `machine_us` is what all that ran on this machine took per delivery, the kernel's own work included.
    """

    rate: float
    dispatcher_us: float
    postgres_us: float
    sink_us: float
    machine_us: float
    wal_bytes: float
    commits: float
    deliveries: int
    lost: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class Sustained:
    """How the load was kept up with: what came of it, and what each event cost, of the processor by party."""

    steady: Steady
    cost: Cost


@dataclass(frozen=True, slots=True)
class Report:
    """One run. `ratio` is the drain's rate over the slower floor's; `busy` is how many processes, on average over the
    minute before, wanted one of the machine's `cores`."""

    plan: Plan
    busy: float
    cores: int
    client_floor: Floor
    queue_floor: Floor
    drain: Drain
    sustained: Sustained | None
    ratio: float


def run(plan: Plan, tell: Tell) -> Report:
    """Measure both floors, the drain and the load. Raises `RuntimeError` if a process of the measurement fails."""
    busy = os.getloadavg()[0]
    with installation(tell) as ground:
        bench = _Bench(plan, ground)
        client_floor = asyncio.run(bench.client_floor())
        queue_floor = asyncio.run(bench.queue_floor())
        drain = asyncio.run(bench.drain())
        sustained = asyncio.run(kept_up(plan.load, ground)) if plan.load else None
    ratio = drain.rate / min(client_floor.rate, queue_floor.rate)
    return Report(plan, busy, os.cpu_count() or 1, client_floor, queue_floor, drain, sustained, ratio)


async def kept_up(load: Load, ground: Installation) -> Sustained:
    """Put a load on the installation and watch."""
    async with watching(ground) as watch:
        steady = await measure(load, ground)
    return Sustained(steady, watch.spent().each(load.number))


class _Bench:
    """The measurements of one run, on one server with durable defaults."""

    def __init__(self, plan: Plan, ground: Installation) -> None:
        self._plan = plan
        self._ground = ground

    async def client_floor(self) -> Floor:
        """Send the backlog's requests from a list."""
        shape = self._plan.shape
        await self._ground.migrate()
        self._ground.tell("floor: the bare client")
        with child("relay.loadtest.sink") as sink:
            return await bare_client(
                self._ground, sink, sink_url(sink), shape.deliveries, shape.payload_bytes, self._plan.workers
            )

    async def queue_floor(self) -> Floor:
        """Claim and record a backlog without sending it."""
        await self._ground.fill(NOWHERE, self._plan.shape)
        self._ground.tell("floor: the queue without HTTP")
        with contextlib.ExitStack() as stack:
            environ = {"DATABASE_URL": self._ground.dsn}
            clients = [
                stack.enter_context(child("relay.loadtest.floors", "queue", environ=environ))
                for _ in range(self._plan.workers)
            ]
            return await _floor(self._ground, clients)

    async def drain(self) -> Drain:
        """Let dispatchers drain the backlog into the sink."""
        plan, record = self._plan, self._ground.folder / "arrivals"
        owed = plan.shape.deliveries
        with child("relay.loadtest.sink", "--record", str(record), "--capacity", str(owed * 2)) as sink:
            await self._ground.fill(sink_url(sink), plan.shape)
            self._ground.tell(f"drain: {plan.workers} dispatcher process(es)")
            with self._ground.dispatcher(plan.workers) as dispatcher:
                seconds, cost = await drained(self._ground, owed, sink=sink, dispatcher=dispatcher)
            deliveries = sink.ask()["requests"]
        arrived = {delivery for delivery, _ in read_record(record)}
        return Drain(
            rate=owed / seconds,
            dispatcher_us=cost.us["dispatcher"],
            postgres_us=cost.us[POSTGRES],
            sink_us=cost.us["sink"],
            machine_us=cost.us[MACHINE],
            wal_bytes=cost.wal_bytes,
            commits=cost.commits,
            deliveries=deliveries,
            lost=max(owed - len(arrived), await self._ground.owed()),
            duplicates=deliveries - len(arrived),
        )


async def bare_client(
    ground: Installation,
    sink: Child,
    url: str,
    requests: int,
    payload_bytes: int,
    workers: int,
    authority: Path | None = None,
) -> Floor:
    """Send so many requests from a list, by so many processes; `authority` is who vouches for a sink with TLS."""
    arguments = ["client", "--url", url, "--requests", str(requests // workers), "--payload-bytes", str(payload_bytes)]
    if authority is not None:
        arguments += ["--authority", str(authority)]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(child("relay.loadtest.floors", *arguments)) for _ in range(workers)]
        return await _floor(ground, clients, sink=sink)


async def _floor(ground: Installation, clients: list[Child], **parties: Child) -> Floor:
    """What these processes of a floor did, once each has told."""
    before = await ground.spent(**parties)
    lines = [each.line() for each in clients]
    spent = (await ground.spent(**parties)).since(before)
    done = sum(int(line["done"]) for line in lines)
    cost = spent.each(done)
    return Floor(
        rate=sum(float(line["done"]) / max(float(line["seconds"]), 1e-9) for line in lines),
        client_us=sum(float(line["cpu_seconds"]) for line in lines) / done * 1e6,
        postgres_us=cost.us[POSTGRES],
        sink_us=cost.us.get("sink", 0.0),
        machine_us=cost.us[MACHINE],
        wal_bytes=cost.wal_bytes,
        commits=cost.commits,
    )


async def drained(ground: Installation, owed: int, *, sink: Child, dispatcher: Child) -> tuple[float, Cost]:
    """The seconds from the first arrival until so many deliveries are recorded, and what each cost.

    Raises `RuntimeError` if the dispatcher ends, or takes too long.
    """
    deadline = time.monotonic() + LIMIT_SECONDS
    before = await ground.spent(sink=sink, dispatcher=dispatcher)
    while not sink.ask()["requests"]:
        await asyncio.sleep(0.005)
        before = await ground.spent(sink=sink, dispatcher=dispatcher)
        _check(dispatcher, deadline)
    while sink.ask()["requests"] < owed or await ground.owed():
        await asyncio.sleep(0.1)
        _check(dispatcher, deadline)
    spent = (await ground.spent(sink=sink, dispatcher=dispatcher)).since(before)
    return spent.seconds, spent.each(owed)


def _check(dispatcher: Child, deadline: float) -> None:
    if dispatcher.process.poll() is not None:
        raise RuntimeError("the dispatcher ended before the backlog was drained")
    if time.monotonic() > deadline:
        raise RuntimeError(f"the backlog was not drained within {LIMIT_SECONDS:.0f} s")
