"""What may stand in an outgoing request's headers: the customer's own, and text that an event's sender chose.

Owns the rules for custom headers, checked when an endpoint is written so that nothing can fail at send, and the
encoding of senders' text. Invariants: a custom header never meets one that Relay, a signature profile or HTTP itself
sets; whatever passed here holds no line break, no NUL and no byte outside of ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_HEADERS = 32
MAX_BYTES = 8192
"""Bound of all custom headers together, counted as they stand on the wire (`name: value` and a line end)."""

RESERVED = frozenset({
    # of the connection (RFC 9110, 7.6.1, and what older software knows) and of the message's frame
    "connection", "host", "http2-settings", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
    # behaviour that is Relay's to decide: no compressed answers, no waiting for 100, no cookies
    "accept-encoding", "cookie", "expect", "user-agent",
    # continued from the event
    "traceparent", "tracestate",
    # of the signature profiles
    "stripe-signature", "x-hub-signature", "x-hub-signature-256",
})  # fmt: skip
"""Names that are not the customer's, in lower case."""

RESERVED_PREFIXES = ("ce-", "content-", "proxy-", "relay-", "webhook-", "x-github-")
"""Beginnings of names that are not the customer's, in lower case."""

HIDDEN = "***"
"""What is shown for a value that may be a credential; written back, it stands for the value that is there."""

_CREDENTIAL = re.compile("auth|credential|key|pass|secret|session|sign|token", re.IGNORECASE)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
# RFC 9110, 5.5 without obs-text: non-ASCII bytes have no agreed meaning, and not every client can send them.
_VALUE = re.compile(r"(?:[!-~](?:[ \t!-~]*[!-~])?)?")
_NOT_IN_A_VALUE = re.compile(r"[^\t -~]+")
_NOT_IN_AN_ID = re.compile(r"[^!-~]+")


class InvalidHeaders(ValueError):
    """The headers cannot be taken; the message names every fault, `reserved` the names that are Relay's or HTTP's."""

    def __init__(self, faults: tuple[str, ...], reserved: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults
        self.reserved = reserved


def is_reserved(name: str) -> bool:
    """Whether the header belongs to Relay, a signature profile or HTTP itself, in whatever case it is written."""
    lowered = name.lower()
    return lowered in RESERVED or lowered.startswith(RESERVED_PREFIXES)


def check_custom_headers(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Check a customer's headers and return them in order, names in the case given.

    Names are tokens (RFC 9110, 5.6.2), values are visible ASCII with spaces and tabs inside. Raises `InvalidHeaders`
    with all faults at once; no message repeats a value, since values are often credentials.
    """
    reserved = tuple(name for name in headers if _TOKEN.fullmatch(name) and is_reserved(name))
    faults = (*_form_faults(headers), *_reserved_faults(reserved), *_size_faults(headers))
    if faults:
        raise InvalidHeaders(faults, reserved)
    return tuple(headers.items())


def shown_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """A customer's headers for people: with stars where the name says that the value opens something."""
    return {name: HIDDEN if value and _CREDENTIAL.search(name) else value for name, value in headers.items()}


def restored_headers(wanted: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Headers as they were shown, and perhaps changed, with what the stars stand for, from those that are `known`.

    Raises `InvalidHeaders` where they stand for nothing: sent as they are, they would open nothing.
    """
    values = {name.lower(): value for name, value in known.items()}
    stars = {name for name in wanted if wanted[name] == HIDDEN and _CREDENTIAL.search(name)}
    unknown = tuple(name for name in wanted if name in stars and name.lower() not in values)
    if unknown:
        raise InvalidHeaders(
            tuple(f"there is no value yet that {HIDDEN} could keep for {name}" for name in unknown), ()
        )
    return {name: values[name.lower()] if name in stars else value for name, value in wanted.items()}


def wire_value(text: str) -> str:
    """The text as a header's value: printable ASCII and tabs stay, all else becomes `%XY`, per byte of its UTF-8."""
    if text.isascii() and text.isprintable():
        return text
    return _NOT_IN_A_VALUE.sub(_percent_encode, text)


def wire_id(text: str) -> str:
    """A sender's id as a header's value: like `wire_value`, and spaces and tabs are encoded too, so none gets lost.

    An id of visible ASCII, percent signs included, arrives as its sender wrote it. So an id that already held `%XY`
    cannot be told from an encoded one; the receipt has the exact text.
    """
    if text.isascii() and text.isprintable() and " " not in text:
        return text
    return _NOT_IN_AN_ID.sub(_percent_encode, text)


def _percent_encode(match: re.Match[str]) -> str:
    # Lone surrogates, which JSON can spell, have no UTF-8: their bytes are encoded rather than the event refused here.
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def _form_faults(headers: Mapping[str, str]) -> list[str]:
    faults = []
    seen: set[str] = set()
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            faults.append(f"{name[:64]!a} is not a header name")
        elif name.lower() in seen:
            faults.append(f"{name} is given twice, in different case")
        if not _VALUE.fullmatch(value):
            faults.append(
                f"the value of {name[:64]!a} must be visible ASCII, with spaces or tabs only inside, on one line"
            )
        seen.add(name.lower())
    return faults


def _reserved_faults(reserved: tuple[str, ...]) -> list[str]:
    if not reserved:
        return []
    all_of_them = ", ".join([*sorted(RESERVED), *(f"{prefix}*" for prefix in RESERVED_PREFIXES)])
    return [f"{', '.join(reserved)} cannot be set; reserved are {all_of_them}"]


def _size_faults(headers: Mapping[str, str]) -> list[str]:
    faults = []
    if len(headers) > MAX_HEADERS:
        faults.append(f"at most {MAX_HEADERS} headers can be set")
    if sum(len(name) + len(value) + 4 for name, value in headers.items()) > MAX_BYTES:
        faults.append(f"all headers together have at most {MAX_BYTES} bytes")
    return faults
