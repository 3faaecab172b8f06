"""Making and ending credentials with as few words as possible, straight through the store.

Owns the defaults. A secret is known to whoever made it; `bearer` and `signed` are how it comes in a request.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from dataclasses import dataclass
from uuid import UUID

from relay.domain import ids
from relay.domain.ambient import Ambient
from relay.domain.credentials import Proof, Scope, SourceProof
from relay.domain.signing import SECRET_ENTROPY_BYTES, new_secret
from relay.gateway import Senders
from relay.store.credentials import CredentialReader
from relay.store.database import Database
from relay.store.issuer import Issuer
from relay.store.signed_requests import SignedRequests
from relay.store.vault import Vault
from relay.web.credentials import Register
from relay.web.proving import Prover

TENANT = "acct_default"
FAR = UUID(int=(1 << 128) - 1)


def _new_id() -> UUID:
    return ids.uuid7(time.time_ns() // 1_000_000, os.urandom(ids.ENTROPY_BYTES))


def prover_of(database: Database, vault: Vault, ambient: Ambient, *, is_private: bool = True) -> Prover:
    """What identifies the callers of a process, as the composition root makes it."""
    reader = CredentialReader(database, vault, monotonic=ambient.monotonic)
    register = Register(reader.read, monotonic=ambient.monotonic, is_private=is_private)
    return Prover(register=register, signers=reader.signer, ambient=ambient)


def senders_of(database: Database, vault: Vault, ambient: Ambient, *, is_private: bool = True) -> Senders:
    """The same for its events."""
    prover = prover_of(database, vault, ambient, is_private=is_private)
    return Senders(prover=prover, requests=SignedRequests(database))


def bearer(secret: str) -> tuple[str, str]:
    """The header that shows a secret."""
    return "Authorization", f"Bearer {secret}"


def signed(source: str, secret: str, body: bytes, *, at: float | None = None) -> list[tuple[str, str]]:
    """The headers of a request that a source signs, by a computation of its own."""
    timestamp = str(int(time.time() if at is None else at))
    code = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return [("Relay-Source", source), ("Relay-Timestamp", timestamp), ("Relay-Signature", f"v1={code}")]


@dataclass(frozen=True, slots=True)
class Made:
    """A credential with its secret."""

    id: UUID
    name: str
    secret: str


class Administration:
    """Credentials of one database."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self.issuer = Issuer(database, vault)

    async def key(self, *scopes: str, tenant: str = TENANT, name: str | None = None, source: str | None = None) -> Made:
        """A key with these scopes, `admin` if none are given."""
        secret, key_id = new_secret(os.urandom(SECRET_ENTROPY_BYTES)), _new_id()
        name = name or f"key-{key_id.hex}"
        wanted = [Scope(scope) for scope in scopes or ("admin",)]
        await self.issuer.create_key(tenant, key_id, name, wanted, secret=secret, source=source, seen=None)
        return Made(key_id, name, secret.expose())

    async def source(
        self, *auth: str, tenant: str = TENANT, name: str | None = None, subject: str | None = None
    ) -> Made:
        """A source that is proved by these."""
        secret, source_id = new_secret(os.urandom(SECRET_ENTROPY_BYTES)), _new_id()
        name = name or f"source-{source_id.hex}"
        await self.issuer.create_source(
            tenant,
            source_id,
            name,
            SourceProof(tuple(Proof(proof) for proof in auth), subject),
            secret=secret,
            secret_id=_new_id(),
            for_all=True,
            seen=None,
        )
        return Made(source_id, name, secret.expose())

    async def rotate(self, source: Made, *, tenant: str = TENANT, overlap_seconds: float = 3600.0) -> Made:
        """Give a source a new secret."""
        secret = new_secret(os.urandom(SECRET_ENTROPY_BYTES))
        await self.issuer.rotate_source(
            tenant,
            source.id,
            secret=secret,
            secret_id=_new_id(),
            overlap_seconds=overlap_seconds,
            seen=await self.version(),
        )
        return Made(source.id, source.name, secret.expose())

    async def change(self, source: Made, *auth: str, subject: str | None = None, tenant: str = TENANT) -> Made:
        """Have a source proved by these from now on."""
        secret, wanted = new_secret(os.urandom(SECRET_ENTROPY_BYTES)), [Proof(proof) for proof in auth]
        proof = SourceProof(tuple(each for each in Proof if each in wanted), subject)
        _, is_new = await self.issuer.change_source(
            tenant,
            source.id,
            lambda _: proof,
            secret=secret,
            secret_id=_new_id(),
            for_all=True,
            seen=await self.version(),
        )
        return Made(source.id, source.name, secret.expose()) if is_new else source

    async def revoke(self, key: Made, *, tenant: str = TENANT) -> None:
        """End a key."""
        await self.issuer.revoke_key(tenant, key.id, by_operator=True, seen=await self.version())

    async def remove(self, source: Made, *, tenant: str = TENANT) -> None:
        """End a source."""
        await self.issuer.remove_source(tenant, source.id, seen=await self.version())

    async def tenant(self, tenant: str) -> str:
        """A tenant of that id."""
        await self.issuer.create_tenant(tenant, tenant, seen=await self.version())
        return tenant

    async def version(self) -> int:
        """The version of the credentials."""
        async with self.issuer._database.connection() as connection:
            version: int = await connection.fetchval("select credentials from versions")
        return version
