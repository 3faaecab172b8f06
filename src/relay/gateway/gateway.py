"""The gateway of one process: its parts put together, its start and its end.

Owns the wiring and the drain. Invariant: when `drain` has returned, nothing of this gateway runs any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import ASGIApp

from relay.domain.ambient import Ambient
from relay.domain.telemetry import Listener
from relay.gateway import batch, ingest
from relay.gateway.appender import MOST_WAITING, Appender
from relay.gateway.batch import Batch
from relay.gateway.ingest import Ingest
from relay.gateway.routes import Snapshots
from relay.gateway.schemas import Checks
from relay.gateway.senders import Senders
from relay.gateway.trial import Trial
from relay.gateway.wakeups import Wakeups
from relay.store.barrier import Barrier
from relay.store.endpoints import Endpoints
from relay.store.journal import Journal
from relay.store.schemas import Schemas
from relay.store.wakeups import WakeupSender
from relay.web.credentials import Register
from relay.web.judging import Judge


@dataclass(frozen=True, slots=True)
class IngestLimits:
    """What one request may have, in bytes: an event's payload and a whole batch. So many events may wait for their
    append before more are turned away. With `traces` each request has spans, and its events carry them on.
    """

    payload_bytes: int
    batch_bytes: int
    waiting: int = MOST_WAITING
    traces: bool = False


@dataclass(frozen=True, slots=True)
class Rulebook:
    """Where the rules are read from that events are taken and routed by.

    `endpoints` and the `catalogue` of schemas are read for the append, by its connections; what is read of `schemas`
    for single events must not make it wait. `judge` looks at payloads.
    """

    endpoints: Endpoints
    catalogue: Schemas
    schemas: Schemas
    judge: Judge


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway at work: `routes` maps paths to the applications that serve them, `trial` sends test events."""

    routes: dict[str, ASGIApp]
    trial: Trial
    snapshots: Snapshots
    register: Register
    appender: Appender
    wakeups: Wakeups
    ambient: Ambient

    async def start(self) -> None:
        """Load the routing rules and the credentials, so that the first event need not wait for them.

        Raises `StoreUnavailable`.
        """
        await self.snapshots.current()
        await self.register.known()

    async def drain(self, within: float) -> int:
        """Refuse new events and finish those taken in, wake-ups included, for `within` seconds in all.

        Answers how many events had to be given up.
        """
        ends = self.ambient.monotonic() + within
        abandoned = await self.appender.drain(within)
        await self.wakeups.finish(max(0.0, ends - self.ambient.monotonic()))
        return abandoned


def create_gateway(
    *,
    journal: Journal,
    rulebook: Rulebook,
    senders: Senders,
    wakeups: WakeupSender,
    ambient: Ambient,
    emit: Listener,
    barrier: Barrier,
    limits: IngestLimits,
) -> Gateway:
    """Wire a gateway.

    `wakeups` wants a pool of its own or one with room beside the one append in flight. Whoever runs the gateway runs
    the `barrier`, for longer, and the rulebook's judge.
    """
    snapshots = Snapshots(rulebook.endpoints, rulebook.catalogue)
    checks = Checks(snapshots=snapshots, schemas=rulebook.schemas, judge=rulebook.judge, ambient=ambient)
    waker = Wakeups(wakeups, ambient)
    appender = Appender(
        journal=journal,
        register=senders.register,
        checks=checks,
        wakeups=waker,
        ambient=ambient,
        emit=emit,
        barrier=barrier,
        most_waiting=limits.waiting,
    )
    single = Ingest(
        appender=appender,
        senders=senders,
        checks=checks,
        ambient=ambient,
        emit=emit,
        max_body_bytes=limits.payload_bytes,
        traces=limits.traces,
    )
    several = Batch(
        appender=appender,
        senders=senders,
        checks=checks,
        ambient=ambient,
        emit=emit,
        max_body_bytes=limits.batch_bytes,
        max_payload_bytes=limits.payload_bytes,
        traces=limits.traces,
    )
    trial = Trial(appender=appender, ambient=ambient)
    return Gateway(
        {ingest.PATH: single, batch.PATH: several}, trial, snapshots, senders.register, appender, waker, ambient
    )
