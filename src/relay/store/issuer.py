"""Tenants, sources and keys in the database: making them and ending them.

Owns every change of credentials. Invariants: each counts up the version of the credentials before anything else, in
its own transaction, so they happen one after the other and no process takes an ended one for good; while nobody has a
credential, the first is a key that may make others; and every tenant that has one such key keeps one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg

from relay.domain import ids
from relay.domain.audit import AuditAction, Author, FieldChange, proof_changes
from relay.domain.credentials import ADMINISTERING, Proof, Scope, SourceProof, digest_of
from relay.domain.naming import partition_of
from relay.domain.secret import Secret
from relay.store import audit, statements
from relay.store.database import Connection, Database
from relay.store.faults import NameTaken, NoSuchTenant
from relay.store.keys import put_away
from relay.store.vault import Vault


class CredentialsChanged(Exception):
    """They are not those any more by which whoever asks was identified. Nothing is changed: identify it anew."""


class NoKeyYet(Exception):
    """Nobody has a credential, and the first has to be a key that may make others. Nothing is changed."""


class LastKey(Exception):
    """Without that key nobody could make another one for its tenant. Nothing is changed."""


class OperatorsKey(Exception):
    """The key is an operator's, and whoever asks is none. Nothing is changed."""


class NoSuchKey(Exception):
    """The tenant has no key of that id. Nothing is changed."""


class NoSuchSource(Exception):
    """The tenant has no source of that name or id. Nothing is changed."""


class TenantInUse(Exception):
    """The tenant still has endpoints, sources or keys. Nothing is changed."""


class NotProvedByBearer(Exception):
    """The source does not ask for a bearer, so a key of it would prove nothing. Nothing is changed."""


class NotForOneTenant(Exception):
    """A certificate's name counts for the whole installation, which others share. Nothing is changed."""


class KeysLeft(Exception):
    """The source has keys, which prove a bearer that it would not ask for any more. Nothing is changed."""


class NoSecret(Exception):
    """The source is proved by its certificate alone, so there is nothing to rotate. Nothing is changed."""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key as its tenant sees it; `source` names the one that it proves."""

    id: UUID
    tenant: str
    name: str
    scopes: tuple[Scope, ...]
    source: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source as its tenant sees it; no secret in it."""

    id: UUID
    tenant: str
    name: str
    auth: tuple[Proof, ...]
    certificate_subject: str | None
    previous_secret_expires_at: datetime | None
    created_at: datetime

    @property
    def has_secret(self) -> bool:
        """Whether it is proved by a secret of its own."""
        return Proof.BEARER in self.auth or Proof.HMAC in self.auth

    @property
    def proof(self) -> SourceProof:
        """What it is proved by."""
        return SourceProof(self.auth, self.certificate_subject)


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant as it is shown. With `strict_schemas` it takes no events of a type without a schema."""

    id: str
    name: str
    strict_schemas: bool
    created_at: datetime


class Issuer:
    """The tenants, sources and keys of one database.

    `seen` of a change is the version of the credentials by which whoever asks for it was identified, None for somebody
    who needs none. Each change raises `CredentialsChanged` if there is a newer one, and `NoSuchTenant`.
    """

    def __init__(self, database: Database, vault: Vault, author: Author | None = None) -> None:
        self._database = database
        self._vault = vault
        self._author = author

    def by(self, author: Author) -> Issuer:
        """The same ones, whose changes are entered into the audit as that author's."""
        return Issuer(self._database, self._vault, author)

    async def create_key(
        self,
        tenant: str,
        key_id: UUID,
        name: str,
        scopes: Collection[Scope],
        *,
        secret: Secret,
        source: str | None = None,
        seen: int | None,
    ) -> KeyRow:
        """Make a key. Raises `NoKeyYet`, `NameTaken`, `NoSuchSource`, `NotProvedByBearer`."""
        async with self._changing(tenant, seen) as connection:
            if not ADMINISTERING & set(scopes) and await _is_open(connection):
                raise NoKeyYet
            source_id = None if source is None else await _source_for_key(connection, tenant, source)
            row = await _unique(
                connection,
                "insert_key",
                key_id,
                tenant,
                name,
                [str(scope) for scope in Scope if scope in scopes],
                source_id,
                digest_of(secret.expose()),
            )
            details = {"scopes": row["scopes"], "source": source}
            await self._enter(connection, tenant, AuditAction.KEY_CREATE, ids.write(ids.KEY, key_id), name, details)
        return _key(row, source)

    async def keys(self, tenant: str, *, before: UUID, limit: int) -> list[KeyRow]:
        """The tenant's keys, newest first, those older than `before`."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("list_keys"), tenant, before, limit)
        return [_key(row, row["source"]) for row in rows]

    async def revoke_key(self, tenant: str, key_id: UUID, *, by_operator: bool, seen: int) -> None:
        """End a key. Raises `NoSuchKey`, `OperatorsKey` and `LastKey`."""
        async with self._changing(tenant, seen) as connection:
            key = await connection.fetchrow(statements.text("revoke_key"), tenant, key_id)
            if key is None:
                raise NoSuchKey
            if Scope.OPERATOR in key["scopes"] and not by_operator:
                # nobody ends what may more than whoever asks, as nobody makes it
                raise OperatorsKey
            if ADMINISTERING & set(key["scopes"]) and not await connection.fetchval(
                statements.text("is_administered"), tenant
            ):
                raise LastKey
            await self._enter(connection, tenant, AuditAction.KEY_REVOKE, ids.write(ids.KEY, key_id), key["name"])

    async def create_source(
        self,
        tenant: str,
        source_id: UUID,
        name: str,
        proof: SourceProof,
        *,
        secret: Secret | None,
        secret_id: UUID,
        for_all: bool,
        seen: int | None,
    ) -> SourceRow:
        """Make a source; its secret is stored as its proof needs it.

        A certificate's name needs someone who speaks `for_all` tenants where there is more than one. Raises `NoKeyYet`,
        `NameTaken` and `NotForOneTenant`.
        """
        async with self._changing(tenant, seen) as connection:
            if await _is_open(connection):
                raise NoKeyYet
            await _check_naming(connection, proof.certificate_subject, for_all=for_all)
            sha256, sealed_id = await self._put_away(connection, proof.auth, secret, secret_id)
            row = await _unique(
                connection,
                "insert_source",
                source_id,
                tenant,
                name,
                [str(each) for each in proof.auth],
                proof.certificate_subject,
                sha256,
                sealed_id,
            )
            details = {"auth": row["auth"], "certificate_subject": proof.certificate_subject}
            await self._enter(
                connection, tenant, AuditAction.SOURCE_CREATE, ids.write(ids.SOURCE, source_id), name, details
            )
        return _source(row)

    async def sources(self, tenant: str, *, before: UUID, limit: int) -> list[SourceRow]:
        """The tenant's sources, newest first, those older than `before`."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("list_sources"), tenant, before, limit)
        return [_source(row) for row in rows]

    async def change_source(
        self,
        tenant: str,
        source_id: UUID,
        decide: Callable[[SourceRow], SourceProof],
        *,
        secret: Secret,
        secret_id: UUID,
        for_all: bool,
        seen: int,
    ) -> tuple[SourceRow, bool]:
        """Have a source proved by what `decide` says of it as it is; also answers whether that took the new secret.

        If so, it is the only one from then on. Another name of a certificate is subject to what `create_source` says.
        Raises `NoSuchSource`, `NameTaken`, `NotForOneTenant`, `KeysLeft`, and what `decide` does.
        """
        async with self._changing(tenant, seen) as connection:
            found = await connection.fetchrow(statements.text("get_source"), tenant, source_id)
            if found is None:
                raise NoSuchSource
            source = _source(found)
            wanted = decide(source)
            changes, is_new = proof_changes(source.proof, wanted), wanted.takes_new_secret(source.proof)
            if not changes:
                return source, False
            if wanted.certificate_subject != source.certificate_subject:
                await _check_naming(connection, wanted.certificate_subject, for_all=for_all)
            if Proof.BEARER not in wanted.auth and await connection.fetchval(
                statements.text("has_keys_of_source"), tenant, source_id
            ):
                raise KeysLeft
            stored = await self._put_away(connection, wanted.auth, secret if is_new else None, secret_id)
            row = await _unique(
                connection,
                "change_source",
                tenant,
                source_id,
                [str(proof) for proof in wanted.auth],
                wanted.certificate_subject,
                is_new,
                *stored,
            )
            subject = ids.write(ids.SOURCE, source_id)
            await self._enter(
                connection,
                tenant,
                AuditAction.SOURCE_CHANGE,
                subject,
                source.name,
                {"new_secret": is_new},
                changes=changes,
            )
        return _source(row), is_new

    async def rotate_source(
        self, tenant: str, source_id: UUID, *, secret: Secret, secret_id: UUID, overlap_seconds: float, seen: int
    ) -> SourceRow:
        """Put a new secret in force, in the forms that the source is proved by at that moment; the one before counts
        beside it for the overlap. Raises `NoSuchSource`, and `NoSecret`.
        """
        async with self._changing(tenant, seen) as connection:
            found = await connection.fetchrow(statements.text("get_source"), tenant, source_id)
            if found is None:
                raise NoSuchSource
            source = _source(found)
            if not source.has_secret:
                raise NoSecret
            sha256, sealed_id = await self._put_away(connection, source.auth, secret, secret_id)
            row = await connection.fetchrow(
                statements.text("rotate_source"), tenant, source_id, sha256, sealed_id, overlap_seconds
            )
            assert row is not None, "no other change of credentials is under way"
            subject = ids.write(ids.SOURCE, source_id)
            await self._enter(connection, tenant, AuditAction.SOURCE_ROTATE, subject, source.name)
        return _source(row)

    async def remove_source(self, tenant: str, source_id: UUID, *, seen: int) -> None:
        """End a source with the keys that prove it. Raises `NoSuchSource`."""
        async with self._changing(tenant, seen) as connection:
            name = await connection.fetchval(statements.text("remove_source"), tenant, source_id)
            if name is None:
                raise NoSuchSource
            keys = await connection.fetch(statements.text("revoke_keys_of_source"), tenant, source_id)
            details = {"keys": sorted(key["name"] for key in keys)}
            subject = ids.write(ids.SOURCE, source_id)
            await self._enter(connection, tenant, AuditAction.SOURCE_REMOVE, subject, name, details)

    async def create_tenant(self, tenant: str, name: str, *, seen: int) -> TenantRow:
        """Make a tenant. Raises `NameTaken` for an id that some tenant has or had."""
        async with self._changing(None, seen) as connection:
            row = await _unique(connection, "insert_tenant", tenant, name, partition_of(tenant))
            await self._enter(connection, tenant, AuditAction.TENANT_CREATE, tenant, name)
        return _tenant(row)

    async def tenants(self, only: str | None, *, after: str, limit: int) -> list[TenantRow]:
        """All tenants, or that one alone, in the order of their ids, those behind `after`."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("list_tenants"), only, after, limit)
        return [_tenant(row) for row in rows]

    async def remove_tenant(self, tenant: str, *, seen: int) -> None:
        """End a tenant that has no endpoints, sources and keys any more. Raises `TenantInUse`."""
        async with self._changing(tenant, seen, ends=True) as connection:
            if await connection.fetchval(statements.text("remove_tenant"), tenant) is None:
                raise TenantInUse
            await self._enter(connection, tenant, AuditAction.TENANT_REMOVE, tenant)

    async def is_open(self) -> bool:
        """Whether nobody has a credential, so that everybody is anonymous."""
        async with self._database.connection() as connection:
            return await _is_open(connection)

    @asynccontextmanager
    async def _changing(self, tenant: str | None, seen: int | None, *, ends: bool = False) -> AsyncIterator[Connection]:
        async with self._database.transaction() as connection:
            if ends:
                # before the versions, like whoever holds it; what they have made is seen by the next statement
                await connection.execute(statements.text("lock_tenant"), tenant)
            if await connection.fetchval(statements.text("bump_credentials"), seen) is None:
                raise CredentialsChanged
            if tenant is not None and not await connection.fetchval(statements.text("has_tenant"), tenant):
                raise NoSuchTenant
            yield connection

    async def _enter(
        self,
        connection: Connection,
        tenant: str,
        action: AuditAction,
        subject: str,
        name: str | None = None,
        details: Mapping[str, object] | None = None,
        *,
        changes: Sequence[FieldChange] = (),
    ) -> None:
        await audit.append(
            connection, self._author, tenant, action, subject, name=name, changes=changes, details=details
        )

    async def _put_away(
        self, connection: Connection, auth: Collection[Proof], secret: Secret | None, secret_id: UUID
    ) -> tuple[bytes | None, UUID | None]:
        """Store a secret as it is needed: its hash for a bearer, sealed for signatures."""
        if secret is None:
            return None, None
        sealed_id = None
        if Proof.HMAC in auth:
            await put_away(connection, self._vault, secret_id, secret)
            sealed_id = secret_id
        return digest_of(secret.expose()) if Proof.BEARER in auth else None, sealed_id


async def _check_naming(connection: Connection, subject: str | None, *, for_all: bool) -> None:
    if subject is not None and not for_all and await connection.fetchval(statements.text("is_shared")):
        raise NotForOneTenant


async def _is_open(connection: Connection) -> bool:
    is_open: bool = await connection.fetchval(statements.text("is_open"))
    return is_open


async def _source_for_key(connection: Connection, tenant: str, name: str) -> UUID:
    row = await connection.fetchrow(statements.text("find_source"), tenant, name)
    if row is None:
        raise NoSuchSource
    if Proof.BEARER not in row["auth"]:
        raise NotProvedByBearer
    source_id: UUID = row["id"]
    return source_id


async def _unique(connection: Connection, statement: str, *arguments: object) -> asyncpg.Record:
    try:
        row = await connection.fetchrow(statements.text(statement), *arguments)
    except asyncpg.UniqueViolationError as fault:
        raise NameTaken(fault.constraint_name or "") from fault
    assert row is not None, "an insertion answers its row"
    return row


def _key(row: asyncpg.Record, source: str | None) -> KeyRow:
    scopes = tuple(Scope(scope) for scope in row["scopes"])
    return KeyRow(row["id"], row["tenant"], row["name"], scopes, source, row["created_at"])


def _source(row: asyncpg.Record) -> SourceRow:
    return SourceRow(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        auth=tuple(Proof(proof) for proof in row["auth"]),
        certificate_subject=row["certificate_subject"],
        previous_secret_expires_at=row["previous_secret_expires_at"],
        created_at=row["created_at"],
    )


def _tenant(row: asyncpg.Record) -> TenantRow:
    return TenantRow(row["id"], row["name"], row["strict_schemas"], row["created_at"])
