"""Endpoints in the database: their configuration and their secrets.

Owns every write to endpoints but what comes with the dispatcher's records: holds, breakers, endpoints that are gone.
Invariant: a change that routing depends on bumps the rules version in its own transaction, so no append can be routed
by rules older than a change that was answered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import asyncpg
import msgspec

from relay.domain import ids
from relay.domain.audit import AuditAction, Author, FieldChange, config_changes, config_details
from relay.domain.backoff import RetryPolicy
from relay.domain.chat import credential_of
from relay.domain.endpoint import (
    AckMode,
    Destination,
    Endpoint,
    EndpointConfig,
    EndpointState,
    SignatureProfile,
    Transport,
)
from relay.domain.secret import Secret
from relay.store import audit, rules, statements
from relay.store.database import Connection, Database
from relay.store.faults import NameTaken
from relay.store.keys import put_away
from relay.store.rules import Snapshot
from relay.store.tenants import hold_tenant
from relay.store.vault import Vault, VaultLocked

ConfigChange = Callable[[EndpointConfig], EndpointConfig]
"""Makes the new configuration from the newest one."""

NEWEST = UUID(int=(1 << 128) - 1)
"""The position before the newest row of a list."""


class Endpoints:
    """The endpoints of one database."""

    def __init__(self, database: Database, vault: Vault, author: Author | None = None) -> None:
        self._database = database
        self._vault = vault
        self._author = author

    def by(self, author: Author) -> Endpoints:
        """The same ones, whose changes are entered into the audit as that author's."""
        return Endpoints(self._database, self._vault, author)

    async def create(
        self, tenant: str, endpoint_id: UUID, config: EndpointConfig, *, secret_id: UUID, secret: Secret
    ) -> Endpoint:
        """Store a new endpoint and its secret. Raises `NameTaken` and `NoSuchTenant`."""
        async with self._database.transaction() as connection:
            await hold_tenant(connection, tenant)
            await put_away(connection, self._vault, secret_id, secret)
            row = await _unique(
                connection,
                "insert_endpoint",
                endpoint_id,
                tenant,
                config.name,
                config.url,
                config.transport,
                *_traffic(config),
                secret_id,
                credential_of(config.transport, secret),
            )
            await connection.execute(statements.text("bump_rules"), endpoint_id)
            await self._enter(connection, row, AuditAction.ENDPOINT_CREATE, details=config_details(config))
        return _endpoint(row)

    async def get(self, tenant: str, endpoint_id: UUID) -> Endpoint | None:
        """One endpoint of the tenant, None if there is none of that id."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statements.text("get_endpoint"), tenant, endpoint_id)
        return _endpoint(row) if row else None

    async def list(self, tenant: str, *, before: UUID = NEWEST, limit: int) -> list[Endpoint]:
        """The tenant's endpoints, newest first, those older than `before`."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("list_endpoints"), tenant, before, limit)
        return [_endpoint(row) for row in rows]

    async def update(self, tenant: str, endpoint_id: UUID, change: ConfigChange) -> Endpoint | None:
        """Apply a change to the newest configuration under its row lock; None if there is no such endpoint.

        Raises `NameTaken`, and whatever `change` raises for a configuration that it refuses.
        """
        async with self._database.transaction() as connection:
            await connection.execute(statements.text("lock_lane"), tenant, endpoint_id)
            row = await connection.fetchrow(statements.text("lock_endpoint"), tenant, endpoint_id)
            if row is None:
                return None
            old = _endpoint(row).config
            config = change(old)
            if config.url != row["url"]:
                await connection.execute(statements.text("renew_lane"), tenant, endpoint_id)
            row = await _unique(
                connection, "update_endpoint", tenant, endpoint_id, config.name, config.url, *_traffic(config)
            )
            await connection.execute(statements.text("bump_rules"), endpoint_id)
            changes = config_changes(old, config)
            if changes:
                await self._enter(connection, row, AuditAction.ENDPOINT_CHANGE, changes=changes)
        return _endpoint(row)

    async def remove(self, tenant: str, endpoint_id: UUID) -> bool:
        """Remove an endpoint; what it is still owed is dead-lettered by `Queue.bury_removed`. False if not there."""
        async with self._database.transaction() as connection:
            removed = await connection.fetchrow(statements.text("remove_endpoint"), tenant, endpoint_id)
            if removed is not None:
                await connection.execute(statements.text("bump_rules"), endpoint_id)
                await self._enter(connection, removed, AuditAction.ENDPOINT_REMOVE)
        return removed is not None

    async def set_state(
        self, tenant: str, endpoint_id: UUID, state: EndpointState, reason: str | None = None
    ) -> Endpoint | None:
        """Pause, resume or disable; None if there is no such endpoint. One that is disabled stays so when paused; one
        that is resumed is tried at once, whatever its breaker or a 429 had planned.
        """
        async with self._database.transaction() as connection:
            if state is EndpointState.ACTIVE:
                await connection.execute(statements.text("open_lane"), tenant, endpoint_id)
            row = await connection.fetchrow(statements.text("lock_endpoint"), tenant, endpoint_id)
            if row is None:
                return None
            if state is EndpointState.PAUSED and row["status"] != EndpointState.ACTIVE:
                # it is held already, and what closed its lane first stays the reason: nothing is changed
                return _endpoint(row)
            row = await connection.fetchrow(statements.text("set_endpoint_status"), tenant, endpoint_id, state, reason)
            assert row is not None, "the row is locked"
            resumed = state is EndpointState.ACTIVE
            await self._enter(connection, row, AuditAction.ENDPOINT_RESUME if resumed else AuditAction.ENDPOINT_PAUSE)
        return _endpoint(row)

    async def rotate_secret(
        self, tenant: str, endpoint_id: UUID, *, secret_id: UUID, secret: Secret, overlap_seconds: float
    ) -> Endpoint | None:
        """Put a new secret in force; the one before signs beside it for the overlap. None if not there."""
        async with self._database.transaction() as connection:
            locked = await connection.fetchrow(statements.text("lock_endpoint"), tenant, endpoint_id)
            if locked is None:
                return None
            await put_away(connection, self._vault, secret_id, secret)
            credential = credential_of(Transport(locked["transport"]), secret)
            row = await connection.fetchrow(
                statements.text("rotate_secret"), tenant, endpoint_id, secret_id, overlap_seconds, credential
            )
            assert row is not None, "the row is locked"
            await self._enter(connection, row, AuditAction.ENDPOINT_ROTATE)
        return _endpoint(row)

    async def snapshot(self, known: Snapshot | None = None) -> Snapshot:
        """What to route from now: all endpoints' rules and the versions they are good for. See `rules.snapshot`."""
        return await rules.snapshot(self._database, known)

    async def _enter(
        self,
        connection: Connection,
        row: asyncpg.Record,
        action: AuditAction,
        *,
        changes: Sequence[FieldChange] = (),
        details: Mapping[str, object] | None = None,
    ) -> None:
        subject = ids.write(ids.ENDPOINT, row["id"])
        await audit.append(
            connection, self._author, row["tenant"], action, subject, name=row["name"], changes=changes, details=details
        )


class Destinations:
    """What the dispatcher knows of endpoints: read by id, with secrets opened once each."""

    def __init__(
        self,
        database: Database,
        vault: Vault,
        *,
        default_retry: RetryPolicy,
        most_timeout_seconds: float = math.inf,
    ) -> None:
        self._database = database
        self._vault = vault
        self._default_retry = default_retry
        self._most_timeout_seconds = most_timeout_seconds
        self._opened: dict[UUID, Secret] = {}

    async def read(self, endpoint_ids: Sequence[UUID]) -> dict[UUID, Destination | VaultLocked]:
        """These endpoints as they are now, removed ones included; `VaultLocked` for one whose secret has no key."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("destinations"), list(endpoint_ids))
        return {row["id"]: self._readable(row) for row in rows}

    async def beyond_timeout(self) -> list[str]:
        """Endpoints, the first few, that were given more time than a send may take by now; they get that much."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("longest_timeouts"), self._most_timeout_seconds)
        return [row[0] for row in rows]

    def _readable(self, row: asyncpg.Record) -> Destination | VaultLocked:
        try:
            return self._destination(row)
        except VaultLocked as fault:
            return fault

    def _destination(self, row: asyncpg.Record) -> Destination:
        retry = row["retry"]
        return Destination(
            endpoint_id=row["id"],
            tenant=row["tenant"],
            revision=row["revision"],
            name=row["name"],
            url=row["url"],
            transport=Transport(row["transport"]),
            signature=SignatureProfile(row["signature"]),
            ack=AckMode(row["ack"]),
            secret=self._open(row["secret_id"], row["ciphertext"]),
            previous_secret=(
                self._open_previous(row["previous_secret_id"], row["previous_ciphertext"])
                if row["previous_secret_id"]
                else None
            ),
            headers=tuple(_HEADERS.decode(row["headers"]).items()),
            retry=self._default_retry.overridden(_RETRY.decode(retry)) if retry else self._default_retry,
            timeout_seconds=_at_most(self._most_timeout_seconds, row["timeout_seconds"]),
        )

    def _open_previous(self, secret_id: UUID, ciphertext: bytes) -> Secret | None:
        """One whose key is lost holds up nothing once it is rotated: the one in force signs alone."""
        try:
            return self._open(secret_id, ciphertext)
        except VaultLocked:
            return None

    def _open(self, secret_id: UUID, ciphertext: bytes) -> Secret:
        known = self._opened.get(secret_id)
        if known is None:
            if len(self._opened) >= _OPENED_LIMIT:
                self._opened.clear()
            known = self._opened[secret_id] = self._vault.open(ciphertext)
        return known


_OPENED_LIMIT = 50_000
_HEADERS = msgspec.json.Decoder(dict[str, str])
_RETRY = msgspec.json.Decoder(dict[str, object])


async def _unique(connection: Connection, statement: str, *arguments: object) -> asyncpg.Record:
    try:
        row = await connection.fetchrow(statements.text(statement), *arguments)
    except asyncpg.UniqueViolationError as fault:
        raise NameTaken("another endpoint of this tenant has that name") from fault
    assert row is not None, "the row was locked or made in this transaction"
    return row


def _at_most(limit: float, seconds: float | None) -> float | None:
    return None if seconds is None else min(seconds, limit)


def _traffic(config: EndpointConfig) -> tuple[object, ...]:
    return (
        list(config.event_types),
        config.rate_per_second,
        config.burst,
        config.max_in_flight,
        config.timeout_seconds,
        msgspec.json.encode(config.retry).decode() if config.retry is not None else None,
        config.ack,
        config.signature,
        msgspec.json.encode(config.headers).decode(),
    )


def _endpoint(row: asyncpg.Record) -> Endpoint:
    return Endpoint(
        id=row["id"],
        tenant=row["tenant"],
        config=EndpointConfig(
            name=row["name"],
            url=row["url"],
            transport=Transport(row["transport"]),
            event_types=tuple(row["event_types"]),
            rate_per_second=row["rate_per_second"],
            burst=row["burst"],
            max_in_flight=row["max_in_flight"],
            timeout_seconds=row["timeout_seconds"],
            retry=_RETRY.decode(row["retry"]) if row["retry"] else None,
            ack=AckMode(row["ack"]),
            signature=SignatureProfile(row["signature"]),
            headers=_HEADERS.decode(row["headers"]),
        ),
        state=EndpointState(row["status"]),
        state_reason=row["status_reason"],
        closed_by=row["lane_closed_by"],
        opens_at=row["lane_opens_at"],
        previous_secret_expires_at=row["previous_secret_expires_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
