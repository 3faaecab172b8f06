"""A steady load: events posted at a constant rate, and how long until each was accepted and had arrived.

Owns the measurement and its report; the posts are the open-loop generator's. Invariant: all times are of one machine's
monotonic clock, and count from the moment at which a post was due.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import msgspec

from relay.domain.credentials import Proof
from relay.loadtest import authenticated
from relay.loadtest.accounting import tree_seconds
from relay.loadtest.children import Child, child
from relay.loadtest.installation import Installation, Tell, installation, sink_url
from relay.loadtest.open_loop import percentiles
from relay.loadtest.sink import read_record

START_SECONDS = 60.0

_TITLE = 34
_SHOWN = ("p50", "p95", "p99", "max")

SETTLE_SECONDS = 60.0
"""How long after the last post deliveries may still arrive."""


@dataclass(frozen=True, slots=True)
class Load:
    """So many posts per second for so many seconds, each owed to `endpoints`, through so many processes; `quorum`
    machines have an event before its 202. With `in_turn`, each event is owed to one of the endpoints, one after the
    other. `auth` is what each post proves its source by, None for anonymous ones."""

    rate: float
    seconds: float
    endpoints: int
    payload_bytes: int
    gateways: int
    dispatchers: int
    quorum: int = 1
    in_turn: bool = False
    auth: Proof | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """So many events owed to an endpoint of each url."""

    urls: tuple[str, ...]
    events: int


@dataclass(frozen=True, slots=True)
class Steady:
    """What came of it. Times are milliseconds from due to answered and from due to arrived; costs are µs per event."""

    load: Load
    answers: dict[str, int]
    answered_ms: dict[str, float]
    arrived_ms: dict[str, float]
    lost: int
    duplicates: int
    gateway_us: float
    dispatcher_us: float
    postgres_us: float


def run(load: Load, tell: Tell) -> Steady:
    """Measure. Raises `RuntimeError` if a process of the measurement fails."""
    with installation(tell) as ground:
        return asyncio.run(measure(load, ground))


def text(steady: Steady) -> str:
    """The report for a person."""
    load = steady.load
    answers = ", ".join(f"{number:,} x {answer}" for answer, number in sorted(steady.answers.items()))
    costs = (
        f"processor time per event: gateway {steady.gateway_us:.0f} µs, dispatcher {steady.dispatcher_us:.0f} µs,"
        f" PostgreSQL {steady.postgres_us:.0f} µs"
    )
    sender = load.auth or "anonymous"
    lines = [
        f"{load.rate:,.0f} events/s for {load.seconds:.0f} s to {load.endpoints} endpoint(s), {sender}: {answers}",
        times_head("ms from due to"),
        times_row("answered (the 202)", steady.answered_ms),
        times_row("arrived at its endpoint", steady.arrived_ms),
        costs,
        f"lost {steady.lost}, duplicates {steady.duplicates}",
    ]
    return "\n".join(lines)


def as_json(steady: Steady) -> str:
    """The report for a program."""
    return json.dumps(asdict(steady))


def times_head(title: str) -> str:
    """The line above `times_row`s."""
    return f"{title:{_TITLE}}" + "".join(f"{name:>10}" for name in _SHOWN)


def times_row(title: str, times: Mapping[str, float]) -> str:
    """One line of a table: what `percentiles` answered."""
    return f"{title:{_TITLE}}" + "".join(f"{times[name]:10.1f}" for name in _SHOWN)


async def measure(load: Load, ground: Installation, *, beside: Backlog | None = None) -> Steady:
    """Put the load on an installation and return when what was accepted has arrived. Raises `RuntimeError`.

    What is owed to others `beside` is there from the start, and not waited for.
    """
    number = int(load.rate * load.seconds)
    bind = f"127.0.0.1:{_free_port()}"
    record, due_at = ground.folder / "arrivals", ground.folder / "due"
    capacity = str(number * (1 if load.in_turn else load.endpoints) * 2)
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(child("relay.loadtest.sink", "--record", str(record), "--capacity", capacity))
        await ground.subscribe(sink_url(sink), load.endpoints, own_types=load.in_turn)
        if beside is not None:
            await ground.owe(beside.urls, beside.events, load.payload_bytes)
        gateway = stack.enter_context(ground.gateway(bind, load.gateways, quorum=load.quorum))
        dispatcher = stack.enter_context(ground.dispatcher(load.dispatchers, quorum=load.quorum))
        await _ready(bind, gateway)
        proving, environ = [], {}
        if load.auth is not None:
            secret = await asyncio.to_thread(authenticated.make_source, f"http://{bind}", load.auth)
            proving, environ = ["--auth", load.auth], {authenticated.SECRET: secret}
        ground.tell(f"posting {number:,} events")

        def spent() -> tuple[float, float, float]:
            return tree_seconds(gateway.pid), tree_seconds(dispatcher.pid), ground.postgres_seconds()

        before = spent()
        posts = stack.enter_context(
            child(
                "relay.loadtest.open_loop",
                *("--url", f"http://{bind}/v1/events", "--rate", str(load.rate), "--number", str(number)),
                *("--payload-bytes", str(load.payload_bytes), "--due-at", str(due_at)),
                *("--types", str(load.endpoints if load.in_turn else 0)),
                *proving,
                environ=environ,
            )
        )
        report = await asyncio.to_thread(posts.line)
        due = msgspec.json.decode(due_at.read_bytes(), type=dict[str, float])
        await _settled(ground, sink, len(due), all_owed=beside is None)
        costs = [(after - at_first) / number * 1e6 for after, at_first in zip(spent(), before, strict=True)]
        requests = sink.ask()["requests"]
    arrivals: dict[str, float] = {}
    for delivery, at in read_record(record):
        arrivals.setdefault(delivery, at)
    times = [at - due[delivery] for delivery, at in arrivals.items() if delivery in due]
    return Steady(
        load=load,
        answers=report["answers"],
        answered_ms=report["answered_ms"],
        arrived_ms=percentiles(times),
        lost=len(due.keys() - arrivals.keys()),
        duplicates=requests - len(arrivals),
        gateway_us=costs[0],
        dispatcher_us=costs[1],
        postgres_us=costs[2],
    )


async def _settled(ground: Installation, sink: Child, expected: int, *, all_owed: bool) -> None:
    """Wait until everything accepted has arrived and is recorded, or time is up: what lacks then is lost."""

    async def unfinished() -> bool:
        return sink.ask()["requests"] < expected or (all_owed and await ground.owed() > 0)

    deadline = time.monotonic() + SETTLE_SECONDS
    # nothing tells of what other processes have done: they are asked
    while time.monotonic() < deadline and await unfinished():  # noqa: ASYNC110
        await asyncio.sleep(0.1)


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
