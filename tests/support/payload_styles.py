"""One payload in the ways in which serialisers write JSON, and bodies that any serialiser would write otherwise.

Nothing here is sent on by a second serialiser: whatever hashes, stores or signs anything but the bytes that came in is
found by one of these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

LARGEST = 1_048_576
"""`RELAY_MAX_PAYLOAD_BYTES`, as it is by default."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def _crlf(payload: Any) -> str:
    """Line ends as they are on Windows; in JSON every line end within a string is escaped."""
    return json.dumps(payload, indent=4, ensure_ascii=False).replace("\n", "\r\n")


STYLES: Mapping[str, Callable[[Any], str]] = {
    "compact": lambda payload: json.dumps(payload, separators=(",", ":"), ensure_ascii=False),
    "two-spaces": lambda payload: json.dumps(payload, indent=2, ensure_ascii=False),
    "four-spaces-crlf": _crlf,
    "sorted": lambda payload: json.dumps(payload, sort_keys=True),
    "all-escaped": lambda payload: json.dumps(payload, ensure_ascii=True).replace("/", r"\/"),
    "unicode": lambda payload: json.dumps(payload, ensure_ascii=False),
    "newline-at-the-end": lambda payload: json.dumps(payload) + "\n",
}
"""The styles, by a name without spaces; each takes the parsed payload."""


def restyled(body: bytes, style: str) -> bytes:
    """The same JSON in that style."""
    return STYLES[style](json.loads(body)).encode()


@dataclass(frozen=True, slots=True)
class Body:
    """One body and the content type that it travels under."""

    bytes: bytes
    content_type: str = "application/json"


def _string_of(size: int) -> bytes:
    """A JSON object of exactly so many bytes."""
    frame = b'{"s": "%b"}'
    return frame % (b"x" * (size - len(frame % b"")))


ODD_JSON: Mapping[str, Body] = {
    "a name twice": Body(b'{"a": 1, "b": {"c": 1, "c": 2}, "a": 2}'),
    "whole-number floats": Body(b'{"a": 1.0, "b": 1.10, "c": 100.00, "d": 1E2, "e": 1e+2}'),
    "numbers past every float": Body(b'{"a": 1e400, "b": -1E400, "c": 1e-400}'),
    "zeros with a sign": Body(b'{"a": -0, "b": -0.0, "c": -0e0}'),
    "25 digits": Body(b'{"a": 1234567890123456789012345, "b": -9007199254740993, "c": 0.1234567890123456789012345}'),
    "halves of surrogate pairs, escaped": Body(rb'{"a": "\ud800", "b": "\udc00\ud800", "\uDBFF": "\ud83d\ude00"}'),
    "zero characters, escaped": Body(rb'{"a": "\u0000", "b\u0000": "x\u0000y"}'),
    "escapes that nobody needs": Body(rb'{"\u0061": "\/\u002f\u001B\u001b\u00e9"}'),
    "characters as themselves": Body('{"a": "é e\u0301 😀 \u202e \u2028 \u2029 \ufeff \x7f"}'.encode()),
    "space everywhere": Body(b'{\t"a"\r\n:\n 1 ,\r"b": [ ] , "c" : { } }'),
    "an order of names": Body(b'{"z": 1, "10": 1, "9": 1, "a": 1, "": 1, "__proto__": 1, "constructor": 1}'),
    "nothing in it": Body(b"{}"),
    "a list": Body(b"[1.0, 1.0, []]"),
    "null": Body(b"null"),
    "a bare number": Body(b"-0.0"),
    "a bare string": Body(rb'"\u0022"'),
    "depth": Body(b"[" * 500 + b"]" * 500),
    "form of a JSON type": Body(b'{"a":1.0}', "application/vnd.example+json; charset=UTF-8"),
}
"""Values of JSON, without space around them: as the slice of a batch they are what they are alone."""

ODD_TEXT: Mapping[str, Body] = {
    "space around": Body(b' \t\r\n{"a": 1} \n\n'),
    "plain text": Body("naïve text, no JSON\r\n".encode(), "text/plain; charset=utf-8"),
    "a form": Body(b"a=1&b=%7B%7D&a=2", "application/x-www-form-urlencoded"),
    "broken JSON": Body(b'{"a": NaN, "b": 01,}', "application/json"),
    "a zero byte": Body(b"a\x00b", "application/octet-stream"),
    "exactly the largest": Body(_string_of(LARGEST)),
}
"""Text in UTF-8 that is no single value of JSON, or too large for a test of many."""

ODD_BYTES: Mapping[str, Body] = {
    "latin-1": Body("café".encode("latin-1"), "text/plain; charset=iso-8859-1"),
    "JSON in latin-1": Body('{"a": "é"}'.encode("latin-1"), "application/json; charset=iso-8859-1"),
    "JSON in UTF-16": Body('{"a": "é"}'.encode("utf-16"), "application/json; charset=utf-16"),
    "every byte": Body(bytes(range(256)) * 16, "application/octet-stream"),
    "half a character": Body(b'{"a": "\xf0\x9f\x98"}', "application/json"),
    "a surrogate as bytes": Body(b'{"a": "\xed\xa0\x80"}', "application/json"),
    "gzip": Body(bytes.fromhex("1f8b08000000000002ff4bcc4d05003e8be8cc04000000"), "application/gzip"),
}
"""What is no UTF-8."""

MARKED = Body(BYTE_ORDER_MARK + b'{"a": 1}')
EMPTY = Body(b"", "application/octet-stream")
