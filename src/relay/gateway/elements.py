"""The events of a batch, as its JSON array holds them.

Owns the reading of the array: what each element says, and which bytes of the request are its payload. Invariant: a
payload is a slice of the request, byte for byte; what is wrong with one element is said of that one alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from json import JSONDecoder
from typing import Any, NamedTuple

import msgspec

from relay.domain.idempotency import MAX_KEY_CHARACTERS, InvalidKey, check_key
from relay.domain.routing import InvalidEventType, check_event_type
from relay.web.json_bodies import decode_json, lenient, text_of
from relay.web.problems import ErrorCode, Problem, refuse

MOST_EVENTS = 1_000

_ABSENT = msgspec.Raw(b"")

_BETWEEN_ELEMENTS = re.compile(rb"[ \t\n\r,]*")
_BETWEEN_MEMBERS = re.compile(r"[ \t\n\r:,]*")

_SHAPE = 'an event of a batch is an object {"type", "event_id"?, "payload"}'
_NO_TYPE = Problem(ErrorCode.TYPE_MISSING, "give the event a type: a string `type` beside its payload")
_NO_PAYLOAD = Problem(ErrorCode.MALFORMED, f"the event has no payload; {_SHAPE}")
_BAD_ID = Problem(
    ErrorCode.MALFORMED,
    f"event_id is the event's idempotency key: text of 1 to {MAX_KEY_CHARACTERS} visible ASCII characters and no space",
)
_TOO_DEEP = Problem(ErrorCode.MALFORMED, "the payload is nested too deeply")


class Element(NamedTuple):
    """One event of a batch. `event_id` is None where its sender gave it no name."""

    type: str
    event_id: str | None
    payload: bytes


class _Members(msgspec.Struct, forbid_unknown_fields=True):
    type: str | msgspec.UnsetType = msgspec.UNSET
    event_id: str | msgspec.UnsetType = msgspec.UNSET
    payload: msgspec.Raw = _ABSENT


class _Untyped(msgspec.Struct, forbid_unknown_fields=True):
    type: msgspec.Raw = _ABSENT
    event_id: msgspec.Raw = _ABSENT
    payload: msgspec.Raw = _ABSENT


# An array of Raw would first make an object of each of millions of elements, its length judged afterwards. Of this one
# the decoder makes the first, one more than a batch may have, and only reads over the others.
_Array = msgspec.defstruct(
    "_Array", [(f"element_{place}", msgspec.Raw, _ABSENT) for place in range(MOST_EVENTS + 1)], array_like=True
)
_array = msgspec.json.Decoder(_Array)
_members = msgspec.json.Decoder(_Members)
_untyped = msgspec.json.Decoder(_Untyped)

_SHOWN = rb"\uffff"
"""What the decoder is shown for halves of surrogate pairs. Texts of type or name never have it."""

# Numbers stay text: some are longer than Python wants to convert.
_scanner = JSONDecoder(parse_int=str, parse_float=str, strict=False)


def read_elements(body: bytes, max_payload_bytes: int) -> list[Element | Problem]:
    """The elements in their order, each an event or what is wrong with it.

    Raises `Refused` where there is no array of at most `MOST_EVENTS` (`malformed`, `payload_too_large`).
    """
    try:
        shown, raw = decode_json(_split, body)
    except msgspec.ValidationError:
        raise refuse(ErrorCode.MALFORMED, f"a batch is a JSON array; {_SHAPE}") from None
    if len(raw) > MOST_EVENTS:
        raise refuse(
            ErrorCode.PAYLOAD_TOO_LARGE,
            f"a batch has at most {MOST_EVENTS} events; send these in several",
            limit_events=MOST_EVENTS,
        )
    elements = [_read(each, max_payload_bytes) for each in raw]
    if shown is not body:
        _restore(elements, raw, body)
    return elements


@lenient
def _split(text: bytes) -> tuple[bytes, list[msgspec.Raw]]:
    """The text that the decoder was shown, and its elements, or the first of them where there are too many."""
    return text, [each for each in msgspec.structs.astuple(_array.decode(text)) if each is not _ABSENT]


def _read(raw: msgspec.Raw, max_payload_bytes: int) -> Element | Problem:
    try:
        members = _members.decode(raw)
    except msgspec.ValidationError:
        read = _read_last(raw)
        if isinstance(read, Problem):
            return read
        members = read
    payload = bytes(members.payload)
    event_id = None if members.event_id is msgspec.UNSET else members.event_id
    if members.type is msgspec.UNSET or not members.type:
        return _NO_TYPE
    try:
        check_event_type(members.type)
        if event_id is not None:
            check_key(event_id)
    except InvalidEventType as fault:
        return Problem(ErrorCode.MALFORMED, str(fault))
    except InvalidKey:
        return _BAD_ID
    if not payload:
        return _NO_PAYLOAD
    if len(payload) > max_payload_bytes:
        detail = f"a payload may have at most {max_payload_bytes} bytes"
        return Problem(ErrorCode.PAYLOAD_TOO_LARGE, detail, {"limit_bytes": max_payload_bytes})
    return Element(members.type, event_id, payload)


def _read_last(raw: msgspec.Raw) -> _Members | Problem:
    """The members of an element of which one is no text: another of its name may follow, and that one counts."""
    try:
        members = _untyped.decode(raw)
    except msgspec.ValidationError as fault:
        return _told(str(fault))
    event_type, event_id = text_of(members.type), text_of(members.event_id)
    if not event_type:
        return _NO_TYPE
    if event_id is None and members.event_id:
        return _BAD_ID
    return _Members(event_type, msgspec.UNSET if event_id is None else event_id, members.payload)


def _told(fault: str) -> Problem:
    """What is wrong with an element, from what its decoder says."""
    if "unknown field" in fault:
        name = fault.partition("`")[2].rpartition("`")[0]
        return Problem(ErrorCode.MALFORMED, f"{name[:64]!a} is no member of a batch's events; {_SHAPE}")
    return Problem(ErrorCode.MALFORMED, _SHAPE)


def _restore(elements: list[Element | Problem], raw: Sequence[msgspec.Raw], body: bytes) -> None:
    """Give each element the payload that stands in the body, where the decoder was shown other characters.

    They took as many bytes, so what was read stands in the body where it stood in what was shown.
    """
    for place, (each, came) in enumerate(zip(raw, _slices(raw, body), strict=True)):
        element = elements[place]
        if isinstance(element, Element) and _SHOWN in element.payload and (shown := bytes(each)) != came:
            try:
                at = _place_of(element.payload, shown)
            except RecursionError:
                elements[place] = _TOO_DEEP
            else:
                elements[place] = element._replace(payload=came[at : at + len(element.payload)])


def _slices(raw: Sequence[msgspec.Raw], body: bytes) -> Iterator[bytes]:
    """The bytes of each element: between two of them are white space and one comma."""
    at = body.index(b"[") + 1
    for each in raw:
        at = _end(_BETWEEN_ELEMENTS.match(body, at), at)
        yield body[at : at + len(each)]
        at += len(each)


def _place_of(payload: bytes, element: bytes) -> int:
    """Where the payload stands, which is the last member of that name: both are known to be JSON.

    It is no number, so no other value begins with all of its bytes. Only other members are read, and those are short
    but for an earlier `payload`.
    """
    # Latin-1 gives each byte a character, so places in the text are places in the bytes.
    text = element.decode("latin-1")
    found = 0
    at = _next(text, 1)
    while text[at] != "}":
        name, at = _scanner.raw_decode(text, at)
        at = _next(text, at)
        if name == "payload" and element.startswith(payload, at):
            found, end = at, at + len(payload)
        else:
            _, end = _scanner.raw_decode(text, at)
        at = _next(text, end)
    return found


def _next(text: str, at: int) -> int:
    """Where the next name, value or end begins."""
    return _end(_BETWEEN_MEMBERS.match(text, at), at)


def _end(run: re.Match[Any] | None, at: int) -> int:
    """Where a run that began there ends. It is matched as one: bodies may be millions of blanks."""
    return at if run is None else run.end()
