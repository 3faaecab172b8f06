"""Requests that come in signed: by the scheme by which Relay signs its own.

Owns the reading of the three headers, the freshness window, the comparison, and what makes a signed request the same
one again. Whose the secrets are is judged in `credentials`. Invariant: nothing but the exact bytes of the body and the
exact text of the timestamp is compared, in a time that depends on neither secret nor signature.

    Relay-Source: <name of the source>
    Relay-Timestamp: <Unix seconds>
    Relay-Signature: v1=<hex>[,v1=<hex>]      HMAC-SHA256 of <timestamp>.<raw body>, key = UTF-8 of the whole secret

A signature says nothing of the other headers. So whoever listens could send the same body again under another name or
as another type while it is fresh; a request that was signed alike is therefore the same one, or refused.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass

from relay.domain.signing import Signer

WINDOW_SECONDS = 300
"""How far a timestamp may be from the clock of whoever checks it, to either side."""

KEPT_SECONDS = 900
"""How long a signed request is known again: longer than its timestamp is fresh to any clock that is right enough."""

_MOST_SIGNATURES = 8
_TIMESTAMP = re.compile(r"[1-9][0-9]{0,11}")
_V1 = re.compile(r"v1=([0-9a-fA-F]{64})")


class InvalidSignature(ValueError):
    """The headers are no signature that could hold; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A request's signature as it was read: in whose name, when, and the codes of which one has to be right."""

    source: str
    timestamp: str
    codes: tuple[bytes, ...]

    def holds(self, signer: Signer, body: bytes) -> bool:
        """Whether one of the codes is that of the signer's newest secret over this body."""
        right = signer.keys[0].code(f"{self.timestamp}.".encode(), body)
        # all of them are compared, however soon one is right
        return sum(hmac.compare_digest(right, code) for code in self.codes) > 0

    def digest(self, body: bytes) -> bytes:
        """What a request that is signed alike has in common with this one, whichever secret signed it."""
        return hashlib.sha256(f"{self.timestamp}.".encode() + hashlib.sha256(body).digest()).digest()


def read_signature(source: str, timestamp: str, signature: str, now: float) -> Signed:
    """Read the headers; `now` is Unix time in seconds. Raises `InvalidSignature`."""
    if not _TIMESTAMP.fullmatch(timestamp):
        raise InvalidSignature("Relay-Timestamp is the time of signing in whole Unix seconds")
    if abs(int(timestamp) - now) > WINDOW_SECONDS:
        raise InvalidSignature(
            f"Relay-Timestamp is more than {WINDOW_SECONDS} s away from this gateway's clock: sign each request anew,"
            " and set the clock right"
        )
    codes = _read_codes(signature)
    if not codes:
        raise InvalidSignature("Relay-Signature is v1= and the HMAC-SHA256 in 64 hexadecimal digits")
    return Signed(source, timestamp, codes)


def _read_codes(signature: str) -> tuple[bytes, ...]:
    """The codes of the version that is known here; others may stand beside them."""
    parts: Iterable[str] = signature.split(",", _MOST_SIGNATURES)[:_MOST_SIGNATURES]
    found = [_V1.fullmatch(part.strip(" \t")) for part in parts]
    return tuple(bytes.fromhex(each[1]) for each in found if each)


def fingerprint(path: str, name: str | None, event_type: str | None) -> bytes:
    """What else must be the same for a request that is signed alike to be the same one: 32 bytes."""
    said = b"\0".join((path.encode(), (name or "").encode(), (event_type or "").encode()))
    return hashlib.sha256(said).digest()


def name_of(digest: bytes, place: int | None = None) -> str:
    """The name of a signed request that bears none, or of one event of it. No sender can write one: it has a space."""
    return f"signed {digest.hex()}" if place is None else f"signed {digest.hex()} {place}"
