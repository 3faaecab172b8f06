"""Client certificates: what one says of whoever shows it, and the header in which a proxy hands one on.

Owns their reading. Whether an authority signed one is settled before, in Relay's own handshake or in the proxy's. What
names count is `domain.certificate`'s, and whose they are the credentials'. Invariants: a header is looked at only on a
connection from a trusted proxy, and such a connection's own certificate never is; a certificate names nobody outside of
its time, however old the connection is that showed it.
"""

from __future__ import annotations

import hashlib
import math
import re
import warnings
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from relay.domain.certificate import Alternatives, fingerprint_of, names_of
from relay.web.problems import ErrorCode, refuse

CLIENT_CERT = b"client-cert"
"""RFC 9440."""

LONGEST_HEADER = 16 * 1024
"""In bytes; a certificate has one or two kilobytes."""

PEER = "relay.peer"
"""The key in an ASGI scope's `state` of the `Peer` at the other end; nothing stands there for everybody else."""

_BYTES = re.compile(rb":([A-Za-z0-9+/]*={0,2}):")
"""A byte sequence, RFC 8941, 3.3.5."""

_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
"""Of PEM, RFC 7468."""

_TROUBLES = (
    ValueError,
    TypeError,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What reading a certificate raises; tests/web/test_certificates.py looks for more."""

_FOR_CLIENTS = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}

_READ_BEFORE = 256
"""How many of the certificates that proxies handed on are kept read."""


class Unreadable(ValueError):
    """The bytes are no certificate."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a client's certificate says: its names, and the time, in Unix seconds, in which it says so.

    `is_for_clients` is False for one that was issued for servers only.
    """

    names: tuple[str, ...]
    not_before: float
    not_after: float
    is_for_clients: bool = True


UNREADABLE = Certificate((), math.inf, -math.inf)
"""One that the handshake took and that cannot be read here: there is no time in which it says anything."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a connection: a trusted proxy, or else a client with this certificate."""

    is_proxy: bool
    certificate: Certificate | None = None


def peer_in(scope: Mapping[str, Any]) -> Peer | None:
    """Who sent the request of that ASGI scope, None for who showed nothing and is nobody's proxy."""
    peer: Peer | None = scope.get("state", {}).get(PEER)
    return peer


def subjects_of(peer: Peer, headers: Mapping[bytes, bytes], now: float) -> tuple[str, ...]:
    """The names that a request's client shows by a certificate; nothing without one. `now` in Unix seconds.

    Raises `Refused`: `malformed` for a proxy's header that holds no certificate, `credential_invalid` for one that is
    not of this time or not for clients.
    """
    certificate = _handed_on(headers.get(CLIENT_CERT)) if peer.is_proxy else peer.certificate
    if certificate is None:
        return ()
    if not certificate.not_before <= now <= certificate.not_after:
        raise refuse(ErrorCode.CREDENTIAL_INVALID, "the client certificate has expired, or is not valid yet")
    if not certificate.is_for_clients:
        raise refuse(ErrorCode.CREDENTIAL_INVALID, "the client certificate was issued for servers only")
    return certificate.names


def read_certificate(der: bytes) -> Certificate:
    """What a certificate says. Raises `Unreadable`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what a certificate should not have and later versions will refuse
            parsed = x509.load_der_x509_certificate(der)
            names = names_of(_alternatives(parsed), _common_names(parsed))
            return Certificate(
                (*names, fingerprint_of(hashlib.sha256(der).digest())),
                _seconds(parsed.not_valid_before_utc),
                _seconds(parsed.not_valid_after_utc),
                _is_for_clients(parsed),
            )
    except _TROUBLES as fault:
        raise Unreadable(str(fault)) from fault


def _handed_on(value: bytes | None) -> Certificate | None:
    if value is None or value in (b"", b"::"):
        return None
    try:
        return _read_header(value)
    except Unreadable:
        raise refuse(
            ErrorCode.MALFORMED,
            "Client-Cert, which the proxy set, holds one certificate as RFC 9440 wants it, or as PEM",
        ) from None


@lru_cache(_READ_BEFORE)
def _read_header(value: bytes) -> Certificate:
    """The certificate in a header: its DER as a byte sequence, or its PEM, percent-encoded. Raises `Unreadable`."""
    if len(value) > LONGEST_HEADER:
        raise Unreadable("it is too long")
    found = _BYTES.fullmatch(value)
    try:
        der = b64decode(_inside(unquote_to_bytes(value)) if found is None else found[1], validate=True)
    except ValueError as fault:
        raise Unreadable("it is no base64") from fault
    return read_certificate(der)


def _inside(pem: bytes) -> bytes:
    """The base64 in PEM; with more than one certificate in it, it is none. Raises `Unreadable`."""
    pem = pem.strip()
    if not (pem.startswith(_BEGIN) and pem.endswith(_END)):
        raise Unreadable("it is neither a byte sequence nor PEM")
    return b"".join(pem[len(_BEGIN) : -len(_END)].split())


def _alternatives(certificate: x509.Certificate) -> Alternatives | None:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    return Alternatives(
        names.get_values_for_type(x509.DNSName),
        names.get_values_for_type(x509.UniformResourceIdentifier),
        names.get_values_for_type(x509.RFC822Name),
    )


def _common_names(certificate: x509.Certificate) -> list[str]:
    values = [each.value for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return [value for value in values if isinstance(value, str)]


def _is_for_clients(certificate: x509.Certificate) -> bool:
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return not _FOR_CLIENTS.isdisjoint(usages)


def _seconds(instant: datetime) -> float:
    return instant.timestamp()
