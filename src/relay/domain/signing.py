"""Signatures: what proves to a receiver that a request came from Relay and arrived as it was sent.

Owns the signature profiles, the rules for secrets and the names of the signature headers. Every profile is an
HMAC-SHA256 over the exact bytes of the body; a profile is nothing but a choice of key, signed text and headers, made so
that the vendor's own library verifies it:

    profile    key                           signed                  header
    relay      UTF-8 of the whole secret     <seconds>.<body>        Relay-Signature: v1=<hex>[,v1=<hex>]
    standard   base64-decoded after whsec_   <id>.<seconds>.<body>   webhook-signature: v1,<base64>[ v1,<base64>]
    stripe     UTF-8 of the whole secret     <seconds>.<body>        Stripe-Signature: t=<seconds>,v1=<hex>[,v1=<hex>]
    github     UTF-8 of the whole secret     <body>                  X-Hub-Signature-256: sha256=<hex>
    none       –                             –                       –

While a rotation's overlap runs, the previous secret signs beside the new one, newest first; github's header has room
for one signature, so there the new secret signs alone. Invariant: a signer is made once per set of secrets and holds
them only as hash states, which no printable form shows.

Secrets, published rule (checked when they are written, so that signing cannot fail):

- Relay makes `whsec_` + base64 of 32 random bytes: right for every profile, and exactly what vendors' libraries take.
- A secret of one's own for `standard` is `whsec_` + base64 (standard alphabet, padded) of 24 to 64 bytes.
- For every other profile it is 16 to 256 printable ASCII characters, spaces only inside. All of it is the key, a
  `whsec_` at its start included.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import assert_never
from uuid import UUID

from relay.domain.endpoint import SignatureProfile
from relay.domain.secret import Secret

RELAY_TIMESTAMP = "Relay-Timestamp"
RELAY_SIGNATURE = "Relay-Signature"
WEBHOOK_ID = "webhook-id"
WEBHOOK_TIMESTAMP = "webhook-timestamp"
WEBHOOK_SIGNATURE = "webhook-signature"
STRIPE_SIGNATURE = "Stripe-Signature"
GITHUB_SIGNATURE = "X-Hub-Signature-256"
GITHUB_EVENT = "X-GitHub-Event"
GITHUB_DELIVERY = "X-GitHub-Delivery"

SECRET_PREFIX = "whsec_"  # noqa: S105 - it names the kind, it is not one
SECRET_ENTROPY_BYTES = 32

_MIN_KEY_BYTES, _MAX_KEY_BYTES = 24, 64
_BLOCK_BYTES = 64
_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))
_TEXT_SECRET = re.compile(r"[!-~][ -~]{14,254}[!-~]")

Headers = tuple[tuple[str, str], ...]


class InvalidSecret(ValueError):
    """The text is no secret for that profile. The message says what to do and holds nothing of the text."""


class _Key:
    """HMAC-SHA256 with the key already absorbed: RFC 2104, 4 (keeping the two intermediate hash states).

    Half the time of `hmac.digest`, which hashes both padded keys anew for each message; a test holds it to that
    function's results.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        if len(key) > _BLOCK_BYTES:
            key = hashlib.sha256(key).digest()
        block = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(block.translate(_INNER_PAD))
        self._outer = hashlib.sha256(block.translate(_OUTER_PAD))

    def code(self, prefix: bytes, body: bytes) -> bytes:
        """The 32 bytes that authenticate `prefix` and `body`."""
        inner = self._inner.copy()
        inner.update(prefix)
        inner.update(body)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()


@dataclass(frozen=True, slots=True)
class Signer:
    """A profile with its keys ready, newest first; made by `prepare`, used for any number of requests."""

    profile: SignatureProfile
    keys: tuple[_Key, ...] = field(repr=False)

    def headers(self, timestamp: int, delivery_id: UUID, event_type: str, body: bytes) -> Headers:
        """The signature headers of one attempt: `timestamp` in Unix seconds, `body` exactly as it is sent."""
        match self.profile:
            case SignatureProfile.RELAY:
                return _relay(self.keys, timestamp, body)
            case SignatureProfile.STANDARD:
                return _standard(self.keys, timestamp, str(delivery_id), body)
            case SignatureProfile.STRIPE:
                return _stripe(self.keys, timestamp, body)
            case SignatureProfile.GITHUB:
                return _github(self.keys[0], str(delivery_id), event_type, body)
            case SignatureProfile.NONE:
                return ()
            case _:
                assert_never(self.profile)


def prepare(profile: SignatureProfile, secrets: tuple[Secret, ...]) -> Signer:
    """Make a signer from the secrets, newest first: one, or two while a rotation's overlap runs.

    Raises `InvalidSecret` if a `standard` secret is not of its form, `ValueError` if there is none to sign with.
    """
    if profile is SignatureProfile.NONE:
        return Signer(profile, ())
    if not secrets:
        raise ValueError(f"the signature profile {profile} needs a secret")
    to_bytes = _decode_standard if profile is SignatureProfile.STANDARD else str.encode
    return Signer(profile, tuple(_Key(to_bytes(secret.expose())) for secret in secrets))


def new_secret(entropy: bytes) -> Secret:
    """Make a secret that suits every profile from `SECRET_ENTROPY_BYTES` random bytes."""
    if len(entropy) != SECRET_ENTROPY_BYTES:
        raise ValueError(f"a secret is made from {SECRET_ENTROPY_BYTES} random bytes")
    return Secret(SECRET_PREFIX + b64encode(entropy).decode())


def check_secret(profile: SignatureProfile, text: str) -> Secret:
    """Take a secret of the customer's own. Raises `InvalidSecret` unless the profile's rule (above) is met.

    A change of profile needs the check anew: what is right for `stripe` need not be for `standard`.
    """
    if text.startswith("v1,"):
        raise InvalidSecret("leave out the v1, in front: the secret starts with whsec_")
    if not _TEXT_SECRET.fullmatch(text):
        raise InvalidSecret("a secret has 16 to 256 printable ASCII characters, with spaces only inside")
    if profile is SignatureProfile.STANDARD:
        _decode_standard(text)
    return Secret(text)


def _decode_standard(text: str) -> bytes:
    encoded = text.removeprefix(SECRET_PREFIX)
    if len(encoded) == len(text):
        raise InvalidSecret("a secret for Standard Webhooks starts with whsec_")
    try:
        key = b64decode(encoded, validate=True)
    except ValueError:
        key = b""
    # The comparison refuses what decoders take in different ways: stray bits in the last character, odd padding.
    if b64encode(key).decode() != encoded:
        raise InvalidSecret(
            "after whsec_ belongs base64 in the standard alphabet (with + and /), padded with = to a multiple of four"
        )
    if not _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise InvalidSecret(f"after whsec_ belongs base64 of {_MIN_KEY_BYTES} to {_MAX_KEY_BYTES} random bytes")
    return key


def _relay(keys: tuple[_Key, ...], timestamp: int, body: bytes) -> Headers:
    seconds = str(timestamp)
    prefix = f"{seconds}.".encode()
    signature = ",".join(["v1=" + key.code(prefix, body).hex() for key in keys])
    return (RELAY_TIMESTAMP, seconds), (RELAY_SIGNATURE, signature)


def _standard(keys: tuple[_Key, ...], timestamp: int, message_id: str, body: bytes) -> Headers:
    seconds = str(timestamp)
    prefix = f"{message_id}.{seconds}.".encode()
    # Exactly one space between two: the Python receiver library breaks on more.
    signature = " ".join(["v1," + b64encode(key.code(prefix, body)).decode() for key in keys])
    return (WEBHOOK_ID, message_id), (WEBHOOK_TIMESTAMP, seconds), (WEBHOOK_SIGNATURE, signature)


def _stripe(keys: tuple[_Key, ...], timestamp: int, body: bytes) -> Headers:
    prefix = f"{timestamp}.".encode()
    signature = "".join([",v1=" + key.code(prefix, body).hex() for key in keys])
    return ((STRIPE_SIGNATURE, f"t={timestamp}{signature}"),)


def _github(key: _Key, delivery_id: str, event_type: str, body: bytes) -> Headers:
    signature = "sha256=" + key.code(b"", body).hex()
    return (GITHUB_SIGNATURE, signature), (GITHUB_EVENT, event_type), (GITHUB_DELIVERY, delivery_id)
