"""Secrets at rest.

Owns encryption with Fernet (AES-128-CBC and HMAC-SHA256) under one or more keys, the newest first: it encrypts, all
decrypt. Invariant: what this module hands out as text is a `Secret`.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        self._keys = tuple(keys)
        try:
            self._fernet = MultiFernet([Fernet(key.expose().encode()) for key in keys])
        except ValueError as fault:
            raise InvalidKey(
                "a secret key must be 32 bytes in url-safe base64; `relay secret-key` prints one"
            ) from fault

    def newest(self) -> Vault:
        """A vault of the newest key alone, under which this one seals."""
        return Vault(self._keys[:1])

    def seal(self, secret: Secret) -> bytes:
        """Encrypt under the newest key."""
        return self._fernet.encrypt(secret.expose().encode())

    def open(self, ciphertext: bytes) -> Secret:
        """Decrypt with whichever key fits. Raises `VaultLocked` if none does."""
        try:
            return Secret(self._fernet.decrypt(ciphertext).decode())
        except InvalidToken as fault:
            raise VaultLocked(
                "no key in RELAY_SECRET_KEYS opens a stored secret; add the key it was made with"
            ) from fault
