"""The spans of a request that posts events, while it is served.

Owns what is known of them until the request is answered; nothing is made of it here. What a request's events carry on
is the span of their way into the journal, so that each attempt links to it. Invariant: without tracing an event carries
on what its sender sent, and nothing is drawn or kept for it.
"""

from __future__ import annotations

from uuid import UUID

from relay.domain.trace import (
    TRACE_ENTROPY_BYTES,
    PublishedTrace,
    ServedTrace,
    TraceParent,
    continued,
    read_traceparent,
)
from relay.gateway.headers import TRACEPARENT, Headers
from relay.web.credentials import Caller

SPAN_BYTES = 8
ENTROPY_BYTES = TRACE_ENTROPY_BYTES + SPAN_BYTES
"""How many random bytes one request takes."""

Forwarded = tuple[tuple[str, str], ...]


class RequestTrace:
    """One request's spans; `entropy` is `ENTROPY_BYTES` random bytes."""

    __slots__ = ("_caller", "_producer", "_published", "_server")

    def __init__(self, headers: Headers, entropy: bytes) -> None:
        value = headers.get(TRACEPARENT)
        self._caller = None if value is None else read_traceparent(value.decode("latin-1").strip())
        self._server = continued(self._caller, entropy[:TRACE_ENTROPY_BYTES], roots_sampled=True)
        span = entropy[TRACE_ENTROPY_BYTES:].hex()
        self._producer = TraceParent(self._server.trace_id, span, self._server.flags)
        self._published: PublishedTrace | None = None

    def carried(self, context: Forwarded) -> Forwarded:
        """What events carry on, in place of the sender's own context."""
        return (("traceparent", str(self._producer)), *(each for each in context if each[0] != "traceparent"))

    def published(self, after: float, until: float, caller: Caller, count: int) -> None:
        """So many events were stored; both times are seconds since the request arrived."""
        self._published = PublishedTrace(after, until, count, caller.tenant, caller.source)

    def named(self, event_type: str, event_id: str, receipt_id: UUID, forwarded: Forwarded) -> None:
        """What was stored is this one event."""
        assert self._published is not None, "what has a name was published"
        self._published = self._published._replace(
            event_type=event_type, event_id=event_id, receipt_id=receipt_id, forwarded=forwarded
        )

    def served(self, scheme: str, path: str, status: int) -> ServedTrace:
        """The request is answered."""
        return ServedTrace(scheme, path, status, self._caller, self._server, self._producer, self._published)
