"""What of a payload Relay must understand: that it is JSON, and which type the event has.

Owns that look at the bytes. Nothing of the payload but `type` becomes a value, so numbers of any size, repeated names,
escaped zero characters and lone surrogates pass untouched. Invariant: the payload itself is never changed, and what is
accepted is UTF-8 without a byte order mark and JSON by RFC 8259.
"""

from __future__ import annotations

import msgspec

from relay.domain.routing import InvalidEventType, check_event_type
from relay.gateway.headers import EVENT_TYPE, Headers
from relay.web.json_bodies import decode_json, lenient, text_of
from relay.web.problems import ErrorCode, refuse


class _Typed(msgspec.Struct):
    type: str | msgspec.UnsetType = msgspec.UNSET


class _Untyped(msgspec.Struct):
    type: msgspec.Raw = msgspec.Raw(b"")


_decode = lenient(msgspec.json.Decoder(_Typed).decode)
_decode_untyped = lenient(msgspec.json.Decoder(_Untyped).decode)


def read_type(headers: Headers, payload: bytes) -> str:
    """The event's type: the header's, else the payload's. Raises `Refused` (`malformed`, `type_missing`)."""
    header = headers.get(EVENT_TYPE)
    text = _read_payload_type(payload) if header is None else header.decode("latin-1")
    if not text:
        raise refuse(
            ErrorCode.TYPE_MISSING,
            "give the event a type: a top-level string `type` in its JSON, or the header Relay-Event-Type",
        )
    try:
        return check_event_type(text)
    except InvalidEventType as fault:
        raise refuse(ErrorCode.MALFORMED, str(fault)) from None


def _read_payload_type(payload: bytes) -> str:
    """The top-level string `type`, empty if there is none; the last one where the name is repeated."""
    try:
        found = decode_json(_decode, payload).type
    except msgspec.ValidationError as fault:
        if str(fault).endswith("`$.type`"):
            # the first one that is no string has ended the reading; what counts is the last one of the name
            return text_of(decode_json(_decode_untyped, payload).type) or ""
        raise refuse(ErrorCode.MALFORMED, "the body is JSON but no object; an event is an object") from None
    return "" if found is msgspec.UNSET else found
