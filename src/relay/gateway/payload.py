"""What of a payload Relay must understand: that it is JSON, and which type the event has.

Owns that look at the bytes. Nothing of the payload but `type` becomes a value, so numbers of any size, repeated names,
escaped zero characters and lone surrogates pass untouched. Invariant: the payload itself is never changed, and what is
accepted is UTF-8 without a byte order mark and JSON by RFC 8259.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from relay.domain.routing import InvalidEventType, check_event_type
from relay.gateway.headers import EVENT_TYPE, Headers
from relay.web.json_bodies import decode_json
from relay.web.problems import ErrorCode, refuse

T = TypeVar("T")

# The halves of surrogate pairs that stand alone, in a text without escaped backslashes: a first one without a second
# behind it, or a second one without a first before it. The search looks for what both begin with.
_FIRST = rb"[89abAB][0-9a-fA-F]{2}"
_SECOND = rb"[c-fC-F]"
_HALF = re.compile(
    rb"\\u[dD](?:%b(?!\\u[dD]%b)|%b(?<!\\u[dD]%b\\u[dD]%b)[0-9a-fA-F]{2})" % (_FIRST, _SECOND, _SECOND, _FIRST, _SECOND)
)


class _Typed(msgspec.Struct):
    type: str | msgspec.UnsetType = msgspec.UNSET


def without_halves(text: bytes) -> bytes:
    """The JSON text with U+FFFF, escaped, for each half of a surrogate pair that lacks its other half.

    It has as many bytes. Escaped backslashes are out of the way meanwhile, so that each one left begins an escape; what
    takes their place stands in no JSON.
    """
    if b"\0" in text:
        return text
    escapes = text.replace(rb"\\", b"\0\0")
    return _HALF.sub(rb"\\uffff", escapes).replace(b"\0\0", rb"\\")


def lenient(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """A decoder of msgspec made to read what RFC 8259 (8.2) leaves to the reader: halves of surrogate pairs.

    Its judgement of all the rest is the same with another character in their place. That is one of which no name,
    type or attribute may have any, and takes as many bytes, so whatever is read stands where it stood.
    """

    def decoding(text: bytes) -> T:
        try:
            return decode(text)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            substituted = without_halves(text)
            if substituted == text:
                raise
            return decode(substituted)

    return decoding


_decode = lenient(msgspec.json.Decoder(_Typed).decode)


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
            return ""
        raise refuse(ErrorCode.MALFORMED, "the body is JSON but no object; an event is an object") from None
    return "" if found is msgspec.UNSET else found
