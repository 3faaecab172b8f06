"""Whether this process lives and can work, and its numbers.

Owns the three calls; what readiness depends on is worked out in `readiness`. Needs no credential. Invariant: each of
these calls answers soon, whatever the database does.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Request, Response
from pydantic import BaseModel

from relay.api.deps import Deps
from relay.api.readiness import OK, Readiness

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class ReadinessShown(BaseModel):
    """Whether events are taken and delivered: each check is `ok`, or the fault in words."""

    ready: bool
    checks: dict[str, str]


@router.get("/healthz")
async def healthz() -> Alive:
    """Whether this process lives. Says nothing about what it depends on."""
    return Alive()


@router.get("/readyz", responses={503: {"description": "Not ready; `checks` says why.", "model": ReadinessShown}})
async def readyz(request: Request, deps: Deps, response: Response) -> ReadinessShown:
    """Whether events are taken and delivered now. The answer is shared by all who ask within a second or a few."""
    readiness: Readiness = request.app.state.readiness
    checks = dict(await readiness.checks())
    if deps.is_draining():
        checks["gateway"] = "this process is stopping"
    ready = all(outcome == OK for outcome in checks.values())
    response.status_code = 200 if ready else 503
    return ReadinessShown(ready=ready, checks=checks)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(deps: Deps, accept: Annotated[str, Header()] = "") -> Response:
    """The numbers of this gateway and its sibling workers, for Prometheus."""
    content_type, text = deps.exposition(accept)
    return Response(text, headers={"content-type": content_type})
