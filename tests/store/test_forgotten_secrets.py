"""Secrets are forgotten once nothing can need them and no sooner; whoever rotates or sends beside it loses none."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from relay.domain.delivery import DeliveryMove
from relay.domain.endpoint import Destination
from relay.domain.secret import Secret
from relay.store.database import Database
from relay.store.reencryption import Reencryption, Sealed
from relay.store.retention import Retention
from tests.store.verifying import verified
from tests.store.world import TENANT, World, attempt, new_id, only
from tests.support.administration import Administration

GRACE = 3600.0


@pytest.fixture
def retention(world: World) -> Retention:
    return Retention(world.database)


async def forget(retention: Retention, *, batch: int = 100) -> None:
    """All there is to forget."""
    while await retention.forget_secrets(grace_seconds=GRACE, batch=batch):
        pass


async def later(world: World, hours: int) -> None:
    """So many hours pass for secrets and those that have them."""
    passed = timedelta(hours=hours)
    await world.sql("update secrets set created_at = created_at - $1::interval", passed)
    await world.sql(
        "update endpoints set removed_at = removed_at - $1::interval,"
        " previous_secret_expires_at = previous_secret_expires_at - $1::interval", passed
    )  # fmt: skip
    await world.sql(
        "update sources set removed_at = removed_at - $1::interval,"
        " previous_secret_expires_at = previous_secret_expires_at - $1::interval", passed
    )  # fmt: skip


async def rotate(world: World, endpoint: UUID, secret: str, *, overlap_seconds: float = 3600.0) -> None:
    await world.endpoints.rotate_secret(
        TENANT, endpoint, secret_id=new_id(), secret=Secret(secret), overlap_seconds=overlap_seconds
    )


async def signs_with(world: World, endpoint: UUID) -> tuple[str, str | None]:
    """The secret in force and the previous one."""
    (found,) = (await world.destinations.read([endpoint])).values()
    assert isinstance(found, Destination)
    return found.secret.expose(), found.previous_secret.expose() if found.previous_secret else None


async def test_a_secret_that_was_rotated_away_goes_and_those_that_sign_stay(world: World, retention: Retention) -> None:
    endpoint = await world.add_endpoint(secret="whsec_one")
    await rotate(world, endpoint, "whsec_two", overlap_seconds=86_400.0)
    await rotate(world, endpoint, "whsec_three", overlap_seconds=86_400.0)
    await later(world, 2)
    await forget(retention)
    assert await world.rows_in("secrets") == 2
    assert await signs_with(world, endpoint) == ("whsec_three", "whsec_two")


@pytest.mark.parametrize(("hours", "kept"), [(1, 2), (2, 2), (3, 1)])
async def test_a_previous_secret_goes_an_hour_after_its_overlap(
    world: World, retention: Retention, hours: int, kept: int
) -> None:
    endpoint = await world.add_endpoint(secret="whsec_one")
    await rotate(world, endpoint, "whsec_two", overlap_seconds=3660.0)
    await later(world, hours)
    await forget(retention)
    assert await world.rows_in("secrets") == kept
    shown = await world.endpoints.get(TENANT, endpoint)
    assert shown is not None
    assert (shown.previous_secret_expires_at is None) is (kept == 1)


async def test_the_secrets_of_a_removed_endpoint_go_an_hour_later(world: World, retention: Retention) -> None:
    endpoint = await world.add_endpoint()
    await rotate(world, endpoint, "whsec_two", overlap_seconds=86_400.0)
    await world.endpoints.remove(TENANT, endpoint)
    await forget(retention)
    assert await world.rows_in("secrets") == 2
    await later(world, 2)
    await forget(retention)
    assert await world.rows_in("secrets") == 0
    assert (await verified(world)).ok


@pytest.mark.parametrize("is_leased", [False, True], ids=["waiting", "being sent"])
async def test_a_removed_endpoint_that_is_owed_something_keeps_its_secret_until_that_is_dead(
    world: World, retention: Retention, is_leased: bool
) -> None:
    endpoint = await world.add_endpoint(secret="whsec_one")
    await world.owe(1, endpoint)
    claimed = await world.claim_one() if is_leased else None
    await world.endpoints.remove(TENANT, endpoint)
    await later(world, 2)
    await forget(retention)
    assert await signs_with(world, endpoint) == ("whsec_one", None)
    if claimed is not None:
        await world.record(attempt(claimed, DeliveryMove.RETRY, delay=0.0))
    await world.queue.bury_removed(batch=10)
    await forget(retention)
    assert await world.rows_in("secrets") == 0
    assert (await verified(world)).ok


async def test_what_is_claimed_for_an_endpoint_whose_secret_is_gone_finds_no_destination(
    world: World, retention: Retention
) -> None:
    """So it is handed back like any other that cannot be sent to at present, and the reaper buries it."""
    endpoint = await world.add_endpoint()
    await world.endpoints.remove(TENANT, endpoint)
    await later(world, 2)
    await forget(retention)
    assert await world.destinations.read([endpoint]) == {}


async def test_the_secrets_of_a_removed_source_go_and_the_one_in_force_of_another_stays(
    database: Database, world: World
) -> None:
    made = Administration(database, world.vault)
    await made.key()
    removed, rotated = await made.source("hmac"), await made.source("hmac")
    await made.rotate(rotated, overlap_seconds=60.0)
    await made.remove(removed)
    retention = Retention(database)
    await forget(retention)
    assert await world.rows_in("secrets") == 3
    await later(world, 2)
    await forget(retention)
    assert await world.sql(
        "select s.removed_at is null as stays, s.secret_id is not null as signs, s.previous_secret_id from sources s"
        " where s.auth <> '{}' order by stays"
    ) == [(False, False, None), (True, True, None)]
    assert await world.rows_in("secrets") == 1


async def test_a_secret_that_is_being_put_in_force_is_not_forgotten(world: World, retention: Retention) -> None:
    endpoint = await world.add_endpoint(secret="whsec_one")
    await later(world, 2)
    async with world.database.transaction() as connection:
        await rotate(World.over(only(connection), vault=world.vault), endpoint, "whsec_two", overlap_seconds=0.0)
        await forget(retention)
    await forget(retention)
    assert await signs_with(world, endpoint) == ("whsec_two", None)
    assert await world.rows_in("secrets") == 2


async def test_a_rotation_waits_for_no_forgetting_and_loses_nothing_to_it(world: World) -> None:
    endpoint = await world.add_endpoint(secret="whsec_one")
    await rotate(world, endpoint, "whsec_two", overlap_seconds=1.0)
    await later(world, 2)
    async with world.database.transaction() as connection:
        other = World.over(only(connection), vault=world.vault)
        await rotate(other, endpoint, "whsec_three")
        # the row is held: it is left for the next round
        assert await Retention(world.database).forget_secrets(grace_seconds=GRACE, batch=10) == 0
    await forget(Retention(world.database))
    assert await signs_with(world, endpoint) == ("whsec_three", "whsec_two")


async def test_what_is_left_is_counted_right_by_those_who_look_after_keys(world: World, retention: Retention) -> None:
    kept, removed = await world.add_endpoint(), await world.add_endpoint()
    await world.endpoints.remove(TENANT, removed)
    await later(world, 2)
    await forget(retention)
    assert await Reencryption(world.database, world.vault).sealed() == Sealed(newest=1, older=0, unreadable=0)
    assert await signs_with(world, kept) == ("whsec_one", None)


async def test_forgetting_goes_in_batches(world: World, retention: Retention) -> None:
    for endpoint in await world.add_endpoints(5):
        await world.endpoints.remove(TENANT, endpoint)
    await later(world, 2)
    assert await retention.forget_secrets(grace_seconds=GRACE, batch=2) == 4
    assert await world.rows_in("secrets") == 3
    await forget(retention, batch=2)
    assert await world.rows_in("secrets") == 0
