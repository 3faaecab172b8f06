"""W3C Trace Context: how a delivery's attempts stay in the trace of the event that caused them.

Owns the reading of `traceparent`, the making of the next one, and what is told of a traced request. Invariant: what is
sent on is a valid version 00 field; its trace id is the event's own if the event came with a valid one, its parent id
belongs to this attempt alone. Source: Trace Context level 2, 3.2 (fields) and 3.4 (what may be changed).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

TRACE_ENTROPY_BYTES = 24
"""How many random bytes `next_traceparent` takes: 16 for a trace id, if one must be made, and 8 for the parent id."""

_FIELD = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_SAMPLED = 0b01
_SAMPLED_AND_RANDOM = 0b11
_RANDOM = 0b10


@dataclass(frozen=True, slots=True)
class TraceParent:
    """A valid `traceparent`: ids in lower-case hexadecimal, and the flags that are known (1 sampled, 2 random)."""

    trace_id: str
    parent_id: str
    flags: int

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.parent_id}-{self.flags:02x}"

    @property
    def is_sampled(self) -> bool:
        """Whether whoever began the trace wants it to be recorded."""
        return bool(self.flags & _SAMPLED)


def read_traceparent(text: str) -> TraceParent | None:
    """Read the field; None if it is invalid, which means: ignore it, and any `tracestate` beside it.

    Of a higher version the first 55 characters are read, as the standard wants it.
    """
    match = _FIELD.fullmatch(text)
    if match is None:
        return None
    version, trace_id, parent_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest is not None) or not (trace_id.strip("0") and parent_id.strip("0")):
        return None
    return TraceParent(trace_id, parent_id, int(flags, 16) & _SAMPLED_AND_RANDOM)


def continued(parent: TraceParent | None, entropy: bytes, *, roots_sampled: bool = False) -> TraceParent:
    """The context of a span below `parent`, or of the first one of a trace of its own.

    `entropy` is `TRACE_ENTROPY_BYTES` random bytes; a trace of its own is sampled only with `roots_sampled`.
    """
    drawn = entropy.hex()
    if parent is None:
        return TraceParent(drawn[:32], drawn[32:48], _SAMPLED_AND_RANDOM if roots_sampled else _RANDOM)
    return TraceParent(parent.trace_id, drawn[32:48], parent.flags)


def next_traceparent(parent: TraceParent | None, entropy: bytes, *, roots_sampled: bool = False) -> str:
    """The field for one attempt: `continued`, as text."""
    return str(continued(parent, entropy, roots_sampled=roots_sampled))


class PublishedTrace(NamedTuple):
    """The events of a request on their way into the journal, as a span: from `after_seconds` to `until_seconds` since
    the request arrived. `event_type`, `event_id` and `receipt_id` are None where there are several."""

    after_seconds: float
    until_seconds: float
    events: int
    tenant: str
    source: str
    event_type: str | None = None
    event_id: str | None = None
    receipt_id: UUID | None = None
    forwarded: tuple[tuple[str, str], ...] = ()


class ServedTrace(NamedTuple):
    """A traced request: `caller` is the span of who sent it, `server` that of its serving, and `producer` the one that
    its events carry on. `published` is None where nothing was stored."""

    scheme: str
    path: str
    status: int
    caller: TraceParent | None
    server: TraceParent
    producer: TraceParent
    published: PublishedTrace | None
