"""The dispatcher worker: its pools, its sender, its listeners, put together and run.

Owns the wiring of one process and how its database connections are shared out. Invariant: the metrics are served until
the last outcome is written.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from starlette.types import ASGIApp

from relay import __version__, broker
from relay.app.ambience import ambient
from relay.app.brokerage import broker_address
from relay.app.connections import check_connections, of_dispatchers
from relay.app.egress import platforms_of, policy_of, tell_of_bug
from relay.app.exposition import dispatcher_http
from relay.app.faults import CannotRun
from relay.app.installation import Installation, check_quorum, check_ready, find
from relay.app.key_notes import tell_of_keys
from relay.app.listening import address_of
from relay.app.numbers import numbers_of
from relay.app.roles import Role
from relay.app.serving import serve
from relay.app.watching import emit_to, spans_of, watched
from relay.app.windows import windows_of
from relay.app.work import Work
from relay.app.worker import main
from relay.dispatcher import ClaimTuning, Directory, Dispatcher, Fleet, Flight, Stores, Tuning
from relay.dispatcher.dispatcher import Deliver
from relay.domain import ids
from relay.domain.ambient import Ambient
from relay.domain.broadcast import Broadcast
from relay.domain.telemetry import Process
from relay.sender import HttpSender, NoAuthorities, SendLimits
from relay.settings import Settings
from relay.settings.reading import LEASE_MARGIN_SECS
from relay.store.acks import Acks
from relay.store.announcing import Announcing
from relay.store.database import Commits, Database
from relay.store.endpoints import Destinations
from relay.store.health import Health, Promises
from relay.store.queue import Gates, Queue
from relay.store.quorum import examine
from relay.store.retention import Retention
from relay.store.wakeups import WakeupListener
from relay.transports.prepared import prepare

NAME = "relay dispatcher"

logger = logging.getLogger("relay")

PROOF_SECONDS = 0.25
"""How long a claimed batch waits for its proof at most: what is behind it waits, too, whatever senders may wait."""

WORKING_SECONDS = 10.0
"""How long one claim, one batch of outcomes, one heartbeat may take, many times what it does: a way to the database
that has died without a word keeps deliveries waiting for so long and no longer."""

_LISTENING, _CLAIMING, _HOUSEKEEPING, _RETAINING, _ANNOUNCING = 1, 1, 2, 1, 1
"""Connections for wake-ups, for the claimer, for housekeeping, of which the holder of the reporting lock keeps one,
for what is no longer kept, and, in a fleet, for announcing.
What is left of `RELAY_DATABASE_POOL` writes outcomes and reads endpoints."""

RETAINING_SECONDS = 900.0
"""How long one step of the retention may take: a look at every event of a day, of which there may be many millions."""


@dataclass(frozen=True, slots=True)
class _Pools:
    claims: Database
    records: Database
    housekeeping: Database
    retaining: Database
    announcing: Database | None


async def run_dispatcher(work: Work) -> None:
    """Dispatch until told to stop. Raises `CannotRun` if the database or its keys are not as needed."""
    installation = find(work.settings)
    world = ambient()
    async with _pools(installation, work.settings) as pools:
        await check_ready(pools.records, installation.vault())
        await check_quorum(partial(examine, pools.records, work.settings.journal_quorum))
        await check_connections(pools.records, of_dispatchers(work.settings), work.settings)
        await tell_of_keys(pools.records, installation.vault())
        await _settle(pools, installation, work.settings)
        with numbers_of(Process.DISPATCHER, work) as metrics:
            spans = spans_of(Process.DISPATCHER, work.settings.otlp_endpoint)
            emit = emit_to(metrics, work.lines, spans)
            dispatcher = _dispatcher(installation, work, pools, world, emit)
            try:
                async with watched(work.lines, spans, emit):
                    trouble = None if work.settings.broker_url is None else dispatcher.trouble
                    http = dispatcher_http(metrics.exposition, work.stop.is_set, trouble)
                    await _run(dispatcher, http, work)
            except ExceptionGroup as trouble:
                if trouble.subgroup(NoAuthorities) is None:
                    raise
                raise CannotRun(
                    "there is no file of certificate authorities, so no endpoint could be trusted:"
                    " install the system's (package ca-certificates)"
                ) from trouble


async def _settle(pools: _Pools, installation: Installation, settings: Settings) -> None:
    """What these settings mean for what is on record: breakers that are no more, timeouts that are too long by now."""
    await Queue(pools.claims, pools.records, gates_of(settings)).close_breakers()
    cut = await _destinations(pools, installation, settings).beyond_timeout()
    if cut:
        detail = (
            f"their timeout_seconds is more than RELAY_LEASE_SECS leaves, and counts as {_most_timeout(settings):g};"
            " give them less or raise RELAY_LEASE_SECS"
        )
        logger.warning("timeouts_cut", extra={"fields": {"endpoints": cut, "detail": detail}})


def _destinations(pools: _Pools, installation: Installation, settings: Settings) -> Destinations:
    return Destinations(
        pools.records,
        installation.vault(),
        default_retry=settings.retry,
        most_timeout_seconds=_most_timeout(settings),
    )


def _most_timeout(settings: Settings) -> float:
    return settings.lease_secs - LEASE_MARGIN_SECS


async def _run(dispatcher: Dispatcher, http: ASGIApp, work: Work) -> None:
    """Dispatch until told to stop, and serve the metrics until that has come to its end."""
    closing = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(http, work.listener, stop=closing, ready=work.ready, drain_seconds=1.0))
        await dispatcher.run(work.stop)
        closing.set()


def _dispatcher(installation: Installation, work: Work, pools: _Pools, world: Ambient, emit: Broadcast) -> Dispatcher:
    settings = work.settings
    destinations = _destinations(pools, installation, settings)
    ready = partial(
        prepare,
        user_agent=f"Relay/{__version__}",
        timeout_seconds=settings.total_timeout_secs,
        platforms=platforms_of(settings),
        traces=settings.otlp_endpoint is not None,
    )
    process = ids.uuid7(int(world.now().timestamp() * 1000), world.entropy(ids.ENTROPY_BYTES))
    return Dispatcher(
        process=process,
        stores=Stores(
            queue=Queue(pools.claims, pools.records, gates_of(settings)),
            acks=Acks(pools.housekeeping),
            health=Health(pools.housekeeping),
            retention=Retention(pools.retaining),
            wakeups=WakeupListener(installation.dsn.expose(), name=f"{NAME} wake-ups"),
            fleet=_fleet(settings, pools, str(process), emit),
        ),
        directory=Directory(destinations, ready),
        make_sender=partial(_sender, settings, world),
        tuning=tuning_of(settings, drain_seconds=work.drain_seconds),
        ambient=world,
        emit=emit,
        address=str(address_of(work.listener)),
    )


def _fleet(settings: Settings, pools: _Pools, consumer: str, emit: Broadcast) -> Fleet | None:
    address = broker_address(settings)
    if address is None or pools.announcing is None:
        return None
    return Fleet(
        broker.RedisStreams(address, consumer=consumer, emit=emit), Announcing(pools.announcing, gates_of(settings))
    )


def tuning_of(settings: Settings, *, drain_seconds: float) -> Tuning:
    """The dispatcher's numbers, by these settings."""
    return Tuning(
        claim=ClaimTuning(
            batch=settings.claim_batch, lease_seconds=settings.lease_secs, poll_seconds=settings.poll_secs
        ),
        concurrency=settings.global_concurrency,
        max_payload_bytes=settings.max_payload_bytes,
        heartbeat_seconds=settings.heartbeat_secs,
        drain_seconds=drain_seconds,
        promises=Promises(settings.retry.window_seconds, settings.receipt_deadline_secs),
        windows=windows_of(settings),
        quorum=settings.journal_quorum,
        quorum_seconds=min(settings.journal_timeout_ms / 1000, PROOF_SECONDS),
        sweep_seconds=settings.broker_sweep_secs,
    )


def gates_of(settings: Settings) -> Gates:
    """What closes the lanes of endpoints, by these settings."""
    return Gates(breaker=settings.breaker_policy, timeout_seconds=settings.total_timeout_secs)


def send_limits_of(settings: Settings) -> SendLimits:
    """The bounds of sending, by these settings.

    How many requests a host gets is bounded endpoint by endpoint, before they are launched. One host may have many
    endpoints: a second bound here would let launched requests wait for each other, on their own time.
    """
    return SendLimits(
        connect_seconds=settings.connect_timeout_secs,
        silence_seconds=settings.read_timeout_secs,
        response_cap_bytes=settings.response_cap_bytes,
        connections=settings.global_concurrency,
        connections_per_host=settings.global_concurrency,
    )


def _sender(settings: Settings, world: Ambient, deliver: Deliver) -> HttpSender[Flight]:
    return HttpSender(
        policy=policy_of(settings),
        limits=send_limits_of(settings),
        clock=world.monotonic,
        deliver=deliver,
        on_fault=tell_of_bug,
    )


@asynccontextmanager
async def _pools(installation: Installation, settings: Settings) -> AsyncIterator[_Pools]:
    """The pools of one process, `RELAY_DATABASE_POOL` connections together."""
    left = settings.database_pool - _LISTENING - _CLAIMING - _HOUSEKEEPING - _RETAINING
    if settings.broker_url is not None:
        left -= _ANNOUNCING
    async with (
        AsyncExitStack() as stack,
        installation.database(f"{NAME} claims", _CLAIMING, commits=Commits.LAZY, within=WORKING_SECONDS) as claims,
        installation.database(f"{NAME} records", left, within=WORKING_SECONDS) as records,
        installation.database(f"{NAME} housekeeping", _HOUSEKEEPING, within=WORKING_SECONDS) as housekeeping,
        installation.database(f"{NAME} retention", _RETAINING, within=RETAINING_SECONDS) as retaining,
    ):
        announcing = None
        if settings.broker_url is not None:
            announcing = await stack.enter_async_context(
                installation.database(f"{NAME} announcing", _ANNOUNCING, within=WORKING_SECONDS)
            )
        yield _Pools(claims, records, housekeeping, retaining, announcing)


if __name__ == "__main__":
    sys.exit(main(Role.DISPATCHER, run_dispatcher))
