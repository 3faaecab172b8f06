"""The request headers that an event's ingest looks at, and what each of them says.

Owns the reading of each. Invariant: a header that appears twice is read as one list (RFC 9110, 5.3) or refused, so none
of two contradicting values is taken in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from relay.domain.idempotency import InvalidKey, parse_key
from relay.domain.schema import InvalidSchemaName, SchemaName, read_name
from relay.domain.trace import read_traceparent
from relay.web import proving
from relay.web.json_bodies import LONGEST_CONTENT_TYPE, content_type_fault
from relay.web.problems import ErrorCode, refuse

CONTENT_TYPE = b"content-type"
CONTENT_LENGTH = b"content-length"
CONTENT_ENCODING = b"content-encoding"
TRANSFER_ENCODING = b"transfer-encoding"
EVENT_TYPE = b"relay-event-type"
HOPS = b"relay-hops"
IDEMPOTENCY_KEY = b"idempotency-key"
SCHEMA = b"relay-schema"
TRACEPARENT = b"traceparent"
TRACESTATE = b"tracestate"

PREFIX = b"ce-"
"""How the names of a CloudEvent's headers begin."""

CLOUDEVENT = b"(cloudevent)"
"""What stands among the wanted headers where any of those came; its value is the name of one that came twice."""

_WANTED = frozenset(
    {
        CONTENT_TYPE,
        CONTENT_LENGTH,
        CONTENT_ENCODING,
        TRANSFER_ENCODING,
        EVENT_TYPE,
        HOPS,
        IDEMPOTENCY_KEY,
        SCHEMA,
        TRACEPARENT,
        TRACESTATE,
        *proving.HEADERS,
    }
)

MOST_HOPS = 8
"""An event that went through more Relays than this runs in a circle."""

OPAQUE = "application/octet-stream"
"""The content type of bytes that came without one."""

_PRINTABLE = re.compile(r"[!-~](?:[\t -~]*[!-~])?")

_MOST_STATE_MEMBERS = 32
_LONGEST_STATE = 512
_LONG_STATE_MEMBER = 128
_STATE_MEMBER = re.compile(r"[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]")

Headers = Mapping[bytes, bytes]


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The wanted ones among a request's headers and those of a CloudEvent, names in lower case."""
    found: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in _WANTED:
            found[name] = found[name] + b", " + value if name in found else value
        elif name[:3] == PREFIX:
            found[CLOUDEVENT] = name if name in found else found.get(CLOUDEVENT, b"")
            found[name] = value
    return found


def read_content_type(headers: Headers) -> str:
    """The payload's content type. Raises `Refused` (`content_type`) for what is not taken.

    Without `Relay-Event-Type` the type has to be found in the payload, so only JSON in UTF-8 will do. A content coding
    is never taken: it would have to travel on with the payload, and nothing says that an endpoint knows it.
    """
    if EVENT_TYPE in headers:
        return read_any_content_type(headers)
    return read_json_content_type(
        headers, "; or name the event's type in the header Relay-Event-Type and send any content type"
    )


def read_json_content_type(headers: Headers, otherwise: str = "") -> str:
    """The same where only JSON will do; a refusal ends with `otherwise`."""
    _refuse_coding(headers)
    value = headers.get(CONTENT_TYPE, b"")
    fault = content_type_fault(value)
    if fault is not None:
        raise refuse(ErrorCode.CONTENT_TYPE, fault + otherwise)
    return value.decode("ascii").strip()


def read_any_content_type(headers: Headers) -> str:
    """The same where the type is known, so that any will do, or none."""
    _refuse_coding(headers)
    value = headers.get(CONTENT_TYPE, b"")
    fault = _opaque_fault(value)
    if fault is not None:
        raise refuse(ErrorCode.CONTENT_TYPE, fault)
    return value.decode("ascii").strip() or OPAQUE


def read_hops(headers: Headers) -> int:
    """How many Relays the event went through. Raises `Refused` (`malformed`, `relay_loop`)."""
    value = headers.get(HOPS)
    if value is None:
        return 0
    if not value.isdigit():
        raise refuse(ErrorCode.MALFORMED, "Relay-Hops is a whole number")
    digits = value.lstrip(b"0")
    if len(digits) > 1 or int(value[-1:]) > MOST_HOPS:
        raise refuse(ErrorCode.RELAY_LOOP, f"the event went through more than {MOST_HOPS} Relays; look for the circle")
    return int(digits or b"0")


def read_key(headers: Headers) -> str | None:
    """The sender's name for the request, None without one. Raises `Refused` (`malformed`)."""
    value = headers.get(IDEMPOTENCY_KEY)
    if value is None:
        return None
    try:
        return parse_key(value.decode("latin-1"))
    except InvalidKey as fault:
        raise refuse(ErrorCode.MALFORMED, str(fault)) from None


def read_schema(headers: Headers) -> SchemaName | None:
    """The schema that the sender wants its event checked against, None without one. Raises `Refused` (`malformed`)."""
    value = headers.get(SCHEMA)
    if value is None:
        return None
    try:
        return read_name(value.decode("latin-1").strip())
    except InvalidSchemaName as fault:
        raise refuse(ErrorCode.MALFORMED, f"Relay-Schema: {fault}") from None


def read_context(headers: Headers) -> tuple[tuple[str, str], ...]:
    """The trace that the event belongs to, as what goes on with it. An invalid one is left out, as the standard wants.

    Source: Trace Context level 2, 3.2.2.3 and 3.3.1. The `traceparent` is written anew in version 00.
    """
    value = headers.get(TRACEPARENT)
    parent = read_traceparent(value.decode("latin-1").strip()) if value is not None else None
    if parent is None:
        return ()
    field = f"00-{parent.trace_id}-{parent.parent_id}-{parent.flags:02x}"
    state = _read_tracestate(headers.get(TRACESTATE, b"").decode("latin-1"))
    return (("traceparent", field), ("tracestate", state)) if state else (("traceparent", field),)


def _refuse_coding(headers: Headers) -> None:
    coding = headers.get(CONTENT_ENCODING)
    if coding is not None and coding.strip().lower() != b"identity":
        raise refuse(ErrorCode.CONTENT_TYPE, "send the body as it is, without a Content-Encoding")


def _opaque_fault(value: bytes) -> str | None:
    """What to do about a content type where any will do, None if nothing: it goes on to endpoints as it is."""
    if len(value) > LONGEST_CONTENT_TYPE:
        return f"a Content-Type has at most {LONGEST_CONTENT_TYPE} characters"
    if value and not _PRINTABLE.fullmatch(value.decode("latin-1")):
        return "a Content-Type is visible ASCII"
    return None


def _read_tracestate(text: str) -> str:
    """The valid state, shortened as the standard says: first the long members, then from the right. Else empty."""
    members = [member for part in text.split(",") if (member := part.strip(" \t"))]
    if len(members) > _MOST_STATE_MEMBERS or not all(map(_STATE_MEMBER.fullmatch, members)):
        return ""
    if len(",".join(members)) > _LONGEST_STATE:
        members = [member for member in members if len(member) <= _LONG_STATE_MEMBER]
    while len(",".join(members)) > _LONGEST_STATE:
        members.pop()
    return ",".join(members)
