"""The text of a chat message: the event's type, then its payload as far as the platform has room for it.

Owns the reading of a payload as text and the cut. JSON is laid out over lines, and no token of it is changed: numbers,
escapes, key order and repeated names stand as they were posted. Invariant: what comes out fits the limit in the unit
that it is counted in, is never empty, ends in the mark where something is missing, and is cut between characters that
a reader sees as one, never inside of them (within reason: a character made of hundreds of marks is cut at its limit).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import msgspec

MARK = "\N{HORIZONTAL ELLIPSIS}"
"""What a text ends in that was cut."""

READ_BYTES = 64 * 1024
"""How much of a payload is looked at: many times what any message has room for."""

DEEPEST_INDENT = 8
"""Levels of nesting that are shown by spaces; deeper ones stand where the last of these does."""

_LONGEST_CLUSTER = 64
"""Code points that the cut goes back at most to spare what looks like one character."""

_ZERO_WIDTH_JOINER = "\N{ZERO WIDTH JOINER}"
# The last of a text that was cut may be half a string; white space in between is skipped by matching nothing of it.
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\]:,]|[^\s"{}\[\]:,]+')
# Control characters as the pictures that Unicode has for them: platforms drop, replace or refuse the real ones.
_VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421}


class Unit(Enum):
    """What a platform counts."""

    UTF16 = "UTF-16 code units"
    CODE_POINTS = "code points"


def width(text: str, unit: Unit) -> int:
    """How long the text is in that unit."""
    return len(text) if unit is Unit.CODE_POINTS else len(text) + sum(character > "\uffff" for character in text)


def fitted(text: str, limit: int, unit: Unit, *, is_whole: bool = True) -> str:
    """The text, cut to the limit and marked where it is longer, or where `is_whole` says that it goes on anyway."""
    if is_whole and width(text, unit) <= limit:
        return text
    end = _room(text, limit - width(MARK, unit), unit)
    return text[: _boundary(text, end)] + MARK


@dataclass(frozen=True, slots=True)
class Readable:
    """A payload as text for people.

    `is_whole` says whether the text is all of it, `is_json` whether it is laid out, and `is_note` that it is about the
    payload, which is no text.
    """

    text: str
    is_whole: bool = True
    is_json: bool = False
    is_note: bool = False


def readable(payload: bytes, content_type: str) -> Readable:
    """The payload as text for people."""
    if not payload:
        return Readable("(no payload)", is_note=True)
    kind = content_type.partition(";")[0].strip().lower()
    head = payload[:READ_BYTES]
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        if len(head) == len(payload) or fault.reason != "unexpected end of data":
            return Readable(f"({len(payload)} bytes, not UTF-8, {_visible(kind) or 'of no type'})", is_note=True)
        text = head[: fault.start].decode("utf-8-sig")
    is_whole = len(head) == len(payload)
    if kind.endswith(("/json", "+json")) and _is_json(payload):
        return Readable(_laid_out(text), is_whole, is_json=True)
    return Readable(_visible(text), is_whole)


def _visible(text: str) -> str:
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def _is_json(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _laid_out(text: str) -> str:
    """JSON over lines, token by token as it came; it may break off anywhere."""
    return "".join(_lines(_JSON_TOKEN.findall(text)))


def _lines(words: list[str]) -> Iterator[str]:
    depth = 0
    before = ""
    for word in words:
        if word in "}]":
            depth -= 1
            if before not in "{[":
                yield _line(depth)
        elif before in ("{", "[", ","):
            yield _line(depth)
        yield ": " if word == ":" else word
        if word in "{[":
            depth += 1
        before = word


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, DEEPEST_INDENT)


def _room(text: str, limit: int, unit: Unit) -> int:
    """How many of the text's code points have room."""
    if unit is Unit.CODE_POINTS:
        return min(limit, len(text))
    taken = 0
    for place, character in enumerate(text):
        taken += 2 if character > "\uffff" else 1
        if taken > limit:
            return place
    return len(text)


def _boundary(text: str, end: int) -> int:
    """The last place up to `end` where a cut parts nothing that looks like one character (UAX 29, in its main parts).

    A text that ends there, or whose characters are too long to spare, is cut at `end` itself.
    """
    if end >= len(text):
        return end
    for place in range(end, max(end - _LONGEST_CLUSTER, 0), -1):
        if not _joined(text, place):
            return place
    return end


def _joined(text: str, place: int) -> bool:
    """Whether the characters before and at that place belong together."""
    before, after = text[place - 1], text[place]
    if _ZERO_WIDTH_JOINER in (before, after) or _extends(after):
        return True
    if not (_is_flag_half(before) and _is_flag_half(after)):
        return False
    start = place
    while start > 0 and _is_flag_half(text[start - 1]):
        start -= 1
    return (place - start) % 2 == 1


def _extends(character: str) -> bool:
    """Whether it changes the one before: accents, variation selectors, skin tones, tags of flags."""
    if unicodedata.category(character) in ("Mn", "Me", "Mc"):
        return True
    return "\U0001f3fb" <= character <= "\U0001f3ff" or "\U000e0020" <= character <= "\U000e007f"


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
