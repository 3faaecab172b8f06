"""Whether this process lives and can work, and its numbers.

Owns the three calls; what readiness depends on is worked out in `readiness`. Needs no credential. Invariant: each of
these calls answers soon, whatever the database does.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from relay.api.deps import Deps
from relay.api.documentation import operation_id
from relay.api.problem_documentation import problems_at_root
from relay.api.readiness import OK, Readiness
from relay.web.problems import ErrorCode

router = APIRouter(tags=["health"], generate_unique_id_function=operation_id)


_FOR = (
    "`intake`: say whether events are taken, whatever becomes of deliveries: `database` and `journal`, and whether this"
    " process stops. For whoever routes senders to this process."
)

_TEXT = {"type": "string"}


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class DurabilityShown(BaseModel):
    """How many copies, of how many that there are, a 202 waits for."""

    confirmed: int
    of: int


class ReadinessShown(BaseModel):
    """Whether events are taken and delivered: each check is `ok`, or the fault in words; and what a 202 waits for."""

    ready: bool
    checks: dict[str, str]
    durability: DurabilityShown


@router.get("/healthz")
async def healthz() -> Alive:
    """Say whether this process lives. Says nothing about what it depends on."""
    return Alive()


@router.get(
    "/readyz",
    responses={
        **problems_at_root(ErrorCode.BAD_FILTER),
        503: {"description": "Not ready; `checks` says why.", "model": ReadinessShown},
    },
)
async def readyz(
    request: Request,
    deps: Deps,
    response: Response,
    part: Annotated[Literal["intake"] | None, Query(alias="for", description=_FOR)] = None,
) -> ReadinessShown:
    """Say whether events are taken and delivered now. The answer is shared by all who ask within a second or a few."""
    readiness: Readiness = request.app.state.readiness
    checks = dict(await (readiness.checks() if part is None else readiness.checks_of_intake()))
    if deps.is_leaving():
        checks["gateway"] = "this process is stopping"
    ready = all(outcome == OK for outcome in checks.values())
    response.status_code = 200 if ready else 503
    confirmed, of = deps.barrier.durability
    return ReadinessShown(ready=ready, checks=checks, durability=DurabilityShown(confirmed=confirmed, of=of))


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "One line for each series, in the format that `Accept` asks for.",
            "content": {"text/plain": {"schema": _TEXT}, "application/openmetrics-text": {"schema": _TEXT}},
        }
    },
)
async def metrics(request: Request, deps: Deps) -> Response:
    """Show the numbers of this gateway and its sibling workers, for Prometheus."""
    # in a thread: writing them all out takes longer than an event may have to wait
    content_type, text = await asyncio.to_thread(deps.exposition, request.headers.get("accept", ""))
    return Response(text, headers={"content-type": content_type})
