"""JSON as it comes in: the content types that count as JSON, and the faults of a text that is none.

Owns what is the same for events and for calls. Invariant: what passes is UTF-8 without a byte order mark, and JSON by
RFC 8259; nothing that is not raises anything but `Refused`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import msgspec

from relay.web.problems import ErrorCode, refuse

T = TypeVar("T")

LONGEST_CONTENT_TYPE = 255

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - the name that RFC 9110 gives to it
_PARAMETER = rf"({_TOKEN})=({_TOKEN}|\"(?:[\t !#-\[\]-~]|\\[\t -~])*\")"
# each white space can be matched in one place only, else a few blanks take the expression seconds to refuse
_MEDIA_TYPE = re.compile(rf"({_TOKEN})/({_TOKEN})[ \t]*((?:;[ \t]*(?:{_PARAMETER}[ \t]*)?)*)")
_PARAMETERS = re.compile(_PARAMETER)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# The halves of surrogate pairs that stand alone, in a text without escaped backslashes: a first one without a second
# behind it, or a second one without a first before it. The search looks for what both begin with.
_FIRST = rb"[89abAB][0-9a-fA-F]{2}"
_SECOND = rb"[c-fC-F]"
_HALF = re.compile(
    rb"\\u[dD](?:%b(?!\\u[dD]%b)|%b(?<!\\u[dD]%b\\u[dD]%b)[0-9a-fA-F]{2})" % (_FIRST, _SECOND, _SECOND, _FIRST, _SECOND)
)


@lru_cache(maxsize=256)
def content_type_fault(value: bytes) -> str | None:
    """What to do about a `Content-Type` where JSON in UTF-8 is wanted, None if it says just that.

    JSON is `application/json` and every `…/…+json`; a charset may be named if it is UTF-8.
    """
    if len(value) > LONGEST_CONTENT_TYPE:
        return f"a Content-Type has at most {LONGEST_CONTENT_TYPE} characters"
    media = _MEDIA_TYPE.fullmatch(value.decode("latin-1"))
    if media is None:
        return "send JSON, with Content-Type: application/json"
    kind, subtype = media[1].lower(), media[2].lower()
    if not subtype.endswith("+json") and (kind, subtype) != ("application", "json"):
        return "send JSON, with Content-Type: application/json"
    for name, text in _PARAMETERS.findall(media[3]):
        if name.lower() == "charset" and text.strip('"').lower() not in ("utf-8", "utf8"):
            return "send JSON in UTF-8: leave the charset out, or name utf-8"
    return None


def decode_json(decode: Callable[[bytes], T], body: bytes) -> T:
    """The body as a decoder of msgspec reads it. Raises `Refused` (`malformed`), and `ValidationError` of a decoder."""
    check_utf8(body)
    try:
        return decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as fault:
        reason = str(fault).removeprefix("JSON is malformed: ")
        raise refuse(ErrorCode.MALFORMED, f"the body is no JSON: {reason}") from None
    except RecursionError:
        raise refuse(ErrorCode.MALFORMED, "the body's JSON is nested too deeply") from None


def check_utf8(body: bytes) -> None:
    """Raises `Refused` (`malformed`) unless the bytes are UTF-8 text; decoders do not look at strings they skip."""
    if body.isascii():
        return
    if body.startswith(_BYTE_ORDER_MARK):
        raise refuse(ErrorCode.MALFORMED, "leave out the byte order mark: JSON begins with its first character")
    try:
        body.decode()
    except UnicodeDecodeError as fault:
        raise refuse(ErrorCode.MALFORMED, f"the body is not UTF-8: see byte {fault.start}") from None


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


def text_of(value: msgspec.Raw) -> str | None:
    """The string that stands there, None if it is another value or none at all."""
    try:
        return _text(bytes(value)) if value else None
    except msgspec.ValidationError:
        return None


_text = lenient(msgspec.json.Decoder(str).decode)
