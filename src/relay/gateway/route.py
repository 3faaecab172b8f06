"""What the routes that take events have in common, as bare ASGI: the busiest ones take no framework's detour.

Owns the way of a request around its checks: who reads the body, what becomes of a refusal, of a client that left and of
a bug, and what is counted. Invariant: each request is answered once, and its time counted, unless its client left.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod

from starlette.types import Receive, Scope, Send

from relay.domain.ambient import Ambient
from relay.domain.telemetry import Listener, RejectReason, RequestFailed, RequestRefused, RequestServed
from relay.gateway.appender import Appender
from relay.gateway.headers import CONTENT_LENGTH, TRANSFER_ENCODING, Headers, read_headers
from relay.gateway.schemas import Checks
from relay.gateway.senders import Senders
from relay.gateway.tracing import ENTROPY_BYTES, RequestTrace
from relay.web.answers import Answer
from relay.web.certificates import Peer, peer_in
from relay.web.exchange import BodyReader, Disconnected, Intake, send_answer
from relay.web.problems import ErrorCode, Problem, Refused
from relay.web.serving import BUG

NOT_POST = Problem(ErrorCode.METHOD_NOT_ALLOWED, "events are posted here", headers=((b"allow", b"POST"),))

logger = logging.getLogger(__name__)


class Route(ABC):
    """One route of one process; bodies have at most `max_body_bytes`."""

    def __init__(
        self,
        *,
        appender: Appender,
        senders: Senders,
        checks: Checks,
        ambient: Ambient,
        emit: Listener,
        max_body_bytes: int,
        traces: bool,
    ) -> None:
        self._appender = appender
        self._senders = senders
        self._checks = checks
        self._ambient = ambient
        self._emit = emit
        self._bodies = BodyReader(max_body_bytes)
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        arrived = self._ambient.monotonic()
        headers = read_headers(scope["headers"])
        is_post = scope["method"] == "POST"
        trace = RequestTrace(headers, self._ambient.entropy(ENTROPY_BYTES)) if self._traces and is_post else None
        intake = Intake(receive, declared=headers.get(CONTENT_LENGTH), chunked=TRANSFER_ENCODING in headers)
        try:
            accepting = self._accept(peer_in(scope), headers, intake, arrived, trace) if is_post else None
            answer = NOT_POST.answer() if accepting is None else await accepting
        except Refused as refused:
            self._count(refused.problem)
            answer = refused.problem.answer()
        except Disconnected:
            return
        except Exception:
            logger.exception("event_met_bug")
            self._count(BUG)
            answer = BUG.answer()
        await send_answer(answer, intake, send)
        served = None if trace is None else trace.served(scope["scheme"], scope["path"], answer.status)
        self._emit(RequestServed(self._ambient.monotonic() - arrived, served))

    @abstractmethod
    async def _accept(
        self, peer: Peer | None, headers: Headers, intake: Intake, arrived: float, trace: RequestTrace | None
    ) -> Answer:
        """The checks in their order, the envelope, the append. Raises `Refused` and `Disconnected`."""

    def _count(self, problem: Problem) -> None:
        counted_as = problem.kind.counted_as
        if isinstance(counted_as, RejectReason):
            self._emit(RequestRefused(counted_as))
        elif counted_as is not None:
            self._emit(RequestFailed(counted_as))
