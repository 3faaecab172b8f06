"""The API as one application: its routes, and what stands around them.

Owns the wiring and the translation of the framework's errors. Invariant: no answer of the framework's own reaches a
client, neither its error bodies nor its redirects.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from relay.api import (
    acks,
    audit,
    dead_letters,
    documentation,
    endpoints,
    health,
    keys,
    page,
    receipts,
    redrives,
    schemas,
    sources,
    tenants,
)
from relay.api.acking import Acking
from relay.api.callers import UNAVAILABLE, Callers
from relay.api.confirmed import Confirmed
from relay.api.deps import ApiDeps
from relay.api.json_route import plain
from relay.api.readiness import Readiness
from relay.api.waiting import Waiting
from relay.store.faults import NoSuchTenant, StoreUnavailable
from relay.web.credentials import ELSEWHERE
from relay.web.exchange import BodyReader
from relay.web.problems import ErrorCode, FieldFault, Problem, invalid, pointer, refuse
from relay.web.serving import Guard

ROOMS = (endpoints, receipts, acks, dead_letters, redrives, schemas, sources, keys, tenants, audit, health, page)
"""What has the routes, in the order of the description."""

logger = logging.getLogger(__name__)

_DESCRIPTION = """Relay takes events, makes them durable, and delivers each to every endpoint that subscribed to its
type, with a receipt that tells what became of it."""


def create_api(deps: ApiDeps) -> FastAPI:
    """The application. It serves every path but those of the ingest, whose routes it describes."""
    app = _routed(deps.version)
    app.state.deps = deps
    app.state.readiness = Readiness(
        health=deps.health,
        intake=deps.intake,
        barrier=deps.barrier,
        ambient=deps.ambient,
        late_seconds=deps.ready_late_seconds,
    )
    app.state.waiting = Waiting(receipts=deps.receipts, ambient=deps.ambient, is_draining=deps.is_draining)
    app.state.acking = Acking(acks=deps.acks, ambient=deps.ambient, emit=deps.emit)
    app.state.bodies = BodyReader(deps.max_body_bytes)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _framework_error)
    app.add_exception_handler(StoreUnavailable, _unavailable)
    app.add_exception_handler(NoSuchTenant, _no_such_tenant)
    app.add_middleware(Confirmed, barrier=deps.barrier)
    app.add_middleware(Callers, prover=deps.prover, once=deps.once, bodies=app.state.bodies, emit=deps.emit)
    app.add_middleware(Guard)
    # made now: it takes a tenth of a second, and the first call that looks something up in it would stand on the loop
    document = description(deps.version)
    app.openapi = lambda: document  # type: ignore[method-assign] # the documented way to extend it
    return app


@cache
def description(version: str) -> dict[str, Any]:
    """What `/openapi.json` of that version says. Made once, and to be read only."""
    return documentation.describe(_routed(version))


def _routed(version: str) -> FastAPI:
    app = FastAPI(
        title="Relay",
        version=version,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # what it would tell of requests by itself passes by our redaction
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    for room in ROOMS:
        # not included as routers: those would answer a wrong method without naming all the right ones
        app.router.routes.extend(room.router.routes)
    return app


def _answer(problem: Problem) -> Response:
    answer = problem.answer()
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    return Response(answer.body, answer.status, headers, answer.media_type.decode())


async def _unavailable(_: Request, error: Exception) -> Response:
    logger.warning("call_failed", extra={"fields": {"detail": str(error)}})
    return _answer(UNAVAILABLE)


async def _no_such_tenant(_: Request, __: Exception) -> Response:
    """The tenant that an operator named was removed since that was looked at."""
    return _answer(ELSEWHERE)


async def _invalid(_: Request, error: Exception) -> Response:
    """What the framework's validation found: in the query a bad filter, in the body what is invalid there."""
    if not isinstance(error, RequestValidationError):
        raise error
    found = error.errors()
    of_query = [each for each in found if each["loc"][0] == "query"]
    if of_query:
        detail = "; ".join(f"{each['loc'][1]}: {plain(each)}" for each in of_query)
        return _answer(refuse(ErrorCode.BAD_FILTER, detail).problem)
    return _answer(invalid(FieldFault(pointer(*each["loc"][1:]), plain(each)) for each in found).problem)


async def _framework_error(request: Request, error: Exception) -> Response:
    """What the framework's routing refuses."""
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 404:
        return _answer(Problem(ErrorCode.NOT_FOUND, "there is no such path"))
    if error.status_code == 405:
        allowed = ", ".join(_methods(request))
        return _answer(
            Problem(ErrorCode.METHOD_NOT_ALLOWED, f"allowed here: {allowed}", headers=((b"allow", allowed.encode()),))
        )
    return _answer(Problem(ErrorCode.MALFORMED, "the request cannot be read"))


def _methods(request: Request) -> Sequence[str]:
    """Every method for which the request's path has a route."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    return sorted({m for r in routes if r.matches(request.scope)[0] is not Match.NONE for m in r.methods or ()})
