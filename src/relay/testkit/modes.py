"""The modes: what each first path segment answers with.

Owns the table of modes and their options, as pure functions from a request to a `Reply`; carrying a reply out
is left to `answers`. Invariant: every option is checked and bounded here, so no reply can hold the receiver
longer, or make it send more, than the limits below.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from http import HTTPStatus
from urllib.parse import quote
from uuid import UUID

import msgspec

from relay.domain import ids
from relay.testkit.verification import Refusal

LONGEST_WAIT_MS = 600_000
LARGEST_BODY_KB = 1024 * 1024
LARGEST_BOMB_MB = 1024

HeaderLines = tuple[tuple[bytes, bytes], ...]

_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?|")
_URL_CHARACTERS = "!#$%&'()*+,/:;=?@[]~-._"
_TEXT: HeaderLines = ((b"content-type", b"text/plain; charset=utf-8"),)
_PROBLEM: HeaderLines = ((b"content-type", b"application/problem+json"),)


class BadOption(ValueError):
    """The path or the query of a request cannot be followed; the text says what would do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An ordinary response, at once."""

    status: int
    headers: HeaderLines = _TEXT
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Later:
    """An ordinary response after so many seconds."""

    seconds: float
    answer: Answer

    @property
    def status(self) -> int:
        """The status of the answer to come."""
        return self.answer.status


@dataclass(frozen=True, slots=True)
class Flood:
    """A body of so many bytes, as fast as it is read."""

    status: int
    size: int


@dataclass(frozen=True, slots=True)
class Trickle:
    """A response whose body never ends: a byte at once, and then one each `seconds`."""

    status: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Bomb:
    """A gzip body of a few kilobytes that unpacks to so many mebibytes of zeros."""

    mebibytes: int
    status: int = 200


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer at all; the connection stays open until the other side has enough."""

    status: None = None


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset: in the middle of a response's body, or before its first byte (status None)."""

    status: int | None = 200


@dataclass(frozen=True, slots=True)
class AckLater:
    """202 at once, and the explicit ack of the delivery after so many seconds."""

    seconds: float
    receipt_id: str
    delivery_id: str
    status: int = 202


Reply = Answer | Later | Flood | Trickle | Bomb | Hang | Reset | AckLater


@dataclass(frozen=True, slots=True)
class ModeRequest:
    """A complete request, as a mode sees it.

    `rest` is the path below the mode, split; `query` holds the last value of each option; header names are in
    lower case. `visit` counts the requests to this path, from 1. `refusal` is a function, since only one mode
    verifies.
    """

    path: str
    rest: tuple[str, ...]
    query: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    visit: int
    refusal: Callable[[], Refusal | None]


@dataclass(frozen=True, slots=True)
class Mode:
    """One mode: how it is asked for, what it does in a line, and the function that plans its reply."""

    usage: str
    summary: str
    plan: Callable[[ModeRequest], Reply]


def plan(mode: str, request: ModeRequest) -> Reply | None:
    """Decide the reply; None where there is no such mode. Raises `BadOption` where an option makes no sense."""
    known = MODES.get(mode)
    return None if known is None else known.plan(request)


def problem(status: int, code: str, detail: str) -> Answer:
    """A problem document (RFC 9457) as an answer."""
    document = {"title": HTTPStatus(status).phrase, "status": status, "code": code, "detail": detail}
    return Answer(status, _PROBLEM, msgspec.json.encode(document))


_OK = Answer(200, body=b"ok\n")


def _ok(_: ModeRequest) -> Reply:
    return _OK


def _verify(request: ModeRequest) -> Reply:
    refusal = request.refusal()
    return _OK if refusal is None else problem(401, refusal.reason, refusal.detail)


def _always500(_: ModeRequest) -> Reply:
    return _plain(500)


def _status(request: ModeRequest) -> Reply:
    code = request.rest[0] if request.rest else ""
    if not re.fullmatch(r"[2-5][0-9]{2}", code):
        raise BadOption("ask for a status from 200 to 599, for example /status/503")
    return _plain(int(code))


def _slow(request: ModeRequest) -> Reply:
    return Later(_seconds(request, 1_000), _plain(_status_option(request, 200)))


def _flaky(request: ModeRequest) -> Reply:
    share = _number(request, "pct", 50, most=100) / 100
    seed = request.query.get("seed", "")
    drawn = blake2b(f"{seed}\0{request.path}\0{request.visit}".encode(), digest_size=8).digest()
    fails = int.from_bytes(drawn, "big") < share * 2**64
    return _plain(_status_option(request, 500)) if fails else _OK


def _too_many(request: ModeRequest) -> Reply:
    value = request.query.get("retry_after", "1")
    return Answer(429, (*_TEXT, (b"retry-after", _header_value("retry_after", value))), b"too many requests\n")


def _bigbody(request: ModeRequest) -> Reply:
    kibibytes = _number(request, "kb", 1024, most=LARGEST_BODY_KB)
    return Flood(_status_option(request, 200), int(kibibytes * 1024))


def _trickle(request: ModeRequest) -> Reply:
    return Trickle(_status_option(request, 200), _seconds(request, 50, least=1))


def _hang(_: ModeRequest) -> Reply:
    return Hang()


def _reset(request: ModeRequest) -> Reply:
    at = request.query.get("at", "body")
    if at not in ("body", "start"):
        raise BadOption("at is body (in the middle of it) or start (before the first byte)")
    return Reset(200 if at == "body" else None)


def _redirect(request: ModeRequest) -> Reply:
    to = request.query.get("to", "/ok")
    status = _status_option(request, 302)
    if not 300 <= status <= 399:
        raise BadOption("status has to be from 300 to 399")
    return Answer(status, (*_TEXT, (b"location", quote(to, safe=_URL_CHARACTERS).encode())))


def _gzipbomb(request: ModeRequest) -> Reply:
    return Bomb(int(_number(request, "mb", 100, least=1, most=LARGEST_BOMB_MB)))


def _toggle(request: ModeRequest) -> Reply:
    every = int(_number(request, "every", 1, least=1, most=1_000_000))
    is_up = (request.visit - 1) // every % 2 == 0
    return _OK if is_up else _plain(_status_option(request, 500))


def _ack_later(request: ModeRequest) -> Reply:
    receipt_id = request.headers.get(b"relay-receipt-id", b"").decode("latin-1")
    delivery_id = request.headers.get(b"relay-delivery-id", b"").decode("latin-1")
    try:
        ids.parse(ids.RECEIPT, receipt_id)
        delivery = UUID(delivery_id)
    except ValueError:
        raise BadOption("an ack needs the headers Relay-Receipt-Id and Relay-Delivery-Id") from None
    return AckLater(_seconds(request, 1_000), receipt_id, str(delivery))


MODES: Mapping[str, Mode] = {
    "ok": Mode("/ok", "200", _ok),
    "verify": Mode("/verify", "200 if signature, timestamp and digest are right, else 401 with the reason", _verify),
    "always500": Mode("/always500", "500", _always500),
    "status": Mode("/status/{code}", "that status, 200 to 599", _status),
    "slow": Mode("/slow?ms=1000&status=200", "an answer after that time", _slow),
    "flaky": Mode("/flaky?pct=50&seed=&status=500", "fails that share of requests, the same ones each time", _flaky),
    "429": Mode("/429?retry_after=1", "429 with that Retry-After, sent as it is given", _too_many),
    "bigbody": Mode("/bigbody?kb=1024&status=200", "a body of that size", _bigbody),
    "trickle": Mode("/trickle?ms=50&status=200", "a body that drips a byte each so often and never ends", _trickle),
    "hang": Mode("/hang", "accepts, never answers", _hang),
    "reset": Mode("/reset?at=body", "resets the connection in mid-response, or before it (at=start)", _reset),
    "redirect": Mode("/redirect?to=/ok&status=302", "a redirect to that place", _redirect),
    "gzipbomb": Mode("/gzipbomb?mb=100", "a small gzip body that unpacks to that size", _gzipbomb),
    "toggle": Mode("/toggle?every=1&status=500", "flips up and down after every so many requests", _toggle),
    "ack-later": Mode("/ack-later?ms=1000", "202, and the explicit ack after that time", _ack_later),
}


def _plain(status: int) -> Answer:
    """The status with its phrase as the body, as far as that status may have one."""
    if status in (204, 205, 304):
        return Answer(status, ())
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "no name for this status"
    return Answer(status, body=f"{status} {phrase}\n".encode())


def _number(request: ModeRequest, name: str, default: float, *, most: float, least: float = 0) -> float:
    text = request.query.get(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise BadOption(f"{name} has to be a number from {least:g} to {most:g}")
    return number


def _seconds(request: ModeRequest, default_ms: float, *, least: float = 0) -> float:
    return _number(request, "ms", default_ms, least=least, most=LONGEST_WAIT_MS) / 1000


def _status_option(request: ModeRequest, default: int) -> int:
    return int(_number(request, "status", default, least=200, most=599))


def _header_value(name: str, value: str) -> bytes:
    if not _HEADER_VALUE.fullmatch(value):
        raise BadOption(f"{name} has to be visible ASCII, or empty")
    return value.encode("ascii")
