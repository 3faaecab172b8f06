"""What is sent and what came of it: the records between transports, sender and judge.

Owns the shapes only. A request is complete before it is handed to the sender, and facts are complete before they are
judged; nothing in between decides. Invariant: neither record holds a credential in a field that is shown or stored
(`display_url` is the url with any credential replaced).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class ErrorClass(StrEnum):
    """Why no response came, or what cut it short. Stored with the attempt; one word for one cause."""

    DNS_FAILED = "dns_failed"
    DNS_TIMEOUT = "dns_timeout"
    CONNECT_REFUSED = "connect_refused"
    CONNECT_FAILED = "connect_failed"
    CONNECT_TIMEOUT = "connect_timeout"
    TLS_FAILED = "tls_failed"
    TLS_CERTIFICATE = "tls_certificate"
    RESET = "reset"
    PROTOCOL = "protocol"
    SILENCE_TIMEOUT = "silence_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    REFUSED_URL = "refused_url"
    REFUSED_ADDRESS = "refused_address"
    CUT_SHORT = "cut_short"
    """This side ended it, for a reason of its own, when the request may have left: nothing was learned about the
    endpoint, which may have got it."""
    LEASE_EXPIRED = "lease_expired"
    """The process that made it died or stood still: its lease ran out before an answer was recorded. The request may
    have left, and may even have been answered."""
    LOCAL = "local"
    """This machine's own trouble (no file descriptors, no memory), and no byte of the request left it: nothing was
    learned about the endpoint, and it learned nothing of the delivery."""


class Meaning(StrEnum):
    """What a platform's answer means where its status alone would say something else. Only chat transports set it."""

    GONE = "gone"
    """This endpoint takes nothing any more: its token, its chat or its webhook is no longer good."""
    THROTTLED = "throttled"
    """All of this side's requests are unwanted for a while, whatever the status says."""
    UNPROVEN = "unproven"
    """The status says yes, and the body does not say that the message is there."""


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    """One POST, ready to go. `url` may hold a credential and is used, never shown; `timeout_seconds` bounds the whole
    attempt from the hand-over to the sender, name resolution included. `silence_seconds` is how long an endpoint that
    names a time of its own may be silent where the sender's bound is shorter; 0 where it names none."""

    url: str = field(repr=False)
    display_url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)
    timeout_seconds: float
    silence_seconds: float = 0.0


class Phases(NamedTuple):
    """Where the time of an attempt went, in milliseconds; None where the attempt did not get so far. A tuple, since one
    is made per attempt.

    `wait_ms` runs from the claim to the hand-over to the network, `connect_ms` covers name resolution, TCP and TLS
    (0 on a kept connection), `send_ms` until the request was written, `first_byte_ms` until the response began,
    `total_ms` is everything after the wait.
    """

    wait_ms: float = 0.0
    connect_ms: float | None = None
    send_ms: float | None = None
    first_byte_ms: float | None = None
    total_ms: float = 0.0


class SendFacts(NamedTuple):
    """What came of one attempt. A tuple, since one is made each time.

    `status_code` is set as soon as a status line and headers were in, even if the body was cut short afterwards (then
    `error_class` tells why as well). `headers` are the response's, names in lower case, in order,
    and left empty for a 2xx, where nobody needs them; `snippet` is the
    stored head of the body as raw bytes (at most 4 KiB); `detail` is a line for people, free of credentials.
    `meaning` is set by a transport whose platform says more than its status does, and then decides.
    """

    status_code: int | None = None
    error_class: ErrorClass | None = None
    headers: tuple[tuple[str, str], ...] = ()
    snippet: bytes = b""
    detail: str = ""
    phases: Phases = Phases()
    meaning: Meaning | None = None
