"""The dispatcher's own small HTTP: `/metrics`, `/healthz` and `/readyz`.

Owns these routes. Invariant: none of them waits for the database, so they answer while everything else is stuck.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from relay.web.answers import JSON, Answer
from relay.web.exchange import Intake, send_answer
from relay.web.problems import ErrorCode, Problem
from relay.web.serving import BUG

logger = logging.getLogger(__name__)

Expose = Callable[[str], tuple[str, bytes]]
"""From an `Accept` header to a content type and the text of all metrics. It may take a while: it runs in a thread."""


Trouble = Callable[[], str | None]
"""Why deliveries do not come through the broker, None where they do."""


def dispatcher_http(expose: Expose, draining: Callable[[], bool], trouble: Trouble | None = None) -> ASGIApp:
    """The application. `/healthz` says 503 from the moment at which the dispatcher takes nothing new, `/readyz` also
    while it has to do without its broker. Without `trouble` there is no broker, and no word of one."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await _answer(scope, expose, draining, trouble)
        except Exception:
            logger.exception("request_met_bug")
            answer = BUG.answer()
        await send_answer(answer, Intake.of(scope, receive), send)

    return application


async def _answer(scope: Scope, expose: Expose, draining: Callable[[], bool], trouble: Trouble | None) -> Answer:
    if scope["path"] not in ("/metrics", "/healthz", "/readyz"):
        return Problem(ErrorCode.NOT_FOUND, "there are /metrics, /healthz and /readyz here").answer()
    if scope["method"] not in ("GET", "HEAD"):
        return Problem(ErrorCode.METHOD_NOT_ALLOWED, "GET it", headers=((b"allow", b"GET, HEAD"),)).answer()
    if scope["path"] == "/healthz":
        stopping = draining()
        body = json.dumps({"status": "draining" if stopping else "ok"}).encode()
        return Answer(503 if stopping else 200, JSON, body)
    if scope["path"] == "/readyz":
        return _readiness(draining(), trouble)
    accept = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
    media_type, text = await asyncio.to_thread(expose, accept)
    return Answer(200, media_type.encode(), text)


def _readiness(stopping: bool, trouble: Trouble | None) -> Answer:
    checks = {"dispatcher": "draining" if stopping else "ok"}
    if trouble is not None:
        told = trouble()
        checks["broker"] = "ok" if told is None else f"deliveries are polled for: {told}"
    ready = all(outcome == "ok" for outcome in checks.values())
    return Answer(200 if ready else 503, JSON, json.dumps({"ready": ready, "checks": checks}).encode())
