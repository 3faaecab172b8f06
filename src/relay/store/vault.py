"""Secrets at rest.

Owns encryption with Fernet (AES-128-CBC and HMAC-SHA256) under one or more keys, the newest first: it encrypts, all
decrypt. A key is named by its fingerprint, which tells nothing of it. Invariant: what this module hands out as text is
a `Secret`.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Sequence
from hashlib import sha256

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from relay.domain.secret import Secret


class VaultLocked(Exception):
    """None of the configured keys opens this secret: a key is missing from RELAY_SECRET_KEYS."""


class InvalidKey(ValueError):
    """A key in RELAY_SECRET_KEYS is not a Fernet key; `relay secret-key` prints a good one."""


def new_key() -> Secret:
    """A fresh key for RELAY_SECRET_KEYS."""
    return Secret(Fernet.generate_key().decode())


class Vault:
    """Encrypts and decrypts under the configured keys."""

    def __init__(self, keys: Sequence[Secret]) -> None:
        try:
            self._by_id = {_fingerprint(key): Fernet(key.expose().encode()) for key in keys}
            self._fernet = MultiFernet(list(self._by_id.values()))
        except ValueError as fault:
            raise InvalidKey(
                "a secret key must be 32 bytes in url-safe base64; `relay secret-key` prints one"
            ) from fault

    @property
    def key_ids(self) -> tuple[bytes, ...]:
        """The fingerprints of the keys, the newest first."""
        return tuple(self._by_id)

    @property
    def newest(self) -> bytes:
        """The fingerprint of the key under which this vault seals."""
        return next(iter(self._by_id))

    def seal(self, secret: Secret, key_id: bytes | None = None) -> bytes:
        """Encrypt, under the newest key unless another one of this vault is named."""
        return self._by_id[key_id or self.newest].encrypt(secret.expose().encode())

    def open(self, ciphertext: bytes) -> Secret:
        """Decrypt with whichever key fits. Raises `VaultLocked` if none does."""
        try:
            return Secret(self._fernet.decrypt(ciphertext).decode())
        except InvalidToken as fault:
            raise VaultLocked(
                "no key in RELAY_SECRET_KEYS opens a stored secret; add the key it was made with"
            ) from fault

    def key_of(self, ciphertext: bytes) -> bytes | None:
        """The fingerprint of the key that opens it; None if none does."""
        for key_id, fernet in self._by_id.items():
            try:
                fernet.decrypt(ciphertext)
            except InvalidToken:
                continue
            return key_id
        return None


def _fingerprint(key: Secret) -> bytes:
    """16 bytes that name a key. It has 32 random ones, so nobody finds it by trying. Raises `ValueError`."""
    return sha256(b"relay key\n" + urlsafe_b64decode(key.expose().encode())).digest()[:16]
