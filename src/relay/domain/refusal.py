"""Why a url or an address is refused: one word for programs, one sentence for people.

Owns the closed set of reasons. The same word is stored with the attempt, counted and shown. Invariant: a sentence says
what to do about it and holds neither a credential nor an address that only this network's resolver could know.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RefusalReason(StrEnum):
    """What the egress policy objects to: first the url's own form, then the address behind it."""

    MALFORMED = "malformed"
    TOO_LONG = "too_long"
    SCHEME = "scheme"
    USERINFO = "userinfo"
    FRAGMENT = "fragment"
    HOST = "host"
    PORT = "port"
    CREDENTIAL = "credential"

    NO_ADDRESS = "no_address"
    UNREADABLE_ADDRESS = "unreadable_address"
    OWN_ADDRESS = "own_address"
    UNSPECIFIED = "unspecified"
    LOOPBACK = "loopback"
    PRIVATE = "private"
    SHARED = "shared"
    LINK_LOCAL = "link_local"
    METADATA = "metadata"
    MULTICAST = "multicast"
    BROADCAST = "broadcast"
    DOCUMENTATION = "documentation"
    TRANSITION = "transition"
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A decision not to send: the reason, and a sentence that says what to do instead."""

    reason: RefusalReason
    detail: str
