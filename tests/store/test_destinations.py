"""Destinations: what the dispatcher needs of an endpoint, its secrets opened."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from relay.domain.backoff import DEFAULT, PATIENT
from relay.domain.endpoint import AckMode, Destination, EndpointConfig, SignatureProfile, Transport
from relay.domain.secret import Secret
from relay.store.endpoints import Destinations
from relay.store.vault import Vault, VaultLocked, new_key
from tests.store.world import TENANT, World, new_id

CONFIG = EndpointConfig(name="ledger", url="http://127.0.0.1/hook")


async def destination(world: World, endpoint: UUID) -> Destination:
    """The one destination of that id, readable."""
    (found,) = (await world.destinations.read([endpoint])).values()
    assert isinstance(found, Destination)
    return found


async def rotate(world: World, endpoint: UUID, secret: str, *, overlap_seconds: float = 3600.0) -> None:
    await world.endpoints.rotate_secret(
        TENANT,
        endpoint,
        secret_id=new_id(),
        secret=Secret(secret),
        overlap_seconds=overlap_seconds,
    )


async def test_a_destination_has_what_a_send_needs(world: World) -> None:
    config = replace(
        CONFIG,
        timeout_seconds=4.0,
        ack=AckMode.EXPLICIT,
        signature=SignatureProfile.GITHUB,
        headers={"X-B": "2", "X-A": "1"},
    )
    endpoint = await world.add_endpoint(config, secret="whsec_one")
    assert await destination(world, endpoint) == Destination(
        endpoint_id=endpoint,
        tenant=TENANT,
        revision=1,
        name="ledger",
        url=config.url,
        transport=Transport.HTTP,
        signature=SignatureProfile.GITHUB,
        ack=AckMode.EXPLICIT,
        secret=Secret("whsec_one"),
        previous_secret=None,
        headers=(("X-A", "1"), ("X-B", "2")),
        retry=DEFAULT,
        timeout_seconds=4.0,
    )


async def test_an_endpoints_own_retry_wishes_stand_over_the_installations(world: World) -> None:
    own = await world.add_endpoint(replace(CONFIG, name="own", retry={"max_attempts": 3, "max_seconds": 9.5}))
    patient = await world.add_endpoint(replace(CONFIG, name="patient", retry={"preset": "patient"}))
    assert (await destination(world, own)).retry == replace(DEFAULT, max_attempts=3, max_seconds=9.5)
    assert (await destination(world, patient)).retry == PATIENT


async def test_many_destinations_are_read_at_once_and_unknown_ones_left_out(world: World) -> None:
    lanes = await world.add_endpoints(3)
    assert set(await world.destinations.read([*lanes, new_id()])) == set(lanes)
    assert await world.destinations.read([]) == {}


async def test_a_removed_endpoint_can_still_be_read(world: World) -> None:
    """What was claimed before the removal is on its way."""
    endpoint = await world.add_endpoint(CONFIG)
    await world.endpoints.remove(TENANT, endpoint)
    assert (await destination(world, endpoint)).name == "ledger"


async def test_a_rotated_secret_signs_beside_the_new_one(world: World) -> None:
    endpoint = await world.add_endpoint(CONFIG, secret="whsec_one")
    await rotate(world, endpoint, "whsec_two")
    found = await destination(world, endpoint)
    assert (found.secret, found.previous_secret) == (Secret("whsec_two"), Secret("whsec_one"))


async def test_rotating_twice_keeps_two_secrets_and_never_three(world: World) -> None:
    endpoint = await world.add_endpoint(CONFIG, secret="whsec_one")
    await rotate(world, endpoint, "whsec_two")
    await rotate(world, endpoint, "whsec_three")
    found = await destination(world, endpoint)
    assert (found.secret, found.previous_secret) == (Secret("whsec_three"), Secret("whsec_two"))


async def test_a_previous_secret_whose_overlap_is_over_is_left_out(world: World) -> None:
    endpoint = await world.add_endpoint(CONFIG, secret="whsec_one")
    await rotate(world, endpoint, "whsec_two", overlap_seconds=-1.0)
    assert (await destination(world, endpoint)).previous_secret is None


async def test_every_change_of_an_endpoint_is_a_new_revision(world: World) -> None:
    endpoint = await world.add_endpoint(CONFIG)
    await world.endpoints.update(TENANT, endpoint, lambda config: replace(config, url="http://127.0.0.1/other"))
    await rotate(world, endpoint, "whsec_two")
    found = await destination(world, endpoint)
    assert (found.revision, found.url) == (3, "http://127.0.0.1/other")


async def test_a_secret_without_its_key_locks_its_own_endpoint_only(world: World) -> None:
    readable = await world.add_endpoint(replace(CONFIG, name="readable"))
    stranger = World.over(world.database, vault=Vault([new_key()]))
    locked = await stranger.add_endpoint(replace(CONFIG, name="locked"))
    found = await world.destinations.read([readable, locked])
    assert isinstance(found[readable], Destination)
    assert isinstance(found[locked], VaultLocked)
    assert "RELAY_SECRET_KEYS" in str(found[locked])


async def test_the_key_of_an_expired_previous_secret_may_be_gone(world: World) -> None:
    """A key that was taken out of the settings must not lock an endpoint that needs it no more."""
    old, new = new_key(), new_key()
    before = World.over(world.database, vault=Vault([old]))
    endpoint = await before.add_endpoint(CONFIG, secret="whsec_one")
    await rotate(World.over(world.database, vault=Vault([new, old])), endpoint, "whsec_two", overlap_seconds=-1.0)
    after = World.over(world.database, vault=Vault([new]))
    assert (await destination(after, endpoint)).secret == Secret("whsec_two")


async def test_a_secret_of_an_older_key_opens_as_long_as_the_key_is_configured(world: World) -> None:
    old, new = new_key(), new_key()
    before = World.over(world.database, vault=Vault([old]))
    endpoint = await before.add_endpoint(CONFIG, secret="whsec_one")
    after = World.over(world.database, vault=Vault([new, old]))
    assert (await destination(after, endpoint)).secret == Secret("whsec_one")


class CountingVault(Vault):
    """A vault that counts what it opens."""

    opened = 0

    def open(self, ciphertext: bytes) -> Secret:
        self.opened += 1
        return super().open(ciphertext)


async def test_a_secret_is_opened_once(world: World) -> None:
    vault = CountingVault([new_key()])
    counted = World.over(world.database, vault=vault)
    endpoint = await counted.add_endpoint(CONFIG, secret="whsec_one")
    destinations = Destinations(world.database, vault, default_retry=DEFAULT)
    for _ in range(3):
        await destinations.read([endpoint])
    assert vault.opened == 1
    await rotate(counted, endpoint, "whsec_two")
    await destinations.read([endpoint])
    assert vault.opened == 2
