"""CloudEvents 1.0: what makes attributes an event, how a header holds one, and what two events of one name share.

Owns the rules of the specification that a relay has to judge by; which part of a request holds what is the gateway's.
Nothing of an event is changed here. Invariant: an event that passes has an id, a source and a type, and its key
differs from that of every other pair of source and id.
Source: CloudEvents 1.0.2, spec.md (attributes and their types) and bindings/http-protocol-binding.md, 3.1.3.2.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from urllib.parse import unquote_to_bytes

from relay.domain.routing import InvalidEventType, check_event_type

SPECVERSION = "1.0"
LONGEST_ID = 255
"""Characters of an event's id. The specification has no bound, but the id is what receipts are found by."""

_REQUIRED = ("specversion", "id", "source", "type")
OF_TEXT = frozenset({*_REQUIRED, "subject", "time", "dataschema", "datacontenttype"})
"""The attributes that are text of one kind or another; an extension may also be a boolean or a whole number."""

_NAME = re.compile(r"[a-z0-9]+")
# C0 and C1 controls, surrogates without their other half, and the noncharacters of each plane
_NOT_IN_A_STRING = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(n + 0xFFFE)}{chr(n + 0xFFFF)}" for n in range(0, 0x110000, 0x10000))
    + "]"
)
_URI_CHARACTERS = r"(?:[A-Za-z0-9._~:/?@!$&'()*+,;=\[\]-]|%[0-9A-Fa-f]{2})"
_URI_REFERENCE = re.compile(rf"(?=.){_URI_CHARACTERS}*(?:#{_URI_CHARACTERS}*)?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.")
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_MEDIA_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*(?:;[\t -~]*)?")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


class InvalidCloudEvent(ValueError):
    """The attributes are no CloudEvent that Relay takes; the message names one and says what it should be."""


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """What Relay needs to know of one."""

    id: str
    source: str
    type: str

    @property
    def key(self) -> str:
        """The event's idempotency key: the same for the same source and id, and no other.

        `cloudevent-` and the SHA-256, in hexadecimal, of the UTF-8 of source, space, id. A source has no space in it,
        so no two pairs make one text; the digest makes a key of any of them.
        """
        return f"cloudevent-{hashlib.sha256(f'{self.source} {self.id}'.encode()).hexdigest()}"


def check_cloudevent(attributes: Mapping[str, str]) -> CloudEvent:
    """The event with these context attributes, each as the text that it stands for. Raises `InvalidCloudEvent`."""
    for name, value in attributes.items():
        _check_name(name)
        if _NOT_IN_A_STRING.search(value):
            raise InvalidCloudEvent(f"{name} has a control character, half a surrogate pair or a noncharacter in it")
    for name in _REQUIRED:
        if not attributes.get(name):
            raise InvalidCloudEvent(f"a CloudEvent has a non-empty {name}")
    if attributes["specversion"] != SPECVERSION:
        raise InvalidCloudEvent(f"specversion is {SPECVERSION}; no other is taken")
    if len(attributes["id"]) > LONGEST_ID:
        raise InvalidCloudEvent(f"id has at most {LONGEST_ID} characters")
    if not is_uri_reference(attributes["source"]):
        raise InvalidCloudEvent("source is a URI reference (RFC 3986), for example /billing or https://example.com/a")
    try:
        check_event_type(attributes["type"])
    except InvalidEventType as fault:
        raise InvalidCloudEvent(f"type becomes the event's type in Relay: {fault}") from None
    _check_optional(attributes)
    return CloudEvent(attributes["id"], attributes["source"], attributes["type"])


def decode_header(value: str) -> str:
    """What a `ce-` header's value stands for: quotes are taken off, and percent-encoding is undone once.

    A percent sign that begins no code stands for itself, as in what older libraries send. Raises `InvalidCloudEvent`
    where the bytes are not UTF-8.
    """
    quoted = _QUOTED.fullmatch(value)
    text = value if quoted is None else _ESCAPED.sub(r"\1", quoted[1])
    if "%" not in text:
        return text
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise InvalidCloudEvent("is percent-encoded, but not from UTF-8") from None


def is_uri_reference(text: str) -> bool:
    """Whether a non-empty text is a URI reference by its characters (RFC 3986, 4.1)."""
    return _URI_REFERENCE.fullmatch(text) is not None


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name == "data":
        raise InvalidCloudEvent(
            f"{name[:64]!a} is no name of an attribute: those have a-z and 0-9 only, and none is data"
        )


def _check_optional(attributes: Mapping[str, str]) -> None:
    if attributes.get("subject") == "":
        raise InvalidCloudEvent("subject, where it is given, is not empty")
    if (time := attributes.get("time")) is not None and not _is_time(time):
        raise InvalidCloudEvent("time is a timestamp of RFC 3339, for example 2026-01-31T12:00:00Z")
    schema = attributes.get("dataschema")
    if schema is not None and not (_SCHEME.match(schema) and is_uri_reference(schema)):
        raise InvalidCloudEvent("dataschema is an absolute URI (RFC 3986)")
    media = attributes.get("datacontenttype")
    if media is not None and not _MEDIA_TYPE.fullmatch(media):
        raise InvalidCloudEvent("datacontenttype is a media type, for example application/json")


def _is_time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    with suppress(ValueError):
        date(int(match[1]), int(match[2]), int(match[3]))
        return True
    return False
