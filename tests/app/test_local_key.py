"""Claims about a key that is written straight into the database."""

from __future__ import annotations

import asyncpg
import pytest

from relay.app.faults import CannotRun
from relay.app.local_key import create_local_key
from relay.domain.credentials import Scope
from relay.settings import read
from relay.store.vault import new_key
from tests.support.administration import TENANT


async def test_a_key_that_was_made_locally_is_entered_into_the_audit_as_such(database_dsn: str) -> None:
    settings = read({"DATABASE_URL": database_dsn, "RELAY_SECRET_KEYS": new_key().expose()})
    key, _ = await create_local_key(settings, name="first", scopes=[Scope.ADMIN], tenant=TENANT, say=lambda _: None)
    connection = await asyncpg.connect(database_dsn)
    try:
        (entry,) = await connection.fetch("select actor, action, subject, name from audit")
    finally:
        await connection.close()
    assert tuple(entry) == ("local", "key.create", f"key_{key.id.hex}", "first")


@pytest.mark.parametrize(
    ("refused", "name", "scope", "tenant"),
    [
        ("the first key has to be one that may make others", "first", Scope.INGEST, TENANT),
        ("the first key has to be one that may make others", "first", Scope.READ, TENANT),
        ("there is no tenant acct_nobody", "first", Scope.ADMIN, "acct_nobody"),
    ],
)
async def test_a_key_that_cannot_be_made_locally_is_refused_in_one_line(
    database_dsn: str, refused: str, name: str, scope: Scope, tenant: str
) -> None:
    settings = read({"DATABASE_URL": database_dsn, "RELAY_SECRET_KEYS": new_key().expose()})
    with pytest.raises(CannotRun, match=refused) as fault:
        await create_local_key(settings, name=name, scopes=[scope], tenant=tenant, say=lambda _: None)
    assert "\n" not in str(fault.value)


async def test_a_name_that_is_taken_is_refused_locally_as_well(database_dsn: str) -> None:
    settings = read({"DATABASE_URL": database_dsn, "RELAY_SECRET_KEYS": new_key().expose()})
    await create_local_key(settings, name="first", scopes=[Scope.ADMIN], tenant=TENANT, say=lambda _: None)
    with pytest.raises(CannotRun, match="another key of acct_default is called 'first'"):
        await create_local_key(settings, name="first", scopes=[Scope.READ], tenant=TENANT, say=lambda _: None)
