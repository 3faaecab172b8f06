"""What the API works with, handed in by the composition root, and how a route gets at it.

Owns the list. Invariant: no route reaches for anything that is not in it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request

from relay.domain import ids
from relay.domain.ambient import Ambient
from relay.domain.audit import Author
from relay.domain.backoff import RetryPolicy
from relay.domain.egress import EgressPolicy
from relay.domain.telemetry import Listener
from relay.store.acks import Acks
from relay.store.audit import Audit
from relay.store.barrier import Barrier
from relay.store.dead_letters import DeadLetters
from relay.store.endpoints import Destinations, Endpoints
from relay.store.health import Health
from relay.store.history import History
from relay.store.issuer import Issuer
from relay.store.queue import Queue
from relay.store.receipts import Receipts
from relay.store.redrive import Redrives
from relay.store.schemas import Schemas
from relay.transports.chat import Platforms
from relay.web.answers import Answer
from relay.web.credentials import Caller
from relay.web.judging import Judge
from relay.web.once import Once
from relay.web.proving import Prover


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    """What the installation's settings bound of an endpoint.

    `in_flight` is the default and `most_in_flight` the maximum of `max_in_flight`; `most_timeout_seconds` leaves a
    lease the time to record what came of an attempt. `retry` is the rule over which an endpoint's own is laid.
    """

    in_flight: int
    most_in_flight: int
    most_timeout_seconds: float
    retry: RetryPolicy


@dataclass(frozen=True, slots=True)
class ApiDeps:
    """Everything that the routes use.

    `wake` has the dispatchers told that something is due. `send_test` makes a test event of a caller for an endpoint,
    by its id and its name, and answers as the ingest does; it raises `Refused`. `exposition` answers the content type
    and the text of the metrics for an `Accept` header; `is_leaving` says whether this process is to stop, and
    `is_draining` whether it takes no more work.
    """

    endpoints: Endpoints
    destinations: Destinations
    receipts: Receipts
    history: History
    dead_letters: DeadLetters
    redrives: Redrives
    acks: Acks
    audit: Audit
    queue: Queue
    schemas: Schemas
    judge: Judge
    issuer: Issuer
    prover: Prover
    once: Once
    health: Health
    intake: Health
    barrier: Barrier
    ambient: Ambient
    emit: Listener
    egress: EgressPolicy
    platforms: Platforms
    limits: EndpointLimits
    secret_overlap_seconds: float
    max_body_bytes: int
    ready_late_seconds: float
    wake: Callable[[], None]
    send_test: Callable[[Caller, UUID, str], Awaitable[Answer]]
    exposition: Callable[[str], tuple[str, bytes]]
    is_leaving: Callable[[], bool]
    is_draining: Callable[[], bool]
    version: str

    @property
    def confirmed_by_commit(self) -> bool:
        """Whether an event is confirmed as soon as it is committed."""
        return not self.barrier.standbys_needed


def _deps(request: Request) -> ApiDeps:
    deps: ApiDeps = request.app.state.deps
    return deps


CALLER = "relay.caller"
"""Under which the caller stands in a request's scope."""


def _caller(request: Request) -> Caller:
    caller: Caller = request.scope[CALLER]
    return caller


def _tenant(caller: Annotated[Caller, Depends(_caller)]) -> str:
    return caller.tenant


Deps = Annotated[ApiDeps, Depends(_deps)]
"""What a route works with."""

Calling = Annotated[Caller, Depends(_caller)]
"""Who made the request."""

Tenant = Annotated[str, Depends(_tenant)]
"""Whose data a request is about."""


def new_id(deps: ApiDeps) -> UUID:
    """A fresh id of now."""
    now = deps.ambient.now()
    return ids.uuid7(int(now.timestamp() * 1000), deps.ambient.entropy(ids.ENTROPY_BYTES))


def _author(deps: Deps, caller: Calling) -> Author:
    return Author(caller.actor, caller.actors_tenant, new_id(deps))


By = Annotated[Author, Depends(_author)]
"""As whose the request's change is entered into the audit."""
