"""A steady load: events posted at a constant rate, and how long until each was accepted and had arrived.

Owns the measurement; the posts are the open-loop generator's, the looks meanwhile the observer's, the report is
`steady_report`'s. Invariant: all times are of one machine's monotonic clock, and count from the moment at which a post
was due.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from relay.domain.credentials import Proof
from relay.loadtest import authenticated
from relay.loadtest.accounting import tree_seconds
from relay.loadtest.children import Child, child
from relay.loadtest.histogram import Histogram
from relay.loadtest.installation import Installation, Tell, installation, sink_url
from relay.loadtest.machine import Machine, this_machine
from relay.loadtest.memory import Memory
from relay.loadtest.observing import Observer, Queue
from relay.loadtest.receivers import ALL_WELL, Receivers
from relay.loadtest.schedule import Arrivals
from relay.loadtest.sink import read_record

START_SECONDS = 60.0

SETTLE_SECONDS = 60.0
"""How long after the last arrival others may still come: longer than a breaker's first cooldown, and than a retry."""


@dataclass(frozen=True, slots=True)
class Load:
    """So many posts per second for so many seconds, each owed to `endpoints`, through so many processes; `quorum`
    machines have an event before its 202. With `in_turn`, each event is owed to one of the endpoints, one after the
    other; with `fan_out`, to so many of them. `auth` is what each post proves its source by, None for anonymous ones.
    With `payload_mix`, payloads have these sizes in turn instead of `payload_bytes`."""

    rate: float
    seconds: float
    endpoints: int
    payload_bytes: int
    gateways: int
    dispatchers: int
    quorum: int = 1
    in_turn: bool = False
    auth: Proof | None = None
    fan_out: int | None = None
    payload_mix: tuple[int, ...] = ()
    receivers: Receivers = ALL_WELL
    arrivals: Arrivals = Arrivals.CONSTANT

    def __post_init__(self) -> None:
        """Raises `ValueError` where endpoints are left over."""
        if self.endpoints % self.owed_to:
            raise ValueError(f"{self.endpoints} endpoints cannot be told apart into groups of {self.owed_to}")

    @property
    def number(self) -> int:
        """How many posts there are."""
        return int(self.rate * self.seconds)

    @property
    def owed_to(self) -> int:
        """How many endpoints each event is owed to."""
        return 1 if self.in_turn else self.fan_out or self.endpoints

    @property
    def types(self) -> int:
        """How many types of events there are, one for each group of endpoints; 0 where all get every event."""
        return 0 if self.owed_to == self.endpoints and not self.in_turn else self.endpoints // self.owed_to

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of payloads, in turn."""
        return self.payload_mix or (self.payload_bytes,)


@dataclass(frozen=True, slots=True)
class Backlog:
    """So many events owed to an endpoint of each url."""

    urls: tuple[str, ...]
    events: int


@dataclass(frozen=True, slots=True)
class Steady:
    """What came of it. Times are milliseconds from due to answered and from due to arrived, i.e. to the 200 of the
    endpoint; costs are µs per event.

    `answered` and `arrived` are the same times as histograms, in their text form. Deliveries that are `lost` were
    accepted and have not arrived, `owed` of them will yet, as far as the database says; those of dead endpoints are
    lost if the database does not owe them any more. `late_ms` is by how much the latest post left after it was due.
    """

    load: Load
    answers: dict[str, int]
    answered_ms: dict[str, float]
    arrived_ms: dict[str, float]
    lost: int
    duplicates: int
    gateway_us: float
    dispatcher_us: float
    postgres_us: float
    answered: str = ""
    arrived: str = ""
    deliveries: int = 0
    owed: int = 0
    undeliverable: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    late_ms: float = 0.0
    generator_us: float = 0.0
    queue: Queue | None = None
    memory: dict[str, Memory] = field(default_factory=dict)

    def faults(self) -> list[str]:
        """What must not be, a sentence each."""
        found = []
        if not self.deliveries:
            found.append("nothing was accepted that an endpoint was to get")
        if self.lost > self.owed:
            found.append(f"{self.lost - self.owed:,} of {self.deliveries:,} accepted deliveries are lost")
        if self.owed:
            found.append(f"{self.owed:,} deliveries are still owed {SETTLE_SECONDS:.0f} s after the last one arrived")
        return found


def run(load: Load, tell: Tell) -> tuple[Steady, Machine]:
    """Measure. Raises `RuntimeError` if a process of the measurement fails."""
    with installation(tell) as ground:
        machine = this_machine(asyncio.run(ground.version()))
        return asyncio.run(measure(load, ground)), machine


async def measure(load: Load, ground: Installation, *, beside: Backlog | None = None) -> Steady:
    """Put the load on an installation and return when what was accepted has arrived. Raises `RuntimeError`.

    What is owed to others `beside` is there from the start, and not waited for.
    """
    bind = f"127.0.0.1:{_free_port()}"
    record, due_at = ground.folder / "arrivals", ground.folder / "due"
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(child("relay.loadtest.sink", *_sink_arguments(load, record)))
        refused = stack.enter_context(_refusing())
        urls = [refused if load.receivers.is_dead(place) else "" for place in range(load.endpoints)]
        alive = sink_url(sink)
        await ground.subscribe([url or alive for url in urls], of_a_type=load.owed_to if load.types else None)
        if beside is not None:
            await ground.owe(beside.urls, beside.events, load.payload_bytes)
        gateway = stack.enter_context(ground.gateway(bind, load.gateways, quorum=load.quorum))
        dispatcher = stack.enter_context(ground.dispatcher(load.dispatchers, quorum=load.quorum))
        await _ready(bind, gateway)
        environ = {}
        if load.auth is not None:
            secret = await asyncio.to_thread(authenticated.make_source, f"http://{bind}", load.auth)
            environ = {authenticated.SECRET: secret}
        ground.tell(f"posting {load.number:,} events")

        def spent() -> tuple[float, float, float]:
            return tree_seconds(gateway.pid), tree_seconds(dispatcher.pid), ground.postgres_seconds()

        trees = {"gateway": gateway.pid, "dispatcher": dispatcher.pid}
        observer = Observer(ground, sink, trees, load.seconds, load.rate * load.owed_to)
        before = spent()
        arguments = _post_arguments(load, f"http://{bind}/v1/events", due_at, observer.parts)
        posts = stack.enter_context(child("relay.loadtest.open_loop", *arguments, environ=environ))
        report = await observer.until_done(posts)
        due = msgspec.json.decode(due_at.read_bytes(), type=dict[str, float])
        undeliverable = int(report["undeliverable"])
        owed = await _settled(ground, sink, len(due), undeliverable, all_owed=beside is None)
        costs = [(after - at_first) / load.number * 1e6 for after, at_first in zip(spent(), before, strict=True)]
        counts = sink.ask()
        steady = Steady(
            load=load,
            answers=report["answers"],
            answered_ms=Histogram.decode(report["answered"]).percentiles(),
            arrived_ms={},
            lost=0,
            duplicates=_answered_200(counts),
            gateway_us=costs[0],
            dispatcher_us=costs[1],
            postgres_us=costs[2],
            answered=report["answered"],
            deliveries=len(due) + undeliverable,
            owed=owed,
            undeliverable=undeliverable,
            refusals={name: int(counts[name]) for name in ("failed", "throttled", "slow", "cut")},
            late_ms=round(report["late"] * 1000, 3),
            generator_us=report["cpu_seconds"] / load.number * 1e6,
            queue=observer.queue(),
            memory=observer.memory(),
        )
    return with_arrivals(steady, record, due, all_owed=beside is None)


def with_arrivals(steady: Steady, record: Path, due: Mapping[str, float], *, all_owed: bool) -> Steady:
    """The same with what the sink has noted, which it does at its end; so far `owed` is what is owed to anybody, and
    `duplicates` counts every arrival."""
    arrived, distinct = Histogram(), 0
    for _, seconds in _first_arrivals(record, due):
        distinct += 1
        if seconds is not None:
            arrived.record(seconds)
    missing = len(due) - arrived.total
    gone, late = missing, 0
    if all_owed:
        # dead endpoints come first: nothing takes from what they are owed
        late = min(missing, max(0, steady.owed - steady.undeliverable))
        gone = max(0, missing + steady.undeliverable - steady.owed)
    return replace(
        steady,
        arrived_ms=arrived.percentiles(),
        arrived=arrived.encode(),
        lost=gone + late,
        owed=late,
        duplicates=steady.duplicates - distinct,
    )


def _sink_arguments(load: Load, record: Path) -> tuple[str, ...]:
    capacity = load.number * load.owed_to * 2
    return ("--record", str(record), "--capacity", str(capacity), *load.receivers.arguments())


def _post_arguments(load: Load, url: str, due_at: Path, parts: int) -> list[str]:
    arguments = {
        "--url": url,
        "--rate": load.rate,
        "--number": load.number,
        "--arrivals": load.arrivals,
        "--seed": load.receivers.seed,
        "--types": load.types,
        "--dead": load.receivers.dead,
        "--parts": parts,
        "--due-at": due_at,
    }
    if load.auth is not None:
        arguments["--auth"] = load.auth
    sizes = [text for size in load.sizes for text in ("--payload-bytes", str(size))]
    return [*(str(each) for pair in arguments.items() for each in pair), *sizes]


def _first_arrivals(record: Path, due: Mapping[str, float]) -> Iterator[tuple[str, float | None]]:
    """Each delivery that arrived, once, and its seconds since it was due; None for one of nobody's post."""
    seen = set()
    for delivery, at in read_record(record):
        if delivery not in seen:
            seen.add(delivery)
            yield delivery, at - due[delivery] if delivery in due else None


def _answered_200(counts: Mapping[str, int]) -> int:
    return counts["requests"] - counts["failed"] - counts["throttled"] - counts["cut"]


@contextlib.contextmanager
def _refusing() -> Iterator[str]:
    """The url of an endpoint that refuses connections: a port that nobody listens on, and nobody else gets."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/"


async def _settled(ground: Installation, sink: Child, expected: int, undeliverable: int, *, all_owed: bool) -> int:
    """Wait until everything accepted has arrived and is recorded, or nothing comes any more: what lacks then is lost.

    Answers what is owed then; what is owed to dead endpoints stays so.
    """
    arrived, owed = -1, 0
    deadline = time.monotonic() + SETTLE_SECONDS
    # nothing tells of what other processes have done: they are asked
    while time.monotonic() < deadline:
        counted = _answered_200(sink.ask())
        owed = await ground.owed() if all_owed else 0
        if counted >= expected and owed <= undeliverable:
            break
        if counted > arrived:
            arrived, deadline = counted, time.monotonic() + SETTLE_SECONDS
        await asyncio.sleep(0.1)
    return owed


async def _ready(bind: str, gateway: Child) -> None:
    """Return when the gateway's workers answer and know of a dispatcher: what they took to start is not the load's."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if gateway.process.poll() is not None:
            raise RuntimeError("the gateway ended before it was ready")
        if await asyncio.to_thread(_answers, f"http://{bind}/readyz"):
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"the gateway was not ready within {START_SECONDS:.0f} s")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5.0) as response:  # noqa: S310 - our own address
            return bool(response.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
