"""Whether this process's secret keys are its installation's.

Owns the marks: a text sealed under each key that was ever the newest of a process. Invariant: a process that starts can
open whatever any other has sealed, so that a missing key is told at the start and not by deliveries that never leave.
"""

from __future__ import annotations

import asyncpg

from relay.domain.secret import Secret
from relay.store import statements
from relay.store.database import Database
from relay.store.vault import Vault, VaultLocked

_MARK = Secret("relay")


class OtherKeys(Exception):
    """The database's secrets may be sealed under a key that this process does not have."""


async def agree_on_keys(database: Database, vault: Vault) -> None:
    """Leave a mark of the vault's newest key, unless one is there. One transaction.

    Raises `OtherKeys` if there is a mark that the vault does not open, and `StoreUnavailable`.
    """
    async with database.transaction() as connection:
        await connection.execute(statements.text("lock_key_marks"))
        marks = [row["sealed"] for row in await connection.fetch(statements.text("list_key_marks"))]
        _check(marks, vault)
        if not any(_opens(vault.newest(), mark) for mark in marks):
            await connection.execute(statements.text("insert_key_mark"), vault.seal(_MARK))


async def check_keys(database: Database, vault: Vault) -> bool:
    """Whether the vault's keys open what is in the database; False if nothing was ever sealed there. Leaves no mark.

    Raises `OtherKeys` and `StoreUnavailable`.
    """
    async with database.connection() as connection:
        marks = [row["sealed"] for row in await connection.fetch(statements.text("list_key_marks"))]
    _check(marks, vault)
    return bool(marks)


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


def _check(marks: list[bytes], vault: Vault) -> None:
    """Raises `OtherKeys` if there is a mark that the vault does not open."""
    locked = sum(not _opens(vault, mark) for mark in marks)
    if locked:
        none = "none of the keys in RELAY_SECRET_KEYS is one"
        lacking = none if locked == len(marks) else "RELAY_SECRET_KEYS lacks one"
        raise OtherKeys(
            f"{lacking} that this database's secrets were sealed with:"
            " give every gateway and dispatcher the same RELAY_SECRET_KEYS, old keys included"
        )


def _opens(vault: Vault, mark: bytes) -> bool:
    try:
        vault.open(mark)
    except VaultLocked:
        return False
    return True
