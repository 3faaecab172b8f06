"""The gateway worker: ingest and API behind one socket.

Owns the wiring of one process and the order of its drain: readiness says no, after the delay that is set the socket
closes, requests under way are answered, what was taken in is appended. Invariant: an event that was answered 202 is
durable, and no request that was taken in is dropped before the bound.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp

from relay import __version__
from relay.api import ApiDeps, EndpointLimits, create_api
from relay.app.ambience import ambient
from relay.app.clocks import comparing
from relay.app.connections import GATEWAY_OWN, check_connections, of_gateways
from relay.app.egress import platforms_of, policy_of
from relay.app.installation import (
    Installation,
    away,
    check_pooler,
    check_quorum,
    check_reach,
    check_ready,
    find,
    unused_standbys,
)
from relay.app.key_notes import tell_of_keys
from relay.app.listening import address_of
from relay.app.numbers import numbers_of
from relay.app.peers import Peers
from relay.app.roles import LAST_APPENDS_SECONDS, Role
from relay.app.serving import serve
from relay.app.tls import tls_of
from relay.app.watching import emit_to, spans_of, watched
from relay.app.work import Work
from relay.app.worker import main
from relay.domain.ambient import Ambient
from relay.domain.telemetry import Listener, Process, ProcessDraining, ProcessStarted, ProcessStopped
from relay.gateway import APPEND_SECONDS, Gateway, IngestLimits, Rulebook, Senders, create_gateway
from relay.metrics import Metrics
from relay.settings import Settings
from relay.settings.reading import LEASE_MARGIN_SECS
from relay.store.acks import Acks
from relay.store.audit import Audit
from relay.store.barrier import NAME as BARRIER
from relay.store.barrier import Barrier
from relay.store.credentials import CredentialReader
from relay.store.database import Commits, Database
from relay.store.dead_letters import DeadLetters
from relay.store.endpoints import Destinations, Endpoints
from relay.store.faults import StoreUnavailable
from relay.store.health import Health
from relay.store.history import History
from relay.store.issuer import Issuer
from relay.store.journal import Journal
from relay.store.queue import Queue
from relay.store.quorum import examine
from relay.store.receipts import Receipts
from relay.store.redrive import Redrives
from relay.store.schemas import Schemas
from relay.store.signed_requests import SignedRequests
from relay.store.vault import Vault
from relay.store.wakeups import WakeupSender
from relay.web.credentials import Register
from relay.web.judging import Judge, judging
from relay.web.once import Once
from relay.web.proving import Prover
from relay.web.serving import by_path

NAME = "relay gateway"

logger = logging.getLogger("relay")

_APPENDING, _WAKING, _CHECKING = 2, 1, 1
_BARRIER = GATEWAY_OWN - _APPENDING - _WAKING - _CHECKING
"""Connections for the append in flight and the reading of the rules, for wake-ups, for readiness, and for the barrier
where a quorum is asked for, which hangs for as long as there is none. What is left of `RELAY_DATABASE_POOL` is the
API's, so that no reader of receipts can make an event wait or this process look ill; a pooler may stand before it."""

API_SECONDS = 8.0
"""How long a call to the API may work with the database before its caller is told that this does not answer."""

API_BODY_BYTES = 1024 * 1024
"""The largest body of a call to the API; an endpoint with everything that it may have is a tenth of that."""


@dataclass(frozen=True, slots=True)
class _Pools:
    appends: Database
    wakeups: Database
    checks: Database
    barrier: Database
    api: Database


@dataclass(frozen=True, slots=True)
class _Parts:
    gateway: Gateway
    prover: Prover
    judge: Judge
    barrier: Barrier
    metrics: Metrics
    emit: Listener


async def run_gateway(work: Work) -> None:
    """Serve until told to stop. Raises `CannotRun` if the database or its keys are not as needed."""
    installation = find(work.settings)
    world = ambient()
    vault = installation.vault()
    async with _pools(installation, work.settings) as pools:
        await check_ready(pools.api, vault)
        await check_pooler(installation, pools.appends, pools.api)
        await check_reach(Issuer(pools.api, vault), address_of(work.listener))
        await check_connections(pools.api, of_gateways(work.settings), work.settings)
        await tell_of_keys(pools.api, vault)
        with numbers_of(Process.GATEWAY, work) as metrics:
            spans = spans_of(Process.GATEWAY, work.settings.otlp_endpoint)
            emit = emit_to(metrics, work.lines, spans)
            barrier = _barrier(work.settings, pools, world, emit)
            await check_quorum(barrier.check)
            await _tell_of_unused(pools, work.settings)
            clocks = comparing(Health(pools.checks), world, every_seconds=work.settings.heartbeat_secs, emit=emit)
            async with watched(work.lines, spans, emit), clocks, barrier.running(), judging() as judge:
                prover = _prover(work, pools, vault, world)
                rulebook = Rulebook(Endpoints(pools.appends, vault), Schemas(pools.appends), Schemas(pools.api), judge)
                gateway = _gateway(work.settings, pools, rulebook, prover, world, barrier, emit)
                parts = _Parts(gateway, prover, judge, barrier, metrics, emit)
                deps = _deps(work, pools, vault, parts)
                await _serve(work, gateway, create_api(deps), emit)


async def _serve(work: Work, gateway: Gateway, api: ASGIApp, emit: Listener) -> None:
    """Serve both applications until told to stop, then bring the gateway to its end."""
    tls = tls_of(work.settings)
    try:
        await gateway.start()
    except StoreUnavailable as fault:
        raise away(fault) from fault
    draining = asyncio.create_task(_tell_of_drain(work.stop, emit))
    try:
        emit(ProcessStarted(Process.GATEWAY, str(address_of(work.listener))))
        await serve(
            by_path(gateway.routes, api),
            work.listener,
            stop=work.stop,
            ready=work.ready,
            drain_seconds=work.drain_seconds,
            tls=tls,
            peers=Peers(work.settings.trusted_proxies),
        )
    finally:
        draining.cancel()
        emit(ProcessStopped(Process.GATEWAY, await gateway.drain(LAST_APPENDS_SECONDS)))


async def _tell_of_drain(stop: asyncio.Event, emit: Listener) -> None:
    await stop.wait()
    emit(ProcessDraining(Process.GATEWAY))


def _barrier(settings: Settings, pools: _Pools, world: Ambient, emit: Listener) -> Barrier:
    seconds = settings.journal_timeout_ms / 1000
    return Barrier(pools.barrier, quorum=settings.journal_quorum, seconds=seconds, ambient=world, emit=emit)


async def _tell_of_unused(pools: _Pools, settings: Settings) -> None:
    """Standbys that nobody waits for are worth a line: whoever runs some expects a 202 to mean more."""
    unused = unused_standbys(await examine(pools.checks, settings.journal_quorum), settings.journal_quorum)
    if unused is not None:
        logger.warning("standbys_not_waited_for", extra={"fields": {"detail": unused}})


def _prover(work: Work, pools: _Pools, vault: Vault, world: Ambient) -> Prover:
    """Without any credential everybody is anonymous, if only this machine can connect."""
    reader = CredentialReader(pools.appends, vault, monotonic=world.monotonic)
    register = Register(reader.read, monotonic=world.monotonic, is_private=address_of(work.listener).is_loopback)
    return Prover(register=register, signers=reader.signer, ambient=world)


def _gateway(
    settings: Settings,
    pools: _Pools,
    rulebook: Rulebook,
    prover: Prover,
    world: Ambient,
    barrier: Barrier,
    emit: Listener,
) -> Gateway:
    return create_gateway(
        journal=Journal(pools.appends, key_retention_seconds=settings.idempotency_retention_secs),
        rulebook=rulebook,
        senders=Senders(prover=prover, requests=SignedRequests(pools.wakeups)),
        wakeups=WakeupSender(pools.wakeups),
        ambient=world,
        emit=emit,
        barrier=barrier,
        limits=IngestLimits(
            settings.max_payload_bytes, settings.max_batch_bytes, traces=settings.otlp_endpoint is not None
        ),
    )


def _deps(work: Work, pools: _Pools, vault: Vault, parts: _Parts) -> ApiDeps:
    settings, gateway = work.settings, parts.gateway
    return ApiDeps(
        endpoints=Endpoints(pools.api, vault),
        destinations=Destinations(pools.api, vault, default_retry=settings.retry),
        receipts=Receipts(pools.api),
        history=History(pools.api),
        dead_letters=DeadLetters(pools.api),
        redrives=Redrives(
            pools.api,
            entropy=gateway.ambient.entropy,
            key_retention_seconds=settings.idempotency_retention_secs,
        ),
        acks=Acks(pools.api),
        audit=Audit(pools.api),
        queue=Queue(pools.api, pools.api),
        schemas=Schemas(pools.api),
        judge=parts.judge,
        issuer=Issuer(pools.api, vault),
        prover=parts.prover,
        once=Once(SignedRequests(pools.wakeups)),
        health=Health(pools.checks),
        intake=Health(pools.appends),
        barrier=parts.barrier,
        ambient=gateway.ambient,
        emit=parts.emit,
        egress=policy_of(settings),
        platforms=platforms_of(settings),
        limits=EndpointLimits(
            in_flight=settings.endpoint_concurrency,
            most_in_flight=settings.global_concurrency // 2,
            most_timeout_seconds=settings.lease_secs - LEASE_MARGIN_SECS,
            retry=settings.retry,
        ),
        secret_overlap_seconds=settings.secret_overlap_secs,
        max_body_bytes=API_BODY_BYTES,
        ready_late_seconds=settings.ready_late_secs,
        wake=gateway.wakeups.announce,
        send_test=gateway.trial.send,
        exposition=parts.metrics.exposition,
        is_leaving=work.leaving.is_set,
        is_draining=work.stop.is_set,
        version=__version__,
    )


@asynccontextmanager
async def _pools(installation: Installation, settings: Settings) -> AsyncIterator[_Pools]:
    """The pools of one process, `RELAY_DATABASE_POOL` connections together."""
    left = settings.database_pool - GATEWAY_OWN
    async with (
        installation.database(f"{NAME} appends", _APPENDING, within=APPEND_SECONDS) as appends,
        installation.database(f"{NAME} wake-ups", _WAKING, commits=Commits.LAZY, within=APPEND_SECONDS) as wakeups,
        installation.database(f"{NAME} checks", _CHECKING, within=API_SECONDS) as checks,
        installation.database(BARRIER, _BARRIER, commits=Commits.AS_SERVER_SAYS, within=APPEND_SECONDS) as barrier,
        installation.pooled(f"{NAME} api", left, within=API_SECONDS) as api,
    ):
        yield _Pools(appends, wakeups, checks, barrier, api)


if __name__ == "__main__":
    sys.exit(main(Role.GATEWAY, run_gateway))
