"""Bringing every stored secret under the newest key, while everything runs.

Owns the steps of `relay keys reencrypt`: which secrets are under another key, a batch of them sealed anew, the keys
retired that nobody needs any more. Invariants: a secret is replaced only if it is still as it was read, and only while
the key that it is now under is not retired; and a key is retired only in a moment in which nothing is under it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from relay.store import statements
from relay.store.database import Connection, Database
from relay.store.faults import KeysRetired
from relay.store.keys import Mark, marked
from relay.store.vault import Vault

FIRST = UUID(int=0)

_RETIRED = "the newest key is retired: put the one that retired it first in RELAY_SECRET_KEYS"


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of some secrets. `last` is the id to go on after, None if there were none any more."""

    last: UUID | None
    looked_at: int
    sealed_anew: int
    unreadable: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class User:
    """Who signs with a secret: an endpoint or a source. `is_previous`: it is the one before, still in its overlap."""

    kind: str
    id: UUID
    tenant: str
    name: str
    is_previous: bool


@dataclass(frozen=True, slots=True)
class Sealed:
    """How many stored secrets are under the newest key, under an older one of ours, under none of ours, and under one
    that was not asked for."""

    newest: int
    older: int
    unreadable: int
    unnamed: int = 0


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key of the vault: where it stands, from 1, the fingerprint that names it, and what it has done here.

    `has_sealed`: it was the newest of some process at some time. `is_retired`: it was, and nothing needs it any more.
    """

    position: int
    fingerprint: str
    has_sealed: bool
    is_retired: bool


class Reencryption:
    """The secrets of one database under the keys of one vault. All raise `StoreUnavailable`."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    async def sealed(self, *, ask: bool = True, window: int = 1_000) -> Sealed:
        """Under which keys the secrets are. Those of before that was kept are opened, if we `ask`, so many at
        a time."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("count_sealed"))
        counts = Counter[bytes | None]({row["key_id"]: row["secrets"] for row in rows})
        unnamed = counts.pop(None, 0)
        if unnamed and ask:
            counts.update(await self._unnamed(window))
            unnamed = 0
        newest = counts.pop(self._vault.newest, 0)
        older = sum(counts.pop(each, 0) for each in self._vault.key_ids)
        return Sealed(newest, older, counts.total(), unnamed)

    async def _unnamed(self, window: int) -> list[bytes | None]:
        """The keys of the secrets that are of before fingerprints were kept."""
        found: list[bytes | None] = []
        last = FIRST
        while True:
            async with self._database.connection() as connection:
                rows = await connection.fetch(statements.text("sealed_before_key_ids"), last, window)
            if not rows:
                return found
            found += [self._vault.key_of(row["ciphertext"]) for row in rows]
            last = rows[-1]["id"]

    async def remaining(self, unreadable: Collection[UUID] = ()) -> int:
        """How many are not under the newest key, those left out."""
        async with self._database.connection() as connection:
            return await self._remaining(connection, unreadable)

    async def reseal(self, after: UUID, limit: int) -> Batch:
        """Bring so many of the secrets behind that id under the newest key. Atomic.

        One that somebody else replaced meanwhile is left to the next walk. Raises `KeysRetired`.
        """
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("sealed_otherwise"), self._vault.newest, after, limit)
        unreadable, anew = [], []
        for row in rows:
            key_id = self._vault.key_of(row["ciphertext"])
            if key_id is None:
                unreadable.append(row["id"])
            elif key_id == self._vault.newest:  # of before fingerprints were kept
                anew.append((row["id"], row["ciphertext"], row["ciphertext"]))
            else:
                anew.append((row["id"], row["ciphertext"], self._vault.seal(self._vault.open(row["ciphertext"]))))
        written = await self._write(anew) if anew else 0
        return Batch(rows[-1]["id"] if rows else None, len(rows), written, tuple(unreadable))

    async def _write(self, anew: Sequence[tuple[UUID, bytes, bytes]]) -> int:
        async with self._database.transaction() as connection:
            held = await connection.fetch(statements.text("hold_key_marks"), [self._vault.newest])
            if any(row["is_retired"] for row in held):
                raise KeysRetired(_RETIRED)
            ids, old, new = zip(*anew, strict=True)
            rows = await connection.fetch(
                statements.text("seal_anew"), self._vault.newest, list(ids), list(old), list(new)
            )
        written = {row["id"] for row in rows}
        return sum(before is not now for secret_id, before, now in anew if secret_id in written)

    async def retire(self, unreadable: Collection[UUID], lost: Collection[Mark]) -> bool:
        """Retire every key but the newest: those that the vault has, and the lost ones that are named.

        False, and nothing is changed, if something is under one of them again, but for what cannot be read. Atomic.
        Raises `KeysRetired` if the newest is retired itself: with it every key would be.
        """
        async with self._database.transaction() as connection:
            await connection.execute(statements.text("lock_key_marks"))
            marks = await connection.fetch(statements.text("hold_all_key_marks"))
            if all(mark["key_id"] != self._vault.newest for mark in marks):
                raise KeysRetired(_RETIRED)
            if await self._remaining(connection, unreadable):
                return False
            given_up = {mark.sealed for mark in lost}
            for mark in marks:
                ours = mark["key_id"] in self._vault.key_ids
                if mark["sealed"] in given_up or (ours and mark["key_id"] != self._vault.newest):
                    await connection.execute(statements.text("retire_key_mark"), mark["sealed"])
        return True

    async def keys(self) -> tuple[StoredKey, ...]:
        """The vault's keys in their order."""
        marks = await marked(self._database, self._vault)
        return tuple(
            StoredKey(position, key_id.hex(), key_id in marks, marks.get(key_id, False))
            for position, key_id in enumerate(self._vault.key_ids, 1)
        )

    async def has_users_without_key(self) -> bool:
        """Whether somebody signs with a secret that none of the vault's keys is known to open."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("sealed_under_others"), list(self._vault.key_ids))
        return bool(rows) and bool(await self.users([row["id"] for row in rows]))

    async def users(self, secret_ids: Collection[UUID]) -> tuple[User, ...]:
        """Who needs these secrets. One that nobody needs was rotated away or belonged to what is removed."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(statements.text("users_of_secrets"), list(secret_ids))
        return tuple(User(*row) for row in rows)

    async def sessions(self, names: Sequence[str]) -> int:
        """How many sessions of programs with these names there are."""
        async with self._database.connection() as connection:
            counts = [await connection.fetchval(statements.text("sessions_called"), f"{name}%") for name in names]
        return sum(counts)

    async def _remaining(self, connection: Connection, unreadable: Collection[UUID]) -> int:
        count: int = await connection.fetchval(
            statements.text("count_sealed_otherwise"), self._vault.newest, list(unreadable)
        )
        return count
