"""Endpoints: made, changed, paused, rotated and removed, each by its own tenant only."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from relay.domain.endpoint import AckMode, EndpointConfig, EndpointState, SignatureProfile
from relay.domain.secret import Secret
from relay.store.faults import NameTaken, StoreRefused
from tests.store.world import TENANT, World, new_id

OTHER = "acct_other"
FULL = EndpointConfig(
    name="ledger writer é",
    url="https://ledger.example/hook?x=1",
    event_types=("invoice.*", "*"),
    rate_per_second=2.5,
    burst=3,
    max_in_flight=7,
    timeout_seconds=4.5,
    retry={"max_attempts": 3, "base_seconds": 0.5},
    ack=AckMode.EXPLICIT,
    signature=SignatureProfile.STRIPE,
    headers={"X-Team": 'päy"ments', "X-Empty": ""},
)


def refuse(_: EndpointConfig) -> EndpointConfig:
    raise LookupError("not like this")


async def rules_version(world: World) -> int:
    return (await world.versions()).rules


async def test_an_endpoint_comes_back_as_it_was_made(world: World) -> None:
    endpoint = new_id()
    made = await world.endpoints.create(TENANT, endpoint, FULL, secret_id=new_id(), secret=Secret("whsec_x"))
    assert (made.id, made.tenant, made.config) == (endpoint, TENANT, FULL)
    assert (made.state, made.state_reason, made.previous_secret_expires_at) == (EndpointState.ACTIVE, None, None)
    assert made.created_at == made.updated_at
    assert await world.endpoints.get(TENANT, endpoint) == made
    assert await world.endpoints.list(TENANT, limit=10) == [made]


async def test_a_secret_is_stored_encrypted_only(world: World) -> None:
    await world.add_endpoint(secret="whsec_very_plain")
    (row,) = await world.sql("select ciphertext from secrets")
    assert b"very_plain" not in row["ciphertext"]
    assert world.vault.open(row["ciphertext"]) == Secret("whsec_very_plain")


async def test_a_taken_name_is_refused_and_leaves_nothing(world: World) -> None:
    await world.add_endpoint(EndpointConfig(name="ledger", url="http://127.0.0.1/"))
    before = await rules_version(world)
    with pytest.raises(NameTaken):
        await world.add_endpoint(EndpointConfig(name="ledger", url="http://127.0.0.1/other"))
    assert [await world.rows_in(table) for table in ("endpoints", "endpoint_state", "secrets")] == [1, 1, 1]
    assert await rules_version(world) == before


async def test_a_name_is_free_for_another_tenant_and_again_once_its_endpoint_is_removed(world: World) -> None:
    await world.add_tenant(OTHER, 1)
    config = EndpointConfig(name="ledger", url="http://127.0.0.1/")
    first = await world.add_endpoint(config)
    await world.add_endpoint(config, tenant=OTHER)
    await world.endpoints.remove(TENANT, first)
    await world.add_endpoint(config)


async def test_of_many_that_take_one_name_at_once_one_gets_it(world: World) -> None:
    config = EndpointConfig(name="ledger", url="http://127.0.0.1/")
    made = await asyncio.gather(*(world.add_endpoint(config) for _ in range(8)), return_exceptions=True)
    assert [type(each) for each in made].count(UUID) == 1
    assert [type(each) for each in made].count(NameTaken) == 7


SECOND_STATE = "insert into endpoint_state (endpoint_id) values ($1)"
"""Whatever `claimed_second` the first one has come to, which is part of the key."""


async def test_an_endpoint_has_one_state(world: World) -> None:
    endpoint = await world.add_endpoint()
    await world.sql("update endpoint_state set claimed_second = 7")
    with pytest.raises(StoreRefused, match="has a state already"):
        await world.sql(SECOND_STATE, endpoint)


async def test_of_two_who_make_an_endpoints_state_at_once_the_second_waits_and_is_refused(world: World) -> None:
    endpoint = await world.add_endpoint()
    await world.sql("delete from endpoint_state")
    async with world.database.transaction() as connection:
        await connection.execute(SECOND_STATE, endpoint)
        await connection.execute("update endpoint_state set claimed_second = 7")
        second = asyncio.create_task(world.sql(SECOND_STATE, endpoint))
        await world.until_blocked(second)
    with pytest.raises(StoreRefused, match="has a state already"):
        await second
    assert await world.rows_in("endpoint_state") == 1


async def test_endpoints_are_listed_newest_first_page_by_page(world: World) -> None:
    made = [await world.add_endpoint() for _ in range(5)]
    newest_first = sorted(made, reverse=True)
    first = await world.endpoints.list(TENANT, limit=2)
    second = await world.endpoints.list(TENANT, before=first[-1].id, limit=2)
    third = await world.endpoints.list(TENANT, before=second[-1].id, limit=2)
    assert [each.id for each in (*first, *second, *third)] == newest_first


async def test_a_change_is_made_from_the_newest_configuration(world: World) -> None:
    endpoint = await world.add_endpoint(EndpointConfig(name="counted", url="http://127.0.0.1/", burst=1))
    changes = (
        world.endpoints.update(TENANT, endpoint, lambda config: replace(config, burst=config.burst + 1))
        for _ in range(20)
    )
    await asyncio.gather(*changes)
    newest = await world.endpoints.get(TENANT, endpoint)
    assert newest is not None
    assert newest.config.burst == 21


async def test_everything_but_the_transport_can_be_changed(world: World) -> None:
    endpoint = await world.add_endpoint()
    changed = await world.endpoints.update(TENANT, endpoint, lambda _: FULL)
    assert changed is not None
    assert changed.config == FULL
    assert changed.updated_at > changed.created_at
    assert await world.endpoints.get(TENANT, endpoint) == changed


async def test_a_change_that_is_refused_leaves_everything_as_it_was(world: World) -> None:
    endpoint = await world.add_endpoint()
    before, version = await world.endpoints.get(TENANT, endpoint), await rules_version(world)
    with pytest.raises(LookupError, match="not like this"):
        await world.endpoints.update(TENANT, endpoint, refuse)
    assert await world.endpoints.get(TENANT, endpoint) == before
    assert await rules_version(world) == version
    assert await world.endpoints.update(TENANT, endpoint, lambda config: config) is not None


async def test_a_change_to_a_taken_name_is_refused(world: World) -> None:
    await world.add_endpoint(EndpointConfig(name="ledger", url="http://127.0.0.1/"))
    other = await world.add_endpoint()
    before = await world.endpoints.get(TENANT, other)
    with pytest.raises(NameTaken):
        await world.endpoints.update(TENANT, other, lambda config: replace(config, name="ledger"))
    assert await world.endpoints.get(TENANT, other) == before


@pytest.mark.parametrize(
    "bad",
    [{"event_types": ()}, {"rate_per_second": 0.0}, {"burst": 0}, {"max_in_flight": 0}, {"name": ""}, {"url": "\x00"}],
    ids=str,
)
async def test_the_database_itself_refuses_a_configuration_that_must_never_be(
    world: World, bad: dict[str, object]
) -> None:
    config: EndpointConfig = replace(FULL, **bad)  # type: ignore[arg-type] # each by its own field's name
    with pytest.raises(StoreRefused):
        await world.add_endpoint(config)


async def test_an_endpoint_is_paused_and_resumed(world: World) -> None:
    endpoint = await world.add_endpoint()
    paused = await world.endpoints.set_state(TENANT, endpoint, EndpointState.PAUSED, "maintenance")
    assert paused is not None
    assert (paused.state, paused.state_reason) == (EndpointState.PAUSED, "maintenance")
    resumed = await world.endpoints.set_state(TENANT, endpoint, EndpointState.ACTIVE)
    assert resumed is not None
    assert (resumed.state, resumed.state_reason) == (EndpointState.ACTIVE, None)


async def test_a_pause_does_not_change_the_rules(world: World) -> None:
    """Events go on being routed to a paused endpoint: they are held, not lost."""
    endpoint = await world.add_endpoint()
    before = await rules_version(world)
    await world.endpoints.set_state(TENANT, endpoint, EndpointState.PAUSED)
    assert await rules_version(world) == before


async def test_a_removed_endpoint_is_gone_for_its_tenant(world: World) -> None:
    endpoint = await world.add_endpoint()
    assert await world.endpoints.remove(TENANT, endpoint) is True
    assert await world.endpoints.remove(TENANT, endpoint) is False
    assert await world.endpoints.get(TENANT, endpoint) is None
    assert await world.endpoints.list(TENANT, limit=10) == []
    assert await world.endpoints.update(TENANT, endpoint, refuse) is None
    assert await world.endpoints.set_state(TENANT, endpoint, EndpointState.ACTIVE) is None


async def test_removing_what_is_not_there_does_not_change_the_rules(world: World) -> None:
    before = await rules_version(world)
    assert await world.endpoints.remove(TENANT, new_id()) is False
    assert await rules_version(world) == before


async def test_another_tenants_endpoint_is_not_there(world: World) -> None:
    await world.add_tenant(OTHER, 1)
    endpoint = await world.add_endpoint()
    before = await world.endpoints.get(TENANT, endpoint)
    assert await world.endpoints.get(OTHER, endpoint) is None
    assert await world.endpoints.list(OTHER, limit=10) == []
    assert await world.endpoints.update(OTHER, endpoint, refuse) is None
    assert await world.endpoints.set_state(OTHER, endpoint, EndpointState.PAUSED) is None
    assert await world.endpoints.remove(OTHER, endpoint) is False
    rotated = await world.endpoints.rotate_secret(
        OTHER, endpoint, secret_id=new_id(), secret=Secret("whsec_x"), overlap_seconds=1.0
    )
    assert rotated is None
    assert await world.endpoints.get(TENANT, endpoint) == before


async def test_a_rotation_keeps_the_secret_before_it_for_the_overlap(world: World) -> None:
    endpoint = await world.add_endpoint(secret="whsec_one")
    rotated = await world.endpoints.rotate_secret(
        TENANT, endpoint, secret_id=new_id(), secret=Secret("whsec_two"), overlap_seconds=3600.0
    )
    assert rotated is not None
    assert rotated.previous_secret_expires_at == rotated.updated_at + timedelta(hours=1)


async def test_a_rotation_that_finds_no_endpoint_stores_no_secret(world: World) -> None:
    await world.endpoints.rotate_secret(
        TENANT, new_id(), secret_id=new_id(), secret=Secret("whsec_x"), overlap_seconds=1.0
    )
    assert await world.rows_in("secrets") == 0


async def test_a_snapshot_has_every_tenants_rules_and_partitions(world: World) -> None:
    await world.add_tenant(OTHER, 13)
    ours = await world.add_endpoint(EndpointConfig(name="ledger", url="http://127.0.0.1/", event_types=("invoice.*",)))
    theirs = await world.add_endpoint(EndpointConfig(name="audit", url="http://127.0.0.1/"), tenant=OTHER)
    gone = await world.add_endpoint()
    await world.endpoints.remove(TENANT, gone)
    snapshot = await world.endpoints.snapshot()
    assert snapshot.partitions == {TENANT: 6, OTHER: 13}
    assert [(rule.endpoint_id, rule.consumer) for rule in snapshot.rules.route(TENANT, "invoice.paid")] == [
        (ours, "ledger")
    ]
    assert [rule.endpoint_id for rule in snapshot.rules.route(OTHER, "invoice.paid")] == [theirs]
    assert snapshot.rules.route(TENANT, "order.paid") == ()
    assert snapshot.rules.version == snapshot.versions.rules


async def test_a_snapshot_of_an_installation_without_endpoints_routes_nothing(world: World) -> None:
    snapshot = await world.endpoints.snapshot()
    assert snapshot.rules.rules == ()
    assert snapshot.partitions == {TENANT: 6}


async def test_an_endpoint_has_changed_since_a_revision_once_somebody_has_changed_it(world: World) -> None:
    left, rotated, disabled = [await world.add_endpoint() for _ in range(3)]
    await world.endpoints.rotate_secret(
        TENANT, rotated, secret_id=new_id(), secret=Secret("whsec_two"), overlap_seconds=60.0
    )
    await world.endpoints.set_state(TENANT, disabled, EndpointState.DISABLED)
    assert await world.queue.changed_since({left: 1, rotated: 1, disabled: 1}) == {rotated}
    assert await world.queue.changed_since({rotated: 2}) == set()
