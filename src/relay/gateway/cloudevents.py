"""CloudEvents over HTTP: which requests are one, and where its attributes stand.

Owns the two modes in which one comes. Binary: the body is the data, and each attribute is a header `ce-…`, kept as it
came and sent on with every attempt. Structured: the whole body is the event and the payload, and its attributes are
read from there alone. What the attributes must be is the domain's. Invariant: neither body nor headers are rewritten.
"""

from __future__ import annotations

from base64 import b64decode
from enum import Enum, auto
from typing import NamedTuple, assert_never

import msgspec

from relay.domain import cloudevents
from relay.domain.cloudevents import CloudEvent, InvalidCloudEvent
from relay.gateway.headers import (
    CLOUDEVENT,
    CONTENT_TYPE,
    EVENT_TYPE,
    PREFIX,
    Headers,
    read_any_content_type,
    read_json_content_type,
)
from relay.web.json_bodies import decode_json, lenient
from relay.web.problems import ErrorCode, Refused, refuse

MOST_HEADER_BYTES = 64 * 1024
"""Bound of all `ce-` headers together: every relay of events has to pass on those of up to 64 KiB."""

_FAMILY = b"application/cloudevents"
_STRUCTURED = b"application/cloudevents+json"
_NEITHER = (
    "of the formats of CloudEvents only application/cloudevents+json is read: send each event by itself, in the binary "
    "or the structured mode, or several to /v1/events/batch; or name a type in the header Relay-Event-Type, then the "
    "body goes to endpoints as it is"
)

_NESTED = (b"{", b"[")
_URIS = frozenset({"source", "dataschema"})
_SMALLEST, _LARGEST = -(2**31), 2**31 - 1

Forwarded = tuple[tuple[str, str], ...]


class Mode(Enum):
    """How an event is written into a request."""

    BINARY = auto()
    STRUCTURED = auto()


class Read(NamedTuple):
    """A CloudEvent, and those of its headers that travel on."""

    event: CloudEvent
    forwarded: Forwarded


def read_mode(headers: Headers) -> Mode | None:
    """In which mode the request is a CloudEvent, None if it is none. Raises `Refused` (`content_type`)."""
    content_type = headers.get(CONTENT_TYPE, b"")
    if content_type[: len(_FAMILY)].lower() != _FAMILY:
        return Mode.BINARY if CLOUDEVENT in headers else None
    if content_type.partition(b";")[0].strip().lower() == _STRUCTURED:
        return Mode.STRUCTURED
    if EVENT_TYPE in headers:
        return None
    raise refuse(ErrorCode.CONTENT_TYPE, _NEITHER)


def read_cloudevents_content_type(mode: Mode, headers: Headers) -> str:
    """The payload's content type. Raises `Refused` (`content_type`)."""
    return read_any_content_type(headers) if mode is Mode.BINARY else read_json_content_type(headers)


def read_cloudevent(mode: Mode, headers: Headers, body: bytes) -> Read:
    """The event of a request in this mode. Raises `Refused` (`malformed`)."""
    match mode:
        case Mode.BINARY:
            read = _read_headers(headers)
        case Mode.STRUCTURED:
            read = Read(_read_body(body), ())
        case _:
            assert_never(mode)
    named = headers.get(EVENT_TYPE)
    if named is not None and named.decode("latin-1") != read.event.type:
        raise _malformed("its type and the header Relay-Event-Type differ; leave the header out")
    return read


def _read_headers(headers: Headers) -> Read:
    if twice := headers[CLOUDEVENT].decode("latin-1"):
        raise _malformed(f"the header {twice[:64]} is given twice")
    forwarded: list[tuple[str, str]] = []
    attributes: dict[str, str] = {}
    size = 0
    for header, value in headers.items():
        if not header.startswith(PREFIX):
            continue
        name = header[len(PREFIX) :].decode("latin-1")
        size += len(header) + len(value)
        attributes[name], text = _read_value(name, value)
        forwarded.append((f"ce-{name}", text))
    if size > MOST_HEADER_BYTES:
        raise _malformed(f"its headers have at most {MOST_HEADER_BYTES} bytes together")
    if "datacontenttype" in attributes:
        raise _malformed("in the binary mode datacontenttype is the header Content-Type; leave out ce-datacontenttype")
    return Read(_checked(attributes), tuple(forwarded))


def _read_value(name: str, value: bytes) -> tuple[str, str]:
    """What a header stands for, and its text."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise _malformed(f"percent-encode what is not ASCII in ce-{name[:64]}, from UTF-8") from None
    try:
        decoded = cloudevents.decode_header(text)
    except InvalidCloudEvent as fault:
        raise _malformed(f"ce-{name[:64]} {fault}") from None
    if name in _URIS and not cloudevents.is_uri_reference(decoded):
        # some libraries send attributes unencoded; then the codes in a URI are its own
        return text, text
    return decoded, text


def _read_body(body: bytes) -> CloudEvent:
    try:
        members = decode_json(_decode, body)
    except msgspec.ValidationError:
        raise _malformed("its body is a JSON object") from None
    data, base64 = members.pop("data", None), members.pop("data_base64", None)
    if base64 is not None and bytes(base64) != b"null":
        if data is not None:
            raise _malformed("it has data or data_base64, not both")
        _check_base64(bytes(base64))
    attributes = {}
    for name, member in members.items():
        text = _read_member(name, member)
        if text is not None:
            attributes[name] = text
    return _checked(attributes)


_decode = lenient(msgspec.json.Decoder(dict[str, msgspec.Raw]).decode)


def _read_member(name: str, member: msgspec.Raw) -> str | None:
    """An attribute's value as text, None where it is null, which is as good as absent."""
    text = bytes(member)
    value = None if text[:1] in _NESTED else _read_value_of(text)
    match value:
        case str():
            return value
        case _ if text != b"null" and name in cloudevents.OF_TEXT:
            raise _malformed(f"{name} is text: write it in quotes")
        case bool():
            return "true" if value else "false"
        case int() if _SMALLEST <= value <= _LARGEST:
            return str(value)
        case _ if text == b"null":
            return None
        case _:
            raise _malformed(f"the attribute {name[:64]!a} is text, true, false or a whole number of 32 bits")


def _read_value_of(text: bytes) -> object:
    """What stands there, None for what is too large to be read: the text is known to be JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def _check_base64(member: bytes) -> None:
    try:
        b64decode(msgspec.json.decode(member, type=str), validate=True)
    except (msgspec.ValidationError, ValueError):
        raise _malformed("its data_base64 is no text in Base64") from None


def _checked(attributes: dict[str, str]) -> CloudEvent:
    try:
        return cloudevents.check_cloudevent(attributes)
    except InvalidCloudEvent as fault:
        raise _malformed(str(fault)) from None


def _malformed(detail: str) -> Refused:
    return refuse(ErrorCode.MALFORMED, f"this CloudEvent cannot be read: {detail}")
