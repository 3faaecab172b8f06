"""What a careful endpoint checks: is the request signed with a secret it knows, is it fresh, is the body
whole?

Owns the receiving half of the four signature profiles, written from their published descriptions with `hmac`
alone. It shares no code with the side that signs, so each is a check of the other. Invariant: a request
passes only if every signature header that it bears is right, and it bears at least one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from relay.domain.secret import Secret

FRESHNESS_SECONDS = 300.0
"""How far a timestamp may be from now, into the past or the future: what the receiving libraries allow."""

_TIMESTAMP = re.compile(rb"[0-9]{1,12}")
_HEX_DIGEST = re.compile(rb"[0-9a-f]{64}")
_RELAY_SIGNATURE = re.compile(rb"v1=[0-9a-f]{64}(?:,v1=[0-9a-f]{64})*")
_STANDARD_SIGNATURE = re.compile(rb"[a-z0-9]+,[A-Za-z0-9+/]+={0,2}(?: [a-z0-9]+,[A-Za-z0-9+/]+={0,2})*")
_STRIPE_SIGNATURE = re.compile(rb"t=([0-9]{1,12})((?:,v[0-9]+=[0-9a-f]{64})+)")
_CONTENT_DIGEST = re.compile(rb"sha-256=:([A-Za-z0-9+/]+={0,2}):")


class RefusalReason(StrEnum):
    """Why a request was answered with 401."""

    SIGNATURE_MISSING = "signature_missing"
    HEADER_MISSING = "header_missing"
    SIGNATURE_MALFORMED = "signature_malformed"
    TIMESTAMP_MALFORMED = "timestamp_malformed"
    TIMESTAMP_STALE = "timestamp_stale"
    SECRET_MISSING = "secret_missing"  # noqa: S105 - a reason, no secret
    SECRET_UNUSABLE = "secret_unusable"  # noqa: S105 - a reason, no secret
    SIGNATURE_MISMATCH = "signature_mismatch"
    DIGEST_MISMATCH = "digest_mismatch"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that does not pass, with a sentence for the person who looks into it."""

    reason: RefusalReason
    detail: str


class _Refused(Exception):
    """Carries a refusal out of a check; never leaves this module."""

    def __init__(self, reason: RefusalReason, detail: str) -> None:
        super().__init__(detail)
        self.refusal = Refusal(reason, detail)


@dataclass(frozen=True, slots=True)
class _Received:
    """A request as the checks see it; header names in lower case, secrets newest first, `now` in Unix
    seconds.
    """

    headers: Mapping[bytes, bytes]
    body: bytes
    secrets: Sequence[Secret]
    now: float
    window: float

    def header(self, name: bytes) -> bytes:
        """The header's value; a request without it is refused."""
        value = self.headers.get(name)
        if not value:
            raise _Refused(RefusalReason.HEADER_MISSING, f"the header {name.decode()} is missing or empty")
        return value

    def demand_fresh(self, timestamp: bytes) -> None:
        """Refuse a timestamp that is no Unix seconds, or too far from now in either direction."""
        if not _TIMESTAMP.fullmatch(timestamp):
            raise _Refused(RefusalReason.TIMESTAMP_MALFORMED, f"not Unix seconds: {timestamp[:40]!r}")
        off = self.now - int(timestamp)
        if abs(off) > self.window:
            side = "old" if off > 0 else "ahead"
            raise _Refused(RefusalReason.TIMESTAMP_STALE, f"{abs(off):.0f} s {side}; the window is {self.window:.0f} s")

    def demand_match(self, offered: Sequence[bytes], expected: Iterable[bytes]) -> None:
        """Refuse unless one offered signature is one of the expected ones. Every pair is compared in constant
        time.
        """
        known = list(expected)
        if not known:
            raise _Refused(RefusalReason.SECRET_MISSING, "no secret is known yet: POST it to /secret")
        matches = [hmac.compare_digest(theirs, ours) for theirs in offered for ours in known]
        if not any(matches):
            raise _Refused(RefusalReason.SIGNATURE_MISMATCH, f"signed with none of the {len(known)} known secrets")


def verify(
    headers: Mapping[bytes, bytes],
    body: bytes,
    secrets: Sequence[Secret],
    *,
    now: float,
    window: float = FRESHNESS_SECONDS,
) -> Refusal | None:
    """Check every signature that the request bears, and its `Content-Digest`; None means that it passes.

    `headers` have lower-case names, `now` is Unix seconds, `window` seconds. GitHub's scheme has no
    timestamp, so its freshness is not checked.
    """
    received = _Received(headers, body, secrets, now, window)
    checks = [check for name, check in _CHECKS.items() if name in headers]
    if not checks:
        names = ", ".join(name.decode() for name in _CHECKS)
        return Refusal(RefusalReason.SIGNATURE_MISSING, f"the request has none of {names}")
    try:
        for check in checks:
            check(received)
        _check_digest(received)
    except _Refused as refused:
        return refused.refusal
    return None


def _check_relay(received: _Received) -> None:
    """`v1=<hex>[,v1=<hex>]` over `<timestamp>.<body>`; the key is the whole text of the secret."""
    timestamp = received.header(b"relay-timestamp")
    signature = received.header(b"relay-signature")
    received.header(b"relay-delivery-id")
    if not _RELAY_SIGNATURE.fullmatch(signature):
        raise _Refused(RefusalReason.SIGNATURE_MALFORMED, "not of the form v1=<64 hexadecimal digits>[,v1=…]")
    received.demand_fresh(timestamp)
    signed = timestamp + b"." + received.body
    received.demand_match(
        [part[3:] for part in signature.split(b",")],
        (_hex_hmac(secret, signed) for secret in received.secrets),
    )


def _check_stripe(received: _Received) -> None:
    """`t=<seconds>,v1=<hex>[,v1=<hex>][,v0=<hex>]` over `<t>.<body>`; the key is the whole text of the
    secret.
    """
    match = _STRIPE_SIGNATURE.fullmatch(received.header(b"stripe-signature"))
    if match is None:
        raise _Refused(RefusalReason.SIGNATURE_MALFORMED, "not of the form t=<seconds>,v1=<64 hexadecimal digits>")
    timestamp, pairs = match[1], match[2][1:].split(b",")
    received.demand_fresh(timestamp)
    signed = timestamp + b"." + received.body
    received.demand_match(
        [pair[3:] for pair in pairs if pair.startswith(b"v1=")],
        (_hex_hmac(secret, signed) for secret in received.secrets),
    )


def _check_github(received: _Received) -> None:
    """`sha256=<hex>` over the body alone; the key is the whole text of the secret."""
    received.header(b"x-github-event")
    received.header(b"x-github-delivery")
    scheme, _, digest = received.header(b"x-hub-signature-256").partition(b"=")
    if scheme != b"sha256" or not _HEX_DIGEST.fullmatch(digest):
        raise _Refused(RefusalReason.SIGNATURE_MALFORMED, "not of the form sha256=<64 hexadecimal digits>")
    received.demand_match([digest], (_hex_hmac(secret, received.body) for secret in received.secrets))


def _check_standard(received: _Received) -> None:
    """Standard Webhooks: `v1,<base64>`, several parted by one space, over `<id>.<timestamp>.<body>`."""
    message_id = received.header(b"webhook-id")
    timestamp = received.header(b"webhook-timestamp")
    signature = received.header(b"webhook-signature")
    if b"." in message_id:
        raise _Refused(RefusalReason.SIGNATURE_MALFORMED, "webhook-id may not contain a full stop")
    if not _STANDARD_SIGNATURE.fullmatch(signature):
        raise _Refused(RefusalReason.SIGNATURE_MALFORMED, "not of the form v1,<base64>[ v1,<base64>]")
    received.demand_fresh(timestamp)
    signed = message_id + b"." + timestamp + b"." + received.body
    keys = [key for secret in received.secrets if (key := _standard_key(secret)) is not None]
    if received.secrets and not keys:
        raise _Refused(RefusalReason.SECRET_UNUSABLE, "no known secret is whsec_ and standard base64")
    received.demand_match(
        [item[3:] for item in signature.split(b" ") if item.startswith(b"v1,")],
        (base64.b64encode(hmac.digest(key, signed, "sha256")) for key in keys),
    )


def _check_digest(received: _Received) -> None:
    """Where there is a `Content-Digest` with sha-256 (RFC 9530), it has to be the body's."""
    match = _CONTENT_DIGEST.search(received.headers.get(b"content-digest", b""))
    if match is None:
        return
    actual = base64.b64encode(hashlib.sha256(received.body).digest())
    if match[1] != actual:
        raise _Refused(RefusalReason.DIGEST_MISMATCH, f"the body's sha-256 is {actual.decode()}")


_CHECKS: Mapping[bytes, Callable[[_Received], None]] = {
    b"relay-signature": _check_relay,
    b"webhook-signature": _check_standard,
    b"stripe-signature": _check_stripe,
    b"x-hub-signature-256": _check_github,
}


def _hex_hmac(secret: Secret, signed: bytes) -> bytes:
    return hmac.digest(secret.expose().encode(), signed, "sha256").hex().encode()


def _standard_key(secret: Secret) -> bytes | None:
    """The key bytes of a Standard Webhooks secret, or None if the text is not one."""
    try:
        return base64.b64decode(secret.expose().removeprefix("whsec_"), validate=True) or None
    except (binascii.Error, ValueError):
        return None
