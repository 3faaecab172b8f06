"""An open-loop load generator: posts leave at times that were fixed in advance.

Owns the posting and the counting. A closed loop waits for an answer before it asks again, so a stall hides itself by
slowing the load down; here a stall shows, since the latency of a post counts from the time at which it was due. Run as
`python -m relay.loadtest.open_loop --url … --rate …`; prints a line of JSON as each part of the posts has left, writes
when each delivery was due to a file, and prints a last line with what came of them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from relay.domain.credentials import Proof
from relay.loadtest.authenticated import Prover, prover
from relay.loadtest.backlog import EVENT_TYPE, event_type, payload
from relay.loadtest.histogram import Histogram
from relay.loadtest.poster import SWEEP_SECONDS, Poster, request
from relay.loadtest.receivers import ALL_WELL, Receivers
from relay.loadtest.schedule import Arrivals, Schedule

TICK_SECONDS = 0.001
TIMEOUT_SECONDS = 30.0

ACCEPTED = "202"

YOUNG_OBJECTS = 50_000
"""How many objects are made before the collector of garbage looks at them: it is no part of what is measured."""


READY_BYTES = 64 * 1024 * 1024
"""Posts are made ahead as long as their bodies take no more than this together."""


class _Delivery(msgspec.Struct):
    id: str
    consumer: str


class _Accepted(msgspec.Struct):
    deliveries: list[_Delivery]


_ACCEPTED = msgspec.json.Decoder(_Accepted)


@dataclass(frozen=True, slots=True)
class Bodies:
    """The events in turn: each type in turn, and all of them once in each size."""

    sizes: tuple[int, ...]
    types: int = 0

    def __len__(self) -> int:
        return max(1, self.types) * len(self.sizes)

    def __getitem__(self, place: int) -> bytes:
        types = max(1, self.types)
        return payload(
            self.sizes[place // types % len(self.sizes)], event_type(place % types) if self.types else EVENT_TYPE
        )

    @property
    def fit(self) -> bool:
        """Whether all of them may be kept."""
        return sum(self.sizes) * max(1, self.types) <= READY_BYTES


@dataclass(slots=True)
class Posts:
    """What came of the posts: how long each took from due to its 202; when each delivery's post was due; how many
    deliveries are owed to dead endpoints; by how much the latest post left after it was due, in seconds."""

    answered: Histogram = field(default_factory=Histogram)
    due_at: dict[str, float] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    undeliverable: int = 0
    late: float = 0.0


class Generator:
    """Posts one event after the other when it is due, whatever the answers; the bodies in turn."""

    def __init__(
        self,
        url: str,
        schedule: Schedule,
        bodies: Bodies,
        prover: Prover,
        *,
        receivers: Receivers = ALL_WELL,
    ) -> None:
        self._url = url
        self._schedule = schedule
        self._bodies = bodies
        self._prover = prover
        self._dead = receivers.is_dead if receivers.dead else None
        self._ready = [self._make(place) for place in range(len(bodies))] if prover.is_alike and bodies.fit else []
        self._posts = Posts()
        self._answered = 0
        self._done = asyncio.Event()
        self._began = 0.0

    async def run(self, tell: Callable[[dict[str, float]], None], parts: int) -> Posts:
        """Send every post and return when each has its answer, or its error; tell as each part of them has left."""
        poster = Poster(self._url, self._landed, timeout_seconds=TIMEOUT_SECONDS)
        sweeping = asyncio.create_task(_sweep(poster))
        try:
            self._began = time.monotonic()
            sent, number = 0, len(self._schedule)
            while sent < number:
                elapsed = time.monotonic() - self._began
                due = self._schedule.until(elapsed, sent)
                if due > sent:
                    self._posts.late = max(self._posts.late, elapsed - self._schedule.due(sent))
                    for place in range(sent, due):
                        poster.post(place, self._request(place))
                    if due * parts // number > sent * parts // number:
                        tell(self._progress(due, elapsed))
                    sent = due
                await asyncio.sleep(TICK_SECONDS)
            async with asyncio.timeout(TIMEOUT_SECONDS + 5.0):
                await self._done.wait()
        finally:
            sweeping.cancel()
            poster.close()
        return self._posts

    def _progress(self, posted: int, elapsed: float) -> dict[str, float]:
        posts = self._posts
        return {
            "posted": posted,
            "share": posted / len(self._schedule),
            "elapsed": elapsed,
            "answered": self._answered,
            "owed": len(posts.due_at),
            "undeliverable": posts.undeliverable,
            "late": posts.late,
        }

    def _request(self, place: int) -> bytes:
        return self._ready[place % len(self._ready)] if self._ready else self._make(place)

    def _make(self, place: int) -> bytes:
        proofs, body = self._prover.post(self._bodies[place], place)
        return request(self._url, (("Content-Type", "application/json"), *proofs), body)

    def _landed(self, place: int, answer: str, body: bytes) -> None:
        posts = self._posts
        due_at = self._began + self._schedule.due(place)
        posts.answers[answer] += 1
        if answer == ACCEPTED:
            posts.answered.record(time.monotonic() - due_at)
            for delivery in _ACCEPTED.decode(body).deliveries:
                if self._dead is not None and self._dead(int(delivery.consumer.rpartition("-")[2])):
                    posts.undeliverable += 1
                else:
                    posts.due_at[delivery.id] = due_at
        self._answered += 1
        if self._answered == len(self._schedule):
            self._done.set()


async def _sweep(poster: Poster) -> None:
    """Give up, each second, what was not answered in time."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        poster.sweep(time.monotonic())


def _print(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m relay.loadtest.open_loop", description="Posts when they are due.")
    parser.add_argument("--url", required=True, help="where events are posted")
    parser.add_argument("--rate", type=float, required=True, help="posts per second")
    parser.add_argument("--number", type=int, required=True, help="posts in all")
    parser.add_argument(
        "--arrivals", type=Arrivals, default=Arrivals.CONSTANT, help="how they are spread over the time"
    )
    parser.add_argument("--seed", type=int, default=0, help="what chance begins with")
    parser.add_argument("--payload-bytes", type=int, action="append", help="size of each; several: in turn")
    parser.add_argument("--types", type=int, default=0, help="types of events, one after the other; 0: all of one")
    parser.add_argument("--dead", type=float, default=0.0, help="share of the endpoints that refuse connections")
    parser.add_argument("--parts", type=int, default=1, help="lines about progress")
    parser.add_argument("--due-at", type=Path, required=True, help="file for when each delivery's post was due (JSON)")
    parser.add_argument("--auth", type=Proof, help="how each post proves whose it is, by the environment's secret")
    return parser.parse_args()


def main() -> None:
    """The command line; see the module's description."""
    options = _options()
    generator = Generator(
        options.url,
        Schedule(options.rate, options.number, options.arrivals, options.seed),
        Bodies(tuple(options.payload_bytes or [500]), options.types),
        prover(options.auth),
        receivers=Receivers(dead=options.dead),
    )
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    before = time.process_time()  # what a process takes to start is not the load's
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        posts = runner.run(generator.run(_print, options.parts))
    options.due_at.write_bytes(msgspec.json.encode(posts.due_at))
    _print(
        {
            "answers": posts.answers,
            "answered": posts.answered.encode(),
            "undeliverable": posts.undeliverable,
            "late": posts.late,
            "cpu_seconds": time.process_time() - before,
        }
    )


if __name__ == "__main__":
    main()
