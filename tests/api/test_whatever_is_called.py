"""Claims about every call with whatever schemathesis makes of its description: answered as described, never a 5xx."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from relay.api.receipts import LONGEST_WAIT_SECONDS
from relay.domain import ids
from relay.domain.delivery import DeadReason, DeliveryMove
from relay.domain.outcome import OutcomeClass
from relay.store.health import DISPATCHER
from tests.api.description import DOCUMENT
from tests.api.world import ENDPOINTS, World, new_id
from tests.support.administration import bearer
from tests.support.asgi import served

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
]
"""What each answer is held against."""

CHECKS_OF_READINESS = [check for check in CHECKS if check is not not_a_server_error]
"""Nobody delivers here: after a minute the queue is late, and says so."""

schema = schemathesis.openapi.from_dict(DOCUMENT)


@dataclass
class Known:
    """Where the API listens, and ids of what is there."""

    base_url: str
    headers: dict[str, str]
    ids: dict[str, Sequence[str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def known(shared_dsn: str) -> Iterator[Known]:
    """The API on a real socket, in a thread of its own: schemathesis waits for answers where it runs."""
    known: Future[Known] = Future()
    stop: Future[None] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(shared_dsn, known, stop)))
    thread.start()
    try:
        yield known.result(60)
    finally:
        stop.set_result(None)
        thread.join()


async def _serve(dsn: str, known: Future[Known], stop: Future[None]) -> None:
    try:
        async with World.over(dsn) as world, served(world.app) as (host, port):
            # the first key ends anonymous access
            world.shown.append(bearer((await world.credentials.key("operator")).secret))
            known.set_result(Known(f"http://{host}:{port}", dict(world.shown), await _furnish(world)))
            stopped = asyncio.wrap_future(stop)
            while not stopped.done():
                await world.health.beat(new_id(), DISPATCHER)
                await asyncio.wait({stopped}, timeout=5.0)
    except Exception as fault:
        if known.done():
            raise
        known.set_exception(fault)


async def _furnish(world: World) -> dict[str, Sequence[str]]:
    """Endpoints, and an event in every state that one can be in."""
    unrouted = await world.post_event("nobody.wants")
    endpoints = [await world.create(name=f"consumer-{number}") for number in range(20)]
    for endpoint in endpoints[1:]:
        await world.send("PATCH", f"{ENDPOINTS}/{endpoint['id']}", {"event_types": ["never.posted"]})
    acked, retried, dead = [await _attempted(world, *attempt) for attempt in _ATTEMPTS]
    pending = await world.post_event()
    accepted = [unrouted, acked, retried, dead, pending]
    keys = [await world.credentials.key("read") for _ in range(10)]
    sources = [await world.credentials.source("bearer", "hmac") for _ in range(20)]
    return {
        "/v1/keys": [ids.write(ids.KEY, key.id) for key in keys],
        "/v1/sources": [ids.write(ids.SOURCE, source.id) for source in sources],
        "/v1/tenants": [await world.credentials.tenant(f"acct_{n}") for n in range(10)],
        "/v1/endpoints": [endpoint["id"] for endpoint in endpoints],
        "/v1/receipts": [event["receipt_id"] for event in accepted],
        "/v1/deliveries": [owed["id"] for event in accepted for owed in event["deliveries"]],
    }


_ATTEMPTS = [
    (DeliveryMove.ACK, OutcomeClass.SUCCESS, None, 0.0),
    (DeliveryMove.RETRY, OutcomeClass.RETRYABLE, None, 600.0),
    (DeliveryMove.BURY, OutcomeClass.PERMANENT, DeadReason.PERMANENT_FAILURE, 0.0),
]


async def _attempted(
    world: World, move: DeliveryMove, outcome_class: OutcomeClass, dead_reason: DeadReason | None, delay: float
) -> Any:
    accepted = await world.post_event()
    await world.attempt(move, outcome_class, dead_reason=dead_reason, delay_seconds=delay)
    return accepted


@schema.parametrize()
@settings(max_examples=20, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_call_is_answered_as_described(case: Case[Any], known: Known) -> None:
    _make_real(case, known)
    _make_short(case)
    checks = CHECKS if case.path != "/readyz" else CHECKS_OF_READINESS
    case.call_and_validate(base_url=known.base_url, checks=checks, headers=_credential(case, known))


def _credential(case: Case[Any], known: Known) -> dict[str, str]:
    """Most callers bring a good one."""
    chance = zlib.crc32(repr((case.query, case.body, case.path_parameters)).encode())
    return known.headers if chance % 10 else {"Authorization": "Bearer nobody's"}


_TO_REMOVE = 5


def _make_real(case: Case[Any], known: Known) -> None:
    """Two of three ids that are made up are put right, else every call of that path would find nothing."""
    there = next((ids for prefix, ids in known.ids.items() if case.path.startswith(prefix)), None)
    if there and case.path_parameters:
        # what is removed is nothing for the other calls
        there = there[-_TO_REMOVE:] if case.method == "DELETE" else there[:-_TO_REMOVE] or there
        chance = zlib.crc32(repr(case.path_parameters).encode())
        if chance % 3:
            case.path_parameters["id"] = there[chance % len(there)]


def _make_short(case: Case[Any]) -> None:
    """Nobody waits for what does not come; what is no time to wait stays what it is."""
    if not case.path.endswith("/wait"):
        return
    query = dict(case.query or {})
    try:
        seconds = float(query.get("timeout", LONGEST_WAIT_SECONDS))
    except (TypeError, ValueError):
        return
    if 0 <= seconds <= LONGEST_WAIT_SECONDS:
        case.query = {**query, "timeout": seconds / 10_000}
