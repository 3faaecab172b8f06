"""Claims about credentials in the database: made and ended one after the other, whoever else is at it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import asyncpg
import pytest

from relay.domain.credentials import Proof, Scope, digest_of
from relay.domain.endpoint import EndpointConfig
from relay.domain.schema import read_name
from relay.domain.secret import Secret
from relay.store.credentials import CredentialReader
from relay.store.database import Connection, Database
from relay.store.endpoints import Endpoints
from relay.store.faults import NameTaken, NoSuchTenant
from relay.store.issuer import (
    CredentialsChanged,
    KeyRow,
    LastKey,
    NoKeyYet,
    NoSuchKey,
    NoSuchSource,
    NotProvedByBearer,
    TenantInUse,
)
from relay.store.schemas import Schemas
from relay.store.signed_requests import SignedRequest, SignedRequests
from relay.store.vault import Vault, new_key
from tests.store.world import new_id
from tests.support.administration import FAR, TENANT, Administration
from tests.support.installation import eventually

OTHER = "acct_other"


@pytest.fixture
def made(database: Database) -> Administration:
    return Administration(database, Vault([new_key()]))


async def raised(*work: Awaitable[object]) -> list[type[BaseException]]:
    """What came of work that was done at once: the kinds of its exceptions."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    return [type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)]


def first(made: Administration, *scopes: Scope, seen: int | None) -> Awaitable[KeyRow]:
    return made.issuer.create_key(
        TENANT, new_id(), f"key-{os.urandom(4).hex()}", scopes, secret=Secret(os.urandom(16).hex()), seen=seen
    )


@pytest.mark.parametrize("scope", [Scope.INGEST, Scope.READ])
async def test_the_first_key_may_make_others(made: Administration, scope: Scope) -> None:
    with pytest.raises(NoKeyYet):
        await first(made, scope, seen=None)
    with pytest.raises(NoKeyYet):
        await made.source("hmac")
    assert await made.issuer.is_open()
    await first(made, Scope.ADMIN, seen=None)
    await first(made, scope, seen=None)
    assert not await made.issuer.is_open()


async def test_of_two_who_were_anonymous_one_makes_the_first_key(made: Administration) -> None:
    version = await made.version()
    assert await raised(*(first(made, Scope.ADMIN, seen=version) for _ in range(5))) == [CredentialsChanged] * 4
    assert len(await made.issuer.keys(TENANT, before=FAR, limit=10)) == 1


async def test_a_key_that_is_being_revoked_makes_no_successor(made: Administration) -> None:
    await made.key("admin")
    leaked = await made.key("admin")
    version = await made.version()
    await made.revoke(leaked)
    with pytest.raises(CredentialsChanged):
        await first(made, Scope.ADMIN, seen=version)


async def test_of_two_last_keys_that_are_revoked_at_once_one_stays(made: Administration) -> None:
    keys = [await made.key("admin"), await made.key("operator")]
    version = await made.version()
    kinds = await raised(*(made.issuer.revoke_key(TENANT, key.id, by_operator=True, seen=version) for key in keys))
    assert kinds == [CredentialsChanged]
    (left,) = await made.issuer.keys(TENANT, before=FAR, limit=10)
    with pytest.raises(LastKey):
        await made.issuer.revoke_key(TENANT, left.id, by_operator=True, seen=await made.version())


async def test_a_tenant_keeps_somebody_who_can_make_keys_for_it(made: Administration) -> None:
    await made.key("admin")
    await made.tenant(OTHER)
    theirs = await made.key("admin", tenant=OTHER)
    with pytest.raises(LastKey):
        await made.revoke(theirs, tenant=OTHER)
    operator = await made.key("operator")
    await made.revoke(theirs, tenant=OTHER)
    plain = await made.key("ingest", tenant=OTHER)
    await made.revoke(operator)
    await made.revoke(plain, tenant=OTHER)


async def test_a_refused_change_makes_no_credentials_stale(made: Administration) -> None:
    key = await made.key("admin")
    version = await made.version()
    for kind, change in (
        (LastKey, made.revoke(key)),
        (NoSuchKey, made.issuer.revoke_key(TENANT, new_id(), by_operator=True, seen=version)),
        (NoSuchSource, made.issuer.remove_source(TENANT, new_id(), seen=version)),
        (NoSuchTenant, made.issuer.remove_tenant(OTHER, seen=version)),
        (TenantInUse, made.issuer.remove_tenant(TENANT, seen=version)),
        (NameTaken, made.key("admin", name=key.name)),
        (NoSuchSource, made.key("ingest", source="nobody")),
    ):
        with pytest.raises(kind):
            await change
    assert await made.version() == version


async def test_a_key_proves_only_sources_that_ask_for_a_bearer(made: Administration) -> None:
    await made.key("admin")
    await made.source("hmac", name="signer")
    with pytest.raises(NotProvedByBearer):
        await made.key("ingest", source="signer")


async def test_a_name_is_free_again_once_its_owner_is_gone(made: Administration) -> None:
    await made.key("admin")
    key, source = await made.key("read", name="k"), await made.source("mtls", name="s", subject="CN=s")
    for taken in (made.key("read", name="k"), made.source("hmac", name="s"), made.source("mtls", subject="CN=s")):
        with pytest.raises(NameTaken):
            await taken
    await made.revoke(key)
    await made.remove(source)
    await made.key("read", name="k")
    await made.source("mtls", name="s", subject="CN=s")


async def test_a_removed_source_takes_its_keys_along(made: Administration) -> None:
    await made.key("admin")
    source = await made.source("bearer", name="billing")
    await made.key("ingest", source="billing")
    await made.remove(source)
    assert [key.source for key in await made.issuer.keys(TENANT, before=FAR, limit=10)] == [None]


async def test_an_id_of_a_tenant_is_never_given_twice(made: Administration) -> None:
    await made.key("operator")
    await made.tenant(OTHER)
    await made.issuer.remove_tenant(OTHER, seen=await made.version())
    with pytest.raises(NameTaken):
        await made.tenant(OTHER)
    with pytest.raises(NoSuchTenant):
        await made.key("admin", tenant=OTHER)


async def make(kind: str, made: Administration, database: Database) -> None:
    """Make something of the other tenant's."""
    if kind == "key":
        await made.key("admin", tenant=OTHER)
    elif kind == "source":
        await made.source("hmac", tenant=OTHER)
    elif kind == "schema":
        await Schemas(database).put(OTHER, read_name("a/v1"), b"{}")
    else:
        config = EndpointConfig(name="a", url="https://example.com/", event_types=("*",))
        secret = Secret("whsec_" + "a" * 44)
        endpoints = Endpoints(database, Vault([new_key()]))
        await endpoints.create(OTHER, new_id(), config, secret_id=new_id(), secret=secret)


@pytest.mark.parametrize("removed_first", [True, False])
@pytest.mark.parametrize("kind", ["endpoint", "schema", "key", "source"])
async def test_nothing_is_made_for_a_tenant_that_is_being_removed(
    database: Database, database_dsn: str, kind: str, removed_first: bool
) -> None:
    """Both are on their way when either ends: the one that comes first is seen by the other."""
    made = Administration(database, Vault([new_key()]))
    await made.key("operator")
    await made.tenant(OTHER)
    version = await made.version()
    making: Callable[[], Awaitable[object]] = partial(make, kind, made, database)
    removing = partial(made.issuer.remove_tenant, OTHER, seen=version)
    started: list[asyncio.Task[object]] = []
    holder, watcher = [await asyncpg.connect(database_dsn) for _ in range(2)]
    try:
        async with holder.transaction():
            await holder.execute("select from versions for update")
            for work in (removing, making) if removed_first else (making, removing):
                started.append(asyncio.ensure_future(work()))
                await eventually(partial(that_many_wait, watcher, len(started)), 10.0, f"{len(started)} wait")
    finally:
        await holder.close()
        await watcher.close()
    expected: set[type[Exception]] = {NoSuchTenant} if removed_first else {TenantInUse, CredentialsChanged}
    # a schema keeps no tenant, as events keep none: it is there before the removal, and of use to nobody after it
    if kind == "schema" and not removed_first:
        assert await raised(*started) == []
    else:
        (fault,) = await raised(*started)
        assert fault in expected


async def that_many_wait(connection: asyncpg.Connection, many: int) -> bool:
    """Whether so many sessions of this database wait for a lock."""
    waiting = await connection.fetchval(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    )
    return bool(waiting == many)


async def test_secrets_are_stored_as_they_are_needed_and_no_other_way(made: Administration, database: Database) -> None:
    key = await made.key("admin")
    sources = [await made.source(*auth) for auth in (["bearer"], ["hmac"], ["bearer", "hmac"])]
    async with database.connection() as connection:
        stored = await connection.fetch("select secret_sha256, secret_id from sources where auth <> '{}' order by id")
        text = str(
            [tuple(row) for table in ("keys", "sources", "secrets") for row in await connection.fetch(f"table {table}")]
        )
    hashes = [digest_of(source.secret) for source in sources]
    assert [row["secret_sha256"] for row in stored] == [hashes[0], None, hashes[2]]
    assert [row["secret_id"] is not None for row in stored] == [False, True, True]
    assert not any(each.secret in text for each in [key, *sources])


async def test_what_is_read_again_is_nothing_unless_it_changed(made: Administration, database: Database) -> None:
    reader = CredentialReader(database, Vault([new_key()]), monotonic=lambda: 0.0)
    empty = await reader.read(None)
    assert empty is not None
    assert empty.is_empty
    assert await reader.read(empty.version) is None
    await made.key("admin")
    newer = await reader.read(empty.version)
    assert newer is not None
    assert (newer.version > empty.version, newer.is_empty) == (True, False)


async def test_rotating_twice_keeps_two_secrets_never_three(made: Administration, database: Database) -> None:
    await made.key("admin")
    source = await made.source("bearer", "hmac", name="billing")
    for _ in range(3):
        source = await made.rotate(source)
    reader = CredentialReader(database, Vault([new_key()]), monotonic=lambda: 5.0)
    credentials = await reader.read(None)
    assert credentials is not None
    found = credentials.source("billing")
    assert found is not None
    newest, previous = found.secrets
    assert newest.sha256 == digest_of(source.secret)
    assert previous.until is not None
    assert 3500 < previous.until <= 3605
    assert found.auth == {Proof.BEARER, Proof.HMAC}


async def test_a_secret_whose_time_is_over_is_not_read_though_nobody_removed_it(
    made: Administration, database: Database
) -> None:
    await made.key("admin")
    await made.rotate(await made.source("hmac", name="billing"), overlap_seconds=0.0)
    credentials = await CredentialReader(database, Vault([new_key()]), monotonic=lambda: 0.0).read(None)
    assert credentials is not None
    found = credentials.source("billing")
    assert found is not None
    assert len(found.secrets) == 1


async def test_an_answer_that_is_slow_to_come_gives_no_secret_more_time(
    made: Administration, database: Database
) -> None:
    class Slow(Database):
        """Takes a minute for each answer."""

        @asynccontextmanager
        async def connection(self, within: float | None = None) -> AsyncIterator[Connection]:
            async with database.connection(within) as connection:
                yield connection
            clock.append(clock[-1] + 60.0)

    await made.key("admin")
    await made.rotate(await made.source("hmac", name="billing"), overlap_seconds=100.0)
    clock = [0.0]
    slow = Slow.__new__(Slow)
    found = await CredentialReader(slow, Vault([new_key()]), monotonic=lambda: clock[-1]).read(None)
    assert found is not None
    source = found.source("billing")
    assert source is not None
    assert [each.until is None or each.until <= 100.0 for each in source.secrets] == [True, True]


async def test_what_is_claimed_twice_is_the_first_ones_until_its_time_is_over(database: Database) -> None:
    requests = SignedRequests(database)
    request, other = SignedRequest(TENANT, "billing", b"1"), SignedRequest(OTHER, "billing", b"1")
    assert await requests.claim([(request, b"a"), (other, b"b")]) == {request: b"a", other: b"b"}
    assert await requests.claim([(request, b"b")]) == {request: b"a"}
    async with database.connection() as connection:
        await connection.execute("update signed_requests set expires_at = now()")
    assert await requests.claim([(request, b"b")]) == {request: b"b"}


async def test_claims_of_the_same_requests_in_any_order_never_lock_each_other_out(database: Database) -> None:
    requests = SignedRequests(database)
    many = [SignedRequest(TENANT, "billing", bytes([n])) for n in range(200)]
    found = await asyncio.gather(
        *(requests.claim([(each, bytes([turn])) for each in many[:: 1 if turn % 2 else -1]]) for turn in range(8))
    )
    assert all(each == found[0] for each in found)


async def test_nothing_of_one_tenant_is_another_ones(made: Administration) -> None:
    await made.key("operator")
    await made.tenant(OTHER)
    key, source = await made.key("admin"), await made.source("hmac")
    version = await made.version()
    for kind, change in (
        (NoSuchKey, made.issuer.revoke_key(OTHER, key.id, by_operator=True, seen=version)),
        (NoSuchSource, made.issuer.remove_source(OTHER, source.id, seen=version)),
        (NoSuchSource, made.rotate(source, tenant=OTHER)),
    ):
        with pytest.raises(kind):
            await change
    assert await made.issuer.keys(OTHER, before=FAR, limit=10) == []
    assert await made.issuer.sources(OTHER, before=FAR, limit=10) == []
    assert [tenant.id for tenant in await made.issuer.tenants(OTHER, after="", limit=10)] == [OTHER]
