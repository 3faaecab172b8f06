"""The credentials in force, as every process that takes requests reads them.

Owns that reading, and the opened secrets of sources. How they change is the `issuer`'s. Invariant: what is
read is of one moment, and its version is that moment's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import msgspec

from relay.domain.credentials import Credentials, Key, Proof, Scope, Source, SourceSecret
from relay.domain.endpoint import SignatureProfile
from relay.domain.signing import Signer, prepare
from relay.store import statements
from relay.store.database import Database
from relay.store.vault import Vault, VaultLocked


class _Source(msgspec.Struct):
    tenant: str
    name: str
    auth: list[Proof]
    subject: str | None
    keyed: bool
    sha256: str | None
    secret_id: UUID | None
    sealed: str | None
    previous_for: float | None
    previous_sha256: str | None
    previous_secret_id: UUID | None
    previous_sealed: str | None


class _InForce(msgspec.Struct):
    tenants: list[str]
    keys: list[tuple[str, str, list[Scope], str | None, str]]
    sources: list[_Source]


_decode = msgspec.json.Decoder(_InForce).decode


class CredentialReader:
    """Reads the credentials of one database. `monotonic` is the process's clock, in seconds."""

    def __init__(self, database: Database, vault: Vault, *, monotonic: Callable[[], float]) -> None:
        self._database = database
        self._vault = vault
        self._monotonic = monotonic
        self._sealed: dict[UUID, bytes] = {}
        self._signers: dict[UUID, Signer] = {}

    async def read(self, known: int | None) -> Credentials | None:
        """All that are in force; None if they are still those of the version `known`. Raises `StoreUnavailable`."""
        asked_at = self._monotonic()
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statements.text("read_credentials"), known)
        assert row is not None, "the first migration writes the versions row"
        if row["in_force"] is None:
            return None
        found = _decode(row["in_force"])
        self._sealed = dict(_sealed(found.sources))
        self._signers = {each: signer for each, signer in self._signers.items() if each in self._sealed}
        return Credentials(
            row["credentials"],
            found.tenants,
            {
                bytes.fromhex(sha256): Key(tenant, name, frozenset(scopes), source)
                for tenant, name, scopes, source, sha256 in found.keys
            },
            # what is left of a secret's time was told since then: no slow answer has it count for longer
            [_source(each, asked_at) for each in found.sources],
        )

    def signer(self, secret_id: UUID) -> Signer | None:
        """What signs with that secret, None if it is not in force any more, or none of our keys opens it: a lost key of
        one source is no other's trouble, and its own until it is rotated.
        """
        known = self._signers.get(secret_id)
        if known is None:
            sealed = self._sealed.get(secret_id)
            if sealed is None:
                return None
            try:
                secret = self._vault.open(sealed)
            except VaultLocked:
                return None
            known = self._signers[secret_id] = prepare(SignatureProfile.RELAY, (secret,))
        return known


def _sealed(sources: list[_Source]) -> Iterator[tuple[UUID, bytes]]:
    for each in sources:
        if each.secret_id is not None and each.sealed is not None:
            yield each.secret_id, bytes.fromhex(each.sealed)
        if each.previous_secret_id is not None and each.previous_sealed is not None:
            yield each.previous_secret_id, bytes.fromhex(each.previous_sealed)


def _source(row: _Source, asked_at: float) -> Source:
    secrets = [SourceSecret(_bytes(row.sha256), row.secret_id)]
    if row.previous_for is not None and row.previous_for > 0:
        secrets.append(SourceSecret(_bytes(row.previous_sha256), row.previous_secret_id, asked_at + row.previous_for))
    return Source(row.tenant, row.name, frozenset(row.auth), row.subject, tuple(secrets), row.keyed)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
