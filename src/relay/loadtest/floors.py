"""The two floors: the bare client without a queue, and the queue without HTTP.

Owns the work of one process of each. `bench` runs as many of them side by side as it runs dispatchers, and the slower
floor is what a perfect dispatcher could reach. Run as `python -m relay.loadtest.floors client|queue …`; prints one line
of JSON, `{"done", "seconds", "cpu_seconds"}`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from relay.domain.attempt import AttemptRecord
from relay.domain.delivery import ClaimedDelivery, DeliveryMove
from relay.domain.egress import EgressPolicy
from relay.domain.outcome import LaneNotice, OutcomeClass
from relay.domain.sending import OutboundRequest, Phases, SendFacts
from relay.loadtest.backlog import new_id, payload
from relay.sender import HttpSender, SendLimits
from relay.store.database import Commits, Database
from relay.store.queue import FIRST_LANE, Queue

HEADERS = tuple((f"Relay-Filler-{place:02d}", "x" * 32) for place in range(14))
"""As many headers, about as long, as a delivery has."""


async def client(url: str, requests: int, in_flight: int, payload_bytes: int, authority: Path | None) -> None:
    """Send so many requests with so many under way, from a list; `authority` vouches for a server with TLS."""
    finished = asyncio.Event()
    request = OutboundRequest(url, url, HEADERS, payload(payload_bytes), 10.0)
    left = requests
    under_way = 0

    def landed(batch: Sequence[tuple[int, SendFacts]]) -> None:
        nonlocal under_way
        failed = [facts for _, facts in batch if facts.status_code != 200]
        if failed:
            raise SystemExit(f"the sink did not answer: {failed[0]}")
        under_way -= len(batch)
        launch()
        if not under_way:
            finished.set()

    def launch() -> None:
        nonlocal left, under_way
        number = min(in_flight - under_way, left)
        if number:
            left -= number
            under_way += number
            sender.submit([(0, request)] * number)

    sender: HttpSender[int] = HttpSender(
        policy=EgressPolicy(allow_private=True, require_https=False, allowed_ports=None),
        limits=SendLimits(ca_file=authority),
        clock=time.monotonic,
        deliver=landed,
    )
    await sender.start()
    began = _Instant()
    launch()
    await finished.wait()
    _report(requests, began)
    await sender.close(within=1.0)


async def queue(dsn: str, batch: int) -> None:
    """Claim and record until nothing is due."""
    claims = await Database.connect(dsn, name="relay-floor", size=1, commits=Commits.LAZY)
    records = await Database.connect(dsn, name="relay-floor", size=1)
    store = Queue(claims, records)
    done, closed, after, began = 0, 0, FIRST_LANE, _Instant()
    while True:
        claim = await store.claim_due(after=after, batch=batch, token=new_id(), lease_seconds=60)
        if not claim.deliveries and after == claim.resume_after == FIRST_LANE:
            break
        after = claim.resume_after
        if claim.deliveries:
            recorded = await store.record([delivered(each) for each in claim.deliveries])
            done += len(claim.deliveries)
            closed += len(recorded.closed)
    _report(done, began, closed)
    await claims.close()
    await records.close()


def delivered(claimed: ClaimedDelivery) -> AttemptRecord:
    """The record of an attempt that was acked at once."""
    return AttemptRecord(
        delivery_id=claimed.id,
        lease_token=claimed.lease_token,
        receipt_id=claimed.receipt_id,
        endpoint_id=claimed.endpoint_id,
        claimed_at=claimed.claimed_at,
        attempt=claimed.attempt,
        generation=claimed.generation,
        outcome_class=OutcomeClass.SUCCESS,
        move=DeliveryMove.ACK,
        delay_seconds=0.0,
        dead_reason=None,
        reason=None,
        status_code=200,
        error_class=None,
        snippet="ok",
        phases=Phases(0.1, 0.0, 0.1, 0.5, 0.6),
        display_url="http://127.0.0.1:9099/ok",
        lane=LaneNotice(answered=True),
    )


class _Instant:
    """The clocks at the beginning of the work: what a process took to start is not the work's."""

    def __init__(self) -> None:
        self.monotonic = time.monotonic()
        self.cpu = time.process_time()


def _report(done: int, began: _Instant, closed: int = 0) -> None:
    seconds, cpu_seconds = time.monotonic() - began.monotonic, time.process_time() - began.cpu
    json.dump({"done": done, "seconds": seconds, "cpu_seconds": cpu_seconds, "closed": closed}, sys.stdout)
    sys.stdout.write("\n")
    sys.stdout.flush()


def main() -> None:
    """The command line; see the module's description."""
    parser = argparse.ArgumentParser(prog="python -m relay.loadtest.floors", description="One process of a floor.")
    commands = parser.add_subparsers(dest="floor", required=True)
    bare = commands.add_parser("client", help="send from a list")
    bare.add_argument("--url", required=True)
    bare.add_argument("--requests", type=int, required=True)
    bare.add_argument("--in-flight", type=int, default=128)
    bare.add_argument("--payload-bytes", type=int, default=300)
    bare.add_argument("--authority", type=Path, help="PEM file of who vouches for the server; without: the system's")
    claims = commands.add_parser("queue", help="claim and record; the database is named by DATABASE_URL")
    claims.add_argument("--batch", type=int, default=300)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if options.floor == "client":
            runner.run(
                client(options.url, options.requests, options.in_flight, options.payload_bytes, options.authority)
            )
        else:
            runner.run(queue(os.environ["DATABASE_URL"], options.batch))


if __name__ == "__main__":
    main()
