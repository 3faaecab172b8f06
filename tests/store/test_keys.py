"""Keys: processes that work on one database can open each other's secrets, or do not start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from relay.domain.secret import Secret
from relay.store.database import Database
from relay.store.keys import OtherKeys, agree_on_keys, check_keys
from relay.store.vault import Vault, new_key

OLD, NEW, OTHER = new_key(), new_key(), new_key()


async def test_the_first_process_sets_the_key(database: Database) -> None:
    await agree_on_keys(database, Vault([OLD]))
    await agree_on_keys(database, Vault([OLD]))
    async with database.connection() as connection:
        assert await connection.fetchval("select count(*) from key_marks") == 1


async def test_a_key_of_another_installation_is_refused_with_what_to_do(database: Database) -> None:
    await agree_on_keys(database, Vault([OLD]))
    with pytest.raises(OtherKeys, match="the same RELAY_SECRET_KEYS"):
        await agree_on_keys(database, Vault([OTHER]))


async def test_of_two_first_processes_with_different_keys_one_is_refused(database: Database) -> None:
    starts = (agree_on_keys(database, Vault([key])) for key in (OLD, OTHER))
    results = await asyncio.gather(*starts, return_exceptions=True)
    assert [type(result) for result in results if isinstance(result, Exception)] == [OtherKeys]


async def test_a_new_key_is_rolled_in_behind_the_old_one_and_then_in_front(database: Database) -> None:
    await agree_on_keys(database, Vault([OLD]))
    await agree_on_keys(database, Vault([OLD, NEW]))
    await agree_on_keys(database, Vault([OLD]))
    await agree_on_keys(database, Vault([NEW, OLD]))
    await agree_on_keys(database, Vault([OLD, NEW]))


@pytest.mark.parametrize("key", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("question", [agree_on_keys, check_keys])
async def test_a_process_without_one_of_the_keys_that_were_sealed_with_is_refused(
    database: Database, key: Secret, question: Callable[[Database, Vault], Awaitable[object]]
) -> None:
    await agree_on_keys(database, Vault([OLD]))
    await agree_on_keys(database, Vault([NEW, OLD]))
    with pytest.raises(OtherKeys, match="RELAY_SECRET_KEYS lacks one "):
        await question(database, Vault([key]))
