"""Whether this process lives and can work, and its numbers.

Owns the checks of readiness and their bound in time. Needs no credential. Invariant: each of these calls answers soon,
whatever the database does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Response
from pydantic import BaseModel

from relay.api.deps import ApiDeps, Deps
from relay.store.faults import StoreUnavailable
from relay.store.health import DISPATCHER

router = APIRouter(tags=["health"])

CHECK_SECONDS = 2.0
"""How long one check may take before that itself is the fault."""

DISPATCHER_SECONDS = 30.0
"""How long ago a dispatcher may have reported."""

OK = "ok"


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """Whether events are taken and delivered: each check is `ok`, or the fault in words."""

    ready: bool
    checks: dict[str, str]


@router.get("/healthz")
async def healthz() -> Alive:
    """Whether this process lives. Says nothing about what it depends on."""
    return Alive()


@router.get("/readyz", responses={503: {"description": "Not ready; `checks` says why.", "model": Readiness}})
async def readyz(deps: Deps, response: Response) -> Readiness:
    """Whether events are taken and delivered now."""
    database = await _checked(_database(deps))
    # a quorum of one: the journal is there when its database is
    checks = {"database": database, "journal": database, "dispatcher": await _checked(_dispatcher(deps))}
    if deps.is_draining():
        checks["gateway"] = "this process is stopping"
    ready = all(outcome == OK for outcome in checks.values())
    response.status_code = 200 if ready else 503
    return Readiness(ready=ready, checks=checks)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(deps: Deps, accept: Annotated[str, Header()] = "") -> Response:
    """The numbers of this gateway and its sibling workers, for Prometheus."""
    content_type, text = deps.exposition(accept)
    return Response(text, headers={"content-type": content_type})


async def _checked(check: Awaitable[str]) -> str:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await check
    except TimeoutError:
        return f"the database did not answer within {CHECK_SECONDS:g} s"
    except StoreUnavailable:
        return "the database does not answer"


async def _database(deps: ApiDeps) -> str:
    await deps.health.answers()
    return OK


async def _dispatcher(deps: ApiDeps) -> str:
    ago = await deps.health.seconds_since(DISPATCHER)
    if ago is None:
        return "no dispatcher has ever reported; start one with `relay dispatcher`"
    if ago > DISPATCHER_SECONDS:
        return f"no dispatcher has reported for {ago:.0f} s"
    return OK
