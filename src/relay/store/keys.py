"""Whether this process's secret keys are its installation's, and putting secrets away under them.

Owns the marks: a text sealed under each key that was ever the newest of a process, with the key's fingerprint, until
that key is retired. Invariants: a process that starts can open whatever any other has sealed, so that a missing key is
told at the start and not by deliveries that never leave; and nothing is sealed under a key that is retired, so that
what has retired one may say that nobody needs it any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from uuid import UUID

import asyncpg

from relay.domain.secret import Secret
from relay.store import statements
from relay.store.database import Connection, Database
from relay.store.faults import KeysRetired
from relay.store.vault import Vault

_MARK = Secret("relay")


class OtherKeys(Exception):
    """The database's secrets may be sealed under a key that this process does not have."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A text that was sealed under a key; its fingerprint is None if it is of before those were kept."""

    sealed: bytes
    key_id: bytes | None


class Lacking(Enum):
    """What a vault may lack of the keys that the database's secrets were sealed with."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


async def agree_on_keys(database: Database, vault: Vault, *, may_lack: Lacking = Lacking.NONE) -> list[Mark]:
    """Leave a mark of the vault's newest key, unless one is there. One transaction. Answers the marks of lacking keys.

    Raises `OtherKeys` if the vault lacks more of the keys that are not retired than it may, and `StoreUnavailable`.
    """
    async with database.transaction() as connection:
        await connection.execute(statements.text("lock_key_marks"))
        rows = await connection.fetch(statements.text("list_key_marks"))
        known = {row["key_id"] for row in rows}
        locked = []
        for mark in _in_force(rows):
            key_id = vault.key_of(mark.sealed)
            if key_id is None:
                locked.append(mark)
            elif mark.key_id is None:
                await connection.execute(statements.text("name_key_mark"), mark.sealed, key_id)
                known.add(key_id)
        marks = len(_in_force(rows))
        if locked and (may_lack is Lacking.NONE or (may_lack is Lacking.SOME and len(locked) == marks)):
            raise _other_keys(len(locked), marks)
        if vault.newest not in known:
            await connection.execute(statements.text("insert_key_mark"), vault.seal(_MARK), vault.newest)
    return locked


async def check_keys(database: Database, vault: Vault) -> bool:
    """Whether the vault's keys open what is in the database; False if nothing was ever sealed there. Leaves no mark.

    Raises `OtherKeys` and `StoreUnavailable`.
    """
    async with database.connection() as connection:
        rows = await connection.fetch(statements.text("list_key_marks"))
    marks = _in_force(rows)
    locked = sum(vault.key_of(mark.sealed) is None for mark in marks)
    if locked:
        raise _other_keys(locked, len(marks))
    return bool(rows)


async def marked(database: Database, vault: Vault) -> dict[bytes, bool]:
    """Which of the vault's keys were ever the newest of a process, and whether each is retired. Raises
    `StoreUnavailable`."""
    async with database.connection() as connection:
        rows = await connection.fetch(statements.text("list_key_marks"))
    found = {row["key_id"] or vault.key_of(row["sealed"]): row["is_retired"] for row in rows}
    return {key_id: found[key_id] for key_id in vault.key_ids if key_id in found}


async def put_away(connection: Connection, vault: Vault, secret_id: UUID, secret: Secret) -> None:
    """Store a secret, in the transaction of what uses it, under the vault's newest key that is not retired.

    Raises `KeysRetired` if all of them are.
    """
    held = await connection.fetch(statements.text("hold_key_marks"), list(vault.key_ids))
    retired = {row["key_id"] for row in held if row["is_retired"]}
    key_id = next((each for each in vault.key_ids if each not in retired), None)
    if key_id is None:
        raise KeysRetired("the keys of this process are retired: restart it with the newest of RELAY_SECRET_KEYS")
    await connection.execute(statements.text("insert_secret"), secret_id, vault.seal(secret, key_id), key_id)


async def is_sealed(database: Database) -> bool:
    """Whether anything in the database was sealed under a key, whatever its shape. Raises `StoreUnavailable`."""
    async with database.connection() as connection:
        for question in ("has_secrets", "has_key_marks"):
            try:
                if await connection.fetchval(statements.text(question)):
                    return True
            except asyncpg.UndefinedTableError:  # a database of before that migration, or of before them all
                continue
    return False


def _in_force(rows: list[asyncpg.Record]) -> list[Mark]:
    return [Mark(row["sealed"], row["key_id"]) for row in rows if not row["is_retired"]]


def _other_keys(locked: int, marks: int) -> OtherKeys:
    lacking = "none of the keys in RELAY_SECRET_KEYS is one" if locked == marks else "RELAY_SECRET_KEYS lacks one"
    return OtherKeys(
        f"{lacking} that this database's secrets were sealed with:"
        " give every gateway and dispatcher the same RELAY_SECRET_KEYS, old keys included; if a key is lost for good,"
        " `relay keys reencrypt --give-up` has Relay start without it"
    )
