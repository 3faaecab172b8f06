"""An open-loop load generator: posts leave at times that were fixed in advance.

Owns the schedule and the counting. A closed loop waits for an answer before it asks again, so a stall hides itself by
slowing the load down; here a stall shows, since the latency of a post counts from the time at which it was due. Run as
`python -m relay.loadtest.open_loop --url … --rate …`; writes the posts to a file and prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import uvloop

from relay.domain.credentials import Proof
from relay.domain.egress import EgressPolicy
from relay.domain.sending import OutboundRequest, SendFacts
from relay.loadtest.authenticated import Prover, prover
from relay.loadtest.backlog import EVENT_TYPE, event_type, payload
from relay.sender import HttpSender, SendLimits

TICK_SECONDS = 0.001
TIMEOUT_SECONDS = 30.0


class _Delivery(msgspec.Struct):
    id: str


class _Accepted(msgspec.Struct):
    deliveries: list[_Delivery]


_ACCEPTED = msgspec.json.Decoder(_Accepted)


@dataclass(slots=True)
class Posts:
    """What came of the posts: seconds from due to answered, by post; and when each delivery's post was due."""

    seconds: array[float] = field(default_factory=lambda: array("d"))
    due_at: dict[str, float] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)


class Generator:
    """Posts one event after the other at a constant rate, whatever the answers; the bodies in turn."""

    def __init__(self, url: str, *, rate: float, number: int, bodies: Sequence[bytes], prover: Prover) -> None:
        self._url = url
        self._bodies = bodies
        self._prover = prover
        self._ready = [self._make(place) for place in range(len(bodies))] if prover.is_alike else []
        self._rate = rate
        self._number = number
        self._posts = Posts()
        self._answered = 0
        self._done = asyncio.Event()
        self._began = 0.0

    async def run(self) -> Posts:
        """Send every post and return when each has its answer, or its error."""
        sender: HttpSender[int] = HttpSender(
            policy=EgressPolicy(allow_private=True, require_https=False, allowed_ports=None),
            limits=SendLimits(),
            clock=time.monotonic,
            deliver=self._landed,
        )
        await sender.start()
        try:
            self._began = time.monotonic()
            sent = 0
            while sent < self._number:
                due = min(int((time.monotonic() - self._began) * self._rate) + 1, self._number)
                sender.submit([(place, self._request(place)) for place in range(sent, due)])
                sent = due
                await asyncio.sleep(TICK_SECONDS)
            async with asyncio.timeout(TIMEOUT_SECONDS + 5.0):
                await self._done.wait()
        finally:
            await sender.close(within=1.0)
        return self._posts

    def _request(self, place: int) -> OutboundRequest:
        return self._ready[place % len(self._ready)] if self._ready else self._make(place)

    def _make(self, place: int) -> OutboundRequest:
        proofs, body = self._prover.post(self._bodies[place % len(self._bodies)], place)
        headers = (("Content-Type", "application/json"), *proofs)
        return OutboundRequest(self._url, self._url, headers, body, TIMEOUT_SECONDS)

    def _landed(self, landings: Sequence[tuple[int, SendFacts]]) -> None:
        now = time.monotonic()
        posts = self._posts
        for place, facts in landings:
            due_at = self._began + place / self._rate
            posts.seconds.append(now - due_at)
            posts.answers[str(facts.status_code or facts.error_class)] += 1
            if facts.status_code == 202:
                for delivery in _ACCEPTED.decode(facts.snippet).deliveries:
                    posts.due_at[delivery.id] = due_at
        self._answered += len(landings)
        if self._answered >= self._number:
            self._done.set()


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """The median, 95th and 99th percentile and the longest, in milliseconds; zeros for none."""
    ordered = sorted(seconds) or [0.0]
    last = len(ordered) - 1
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: round(ordered[round(share * last)] * 1000, 3) for name, share in shares.items()}


def main() -> None:
    """The command line; see the module's description."""
    parser = argparse.ArgumentParser(prog="python -m relay.loadtest.open_loop", description="Posts at a constant rate.")
    parser.add_argument("--url", required=True, help="where events are posted")
    parser.add_argument("--rate", type=float, required=True, help="posts per second")
    parser.add_argument("--number", type=int, required=True, help="posts in all")
    parser.add_argument("--payload-bytes", type=int, default=500)
    parser.add_argument("--types", type=int, default=0, help="types of events, one after the other; 0: all of one")
    parser.add_argument("--due-at", type=Path, required=True, help="file for when each delivery's post was due (JSON)")
    parser.add_argument("--auth", type=Proof, help="how each post proves whose it is, by the environment's secret")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        types = [event_type(place) for place in range(options.types)] or [EVENT_TYPE]
        bodies = [payload(options.payload_bytes, each) for each in types]
        generator = Generator(
            options.url, rate=options.rate, number=options.number, bodies=bodies, prover=prover(options.auth)
        )
        posts = runner.run(generator.run())
    options.due_at.write_bytes(msgspec.json.encode(posts.due_at))
    json.dump({"answers": posts.answers, "answered_ms": percentiles(posts.seconds)}, sys.stdout)
    sys.stdout.write("\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
