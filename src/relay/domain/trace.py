"""W3C Trace Context: how a delivery's attempts stay in the trace of the event that caused them.

Owns the reading of `traceparent` and the making of the next one. Invariant: what is sent on is a valid version 00
field; its trace id is the event's own if the event came with a valid one, its parent id belongs to this attempt alone.
Source: Trace Context level 2, 3.2 (fields) and 3.4 (what may be changed).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TRACE_ENTROPY_BYTES = 24
"""How many random bytes `next_traceparent` takes: 16 for a trace id, if one must be made, and 8 for the parent id."""

_FIELD = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_SAMPLED_AND_RANDOM = 0b11
_RANDOM = 0b10


@dataclass(frozen=True, slots=True)
class TraceParent:
    """A valid `traceparent`: ids in lower-case hexadecimal, and the flags that are known (1 sampled, 2 random)."""

    trace_id: str
    parent_id: str
    flags: int


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


def next_traceparent(parent: TraceParent | None, entropy: bytes) -> str:
    """The field for one attempt: `parent`'s trace with a new parent id, or a trace of its own, not sampled.

    `entropy` is `TRACE_ENTROPY_BYTES` random bytes.
    """
    drawn = entropy.hex()
    if parent is None:
        return f"00-{drawn[:32]}-{drawn[32:48]}-{_RANDOM:02x}"
    return f"00-{parent.trace_id}-{drawn[32:48]}-{parent.flags:02x}"
