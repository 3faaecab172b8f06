"""TLS of the gateway: its certificate, and the authorities whose client certificates it takes.

Owns the files and what is asked of a handshake. What a client's certificate names is `web.certificates`'. Invariants: a
client without a certificate is as welcome as ever, since many are proved by something else; one with a certificate that
no authority signed, that is not of this time, or that was issued for servers only, gets no connection.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from relay.app.faults import CannotRun
from relay.settings import Settings


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of a PEM certificate chain and of its key, which fit together, and of the authorities of clients."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """What connections are made with. Raises `CannotRun` if a file cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION  # or a client could become another one on its connection
        try:
            context.load_cert_chain(self.certificate, self.key)
        except OSError as fault:  # what ssl raises for a bad certificate is one, too
            raise CannotRun(
                f"the certificate {self.certificate} with the key {self.key} cannot be used: {_words(fault)};"
                " set RELAY_TLS_CERT and RELAY_TLS_KEY to PEM files that belong together"
            ) from fault
        if self.client_ca is not None:
            _ask_for_certificates(context, self.client_ca)
        return context


def tls_of(settings: Settings) -> Tls | None:
    """The certificate that the gateway is to show; None for plain HTTP. Raises `CannotRun` if it cannot be used."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    tls = Tls(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    tls.context()
    return tls


_DO_NOT_FIT = "the key is not that of the certificate"
_UNREADABLE = "PEM lib"
"""Without a reason of its own OpenSSL's reader of files has failed."""

_REASONS = {
    "KEY_VALUES_MISMATCH": _DO_NOT_FIT,
    "NO_CERTIFICATE_ASSIGNED": _DO_NOT_FIT,  # so it is said of a key of another kind
    "NO_START_LINE": "one of them is no PEM file",
    _UNREADABLE: "one of them is no PEM file",
}


def _words(fault: OSError) -> str:
    """The fault in words; what OpenSSL says is for those who know its source."""
    if isinstance(fault, ssl.SSLError):
        return _REASONS.get(fault.reason or _UNREADABLE, str(fault))
    return fault.strerror or str(fault)


def _ask_for_certificates(context: ssl.SSLContext, client_ca: Path) -> None:
    """Ask each client for a certificate of these authorities; it may have none. Raises `CannotRun`."""
    try:
        context.load_verify_locations(client_ca)
    except OSError as fault:
        raise _useless(client_ca, f"cannot be used: {fault}") from fault
    if not context.cert_store_stats()["x509"]:
        raise _useless(client_ca, "holds no certificate")
    # an authority in between is trusted as it stands there, whoever signed it
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = ssl.CERT_OPTIONAL


def _useless(client_ca: Path, what: str) -> CannotRun:
    return CannotRun(f"{client_ca} {what}; set RELAY_TLS_CLIENT_CA to a PEM file of the authorities of your clients")
