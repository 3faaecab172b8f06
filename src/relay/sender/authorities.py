"""Which certificate authorities are trusted: the operator's file, the system's, or the ones that come with Python.

Owns the choice. The environment (SSL_CERT_FILE and the like) has no part in it: what a process inherits must not decide
whom it trusts. Raises `NoAuthorities` rather than go on without verification.
"""

from __future__ import annotations

from pathlib import Path

import certifi

SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)
"""Where distributions keep the bundle that their administrators maintain."""


class NoAuthorities(Exception):
    """There is no file of authorities to verify certificates with."""


def find(chosen: Path | None) -> Path:
    """The PEM file to verify with; a `chosen` one must exist."""
    candidates = (*SYSTEM_BUNDLES, Path(certifi.where())) if chosen is None else (chosen,)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise NoAuthorities(f"no certificate authorities at {', '.join(map(str, candidates))}")
