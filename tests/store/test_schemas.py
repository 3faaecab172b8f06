"""The catalogue: written once, seen by its own tenant, and known by its version."""

from __future__ import annotations

import asyncio

import pytest

from relay.domain.schema import SchemaName
from relay.store.journal import StaleSnapshot
from relay.store.schemas import EventType, Schemas
from tests.store.world import SOURCE, TENANT, World, event

FIRST = SchemaName("", 0)
PAID = SchemaName("invoice.paid", 1)


@pytest.fixture
def schemas(world: World) -> Schemas:
    return Schemas(world.database)


async def test_a_schema_is_written_once(schemas: Schemas) -> None:
    put = await schemas.put(TENANT, PAID, b'{ "a": "\xc3\xa9\\u0000" }')
    assert put.is_new
    again = await schemas.put(TENANT, PAID, b"false")
    assert (again.is_new, again.stored) == (False, put.stored)
    assert await schemas.read(TENANT, PAID) == put.stored
    assert await schemas.read(TENANT, SchemaName("invoice.paid", 2)) is None


async def test_two_who_put_one_name_at_once_agree_on_what_is_there(schemas: Schemas) -> None:
    puts = await asyncio.gather(*(schemas.put(TENANT, PAID, b"%d" % number) for number in range(4)))
    assert [put.is_new for put in puts].count(True) == 1
    assert len({put.stored for put in puts}) == 1


async def test_a_put_and_strictness_make_every_snapshot_stale_and_nothing_else_does(
    world: World, schemas: Schemas
) -> None:
    before = await world.versions()
    await schemas.put(TENANT, PAID, b"true")
    with pytest.raises(StaleSnapshot):
        await world.journal.append(before, [event()])
    versions = [await world.versions()]
    await schemas.put(TENANT, PAID, b"true")
    await schemas.set_strict(TENANT, strict=False)
    await schemas.set_strict("acct_nobody", strict=True)
    versions.append(await world.versions())
    await schemas.set_strict(TENANT, strict=True)
    versions.append(await world.versions())
    assert [each.schemas for each in versions] == [before.schemas + 1, before.schemas + 1, before.schemas + 2]


async def test_the_catalogue_has_every_tenants_types_with_their_versions_in_order(
    world: World, schemas: Schemas
) -> None:
    await world.sql("insert into tenants (id, name, partition) values ('acct_other', 'other', 1)")
    for tenant, name in ((TENANT, "b/10"), (TENANT, "b/9"), ("acct_other", "b/1"), (TENANT, "a.x/1")):
        event_type, _, number = name.rpartition("/")
        await schemas.put(tenant, SchemaName(event_type, int(number)), b"true")
    await schemas.set_strict("acct_other", strict=True)
    catalogue = await schemas.catalogue()
    assert catalogue.version == (await world.versions()).schemas
    assert catalogue.numbers == {(TENANT, "b"): (9, 10), ("acct_other", "b"): (1,), (TENANT, "a.x"): (1,)}
    assert catalogue.strict == {"acct_other"}
    listed = await schemas.page(TENANT, after=FIRST, limit=10)
    assert [str(each.name) for each in listed] == ["a.x/v1", "b/v9", "b/v10"]
    assert await schemas.page("acct_other", after=FIRST, event_type="a.x", limit=10) == []
    assert await schemas.event_types(TENANT, after="a.x", limit=10) == [EventType("b", (9, 10))]


async def test_a_look_before_a_refusal_finds_the_names_that_were_taken_and_will_stay_a_while(
    world: World, schemas: Schemas
) -> None:
    version = (await world.versions()).schemas
    await world.sql(
        "insert into idempotency_keys (tenant, source, key, fingerprint, receipt_id, journal_day, answer_head,"
        " answer_tail, expires_at) select $1, $2, k, '', gen_random_uuid(), current_date, '', '', now() + age"
        " from (values ('old', interval '30 seconds'), ('new', interval '1 hour')) as v (k, age)",
        TENANT,
        SOURCE,
    )
    taken = [await schemas.look_before_refusing(TENANT, SOURCE, key) for key in ("new", "old", "other", None)]
    assert taken == [(version, True), (version, False), (version, False), (version, False)]
    assert await schemas.look_before_refusing(TENANT, "another", "new") == (version, False)
