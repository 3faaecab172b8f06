"""Who calls, and whether it may: around every call of the API at once.

Owns which calls need no credential and which scope each other one needs. How a caller is found is `web`'s. Invariants:
a call under `/v1` that nobody thought of needs a credential, and the scope `admin` if it may change something; each
call is judged by the credentials that were in force after it came.
"""

from __future__ import annotations

import re
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relay.api.confirmed import READING
from relay.api.deps import CALLER
from relay.domain.credentials import Scope as Right
from relay.domain.signed import fingerprint
from relay.domain.telemetry import Listener, RejectReason, RequestRefused
from relay.store.faults import StoreUnavailable
from relay.web.certificates import peer_in
from relay.web.credentials import require
from relay.web.exchange import BodyReader, Intake
from relay.web.once import Once
from relay.web.problems import ErrorCode, Problem, Refused
from relay.web.proving import HEADERS, Proven, Prover
from relay.web.serving import Guard

UNAVAILABLE = Problem(ErrorCode.DATABASE_UNAVAILABLE, "the database did not answer; try again in a moment")

PROTECTED = "/v1"
"""Whatever is beside it, health, numbers and the description, needs no credential."""

_OTHERWISE = (
    # an event comes in, and a program says that it has processed one
    (re.compile(r"/v1/(?:events(?:/batch)?|receipts/[^/]+/acks)"), Right.INGEST),
    # beside a change of what is every tenant's
    (re.compile(r"/v1/tenants(?:/[^/]+)?"), Right.OPERATOR),
)
"""Changes that need another scope than `admin`."""

_CHANGES_TOLD = re.compile(r"/v1/audit")
"""What shows who may change something, and is read by those alone."""


def needed(method: str, path: str) -> Right | None:
    """The scope that a call needs, None if it needs no credential. A path may have its parameters' names in it."""
    if path != PROTECTED and not path.startswith(f"{PROTECTED}/"):
        return None
    if method in READING:
        return Right.ADMIN if _CHANGES_TOLD.fullmatch(path) else Right.READ
    return next((right for pattern, right in _OTHERWISE if pattern.fullmatch(path)), Right.ADMIN)


class Callers:
    """Around the API's routes. Raises `Refused` for a call that is nobody's, or for which the scope is missing."""

    def __init__(self, app: ASGIApp, *, prover: Prover, once: Once, bodies: BodyReader, emit: Listener) -> None:
        self._app = app
        self._prover = prover
        self._once = once
        self._bodies = bodies
        self._emit = emit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        right = needed(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if right is None:
            await self._app(scope, receive, send)
            return
        try:
            proven = await self._admit(scope, right)
        except Refused as refused:
            counted_as = refused.problem.kind.counted_as
            if isinstance(counted_as, RejectReason):
                self._emit(RequestRefused(counted_as))
            raise
        scope = {**scope, CALLER: proven.caller}
        if proven.body is not None:
            receive = _again(proven.body, receive)
            scope[Guard.INTAKE] = Intake.of(scope, receive)
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope, right: Right) -> Proven:
        """Whose a call is. Raises `Refused` where it is nobody's or may not be made."""
        intake: Intake = scope[Guard.INTAKE]
        try:
            proven = await self._prover.prove_anew(peer_in(scope), _headers(scope), lambda: self._bodies.read(intake))
            require(proven.caller, right)
            if scope["method"] not in READING:
                await self._once.take(proven, fingerprint(scope["path"], None, None))
            return proven
        except StoreUnavailable:
            raise Refused(UNAVAILABLE) from None


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers in which credentials come; what comes twice is one list, and no credential."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in HEADERS:
            found[name] = found[name] + b", " + value if name in found else value
    return found


def _again(body: bytes, receive: Receive) -> Receive:
    """What a request's body comes from that was read already; behind it, whatever comes next."""
    left: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return left.pop() if left else await receive()

    return receive_again
