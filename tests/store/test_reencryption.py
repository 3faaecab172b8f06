"""Secrets at rest go over to another key: in batches, side by side, and beside whoever rotates."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from relay.app.reencryption import Reencrypted, Walk
from relay.domain.secret import Secret
from relay.store.database import Database
from relay.store.faults import KeysRetired
from relay.store.keys import Lacking, OtherKeys, agree_on_keys, check_keys, marked
from relay.store.reencryption import FIRST, Reencryption, Sealed, User
from relay.store.vault import Vault, new_key
from tests.store.world import TENANT, WIDE, World, new_id

OLD, NEW, LOST = new_key(), new_key(), new_key()
OF_OLD, OF_NEW, OF_BOTH = Vault([OLD]), Vault([NEW]), Vault([NEW, OLD])
BATCH = 3


@pytest.fixture
async def old(database: Database) -> World:
    """Ten endpoints and what they sign with, under the old key."""
    await agree_on_keys(database, OF_OLD)
    world = World.over(database, vault=OF_OLD)
    await world.add_endpoints(10)
    return world


async def endpoint_of(database: Database, *keys: Secret, name: str) -> UUID:
    """An endpoint that a process with these keys makes."""
    return await World.over(database, vault=Vault(keys)).add_endpoint(replace(WIDE, name=name))


async def walk(database: Database, vault: Vault = OF_BOTH, *, give_up: bool = False) -> Reencrypted:
    """What the command does, in small batches."""
    lost = await agree_on_keys(database, vault, may_lack=Lacking.ALL if give_up else Lacking.SOME)
    return await Walk(Reencryption(database, vault), lost, lambda *_: None, batch=BATCH).run(give_up=give_up)


def numbers(found: Reencrypted) -> tuple[int, tuple[User, ...], int, int]:
    return found.sealed_anew, found.unreadable, found.unused, found.lost


async def stored(world: World) -> dict[UUID, bytes]:
    return {row["id"]: row["ciphertext"] for row in await world.sql("select id, ciphertext from secrets")}


async def test_every_secret_is_the_same_under_the_newest_key(old: World, database: Database) -> None:
    before = {each: OF_OLD.open(text) for each, text in (await stored(old)).items()}
    assert numbers(await walk(database)) == (10, (), 0, 0)
    assert {each: OF_NEW.open(text) for each, text in (await stored(old)).items()} == before


async def test_a_process_with_the_new_key_alone_starts_only_afterwards(old: World, database: Database) -> None:
    await agree_on_keys(database, OF_BOTH)
    with pytest.raises(OtherKeys):
        await agree_on_keys(database, OF_NEW)
    await walk(database)
    await agree_on_keys(database, OF_NEW)
    assert await check_keys(database, OF_NEW)
    with pytest.raises(OtherKeys):
        await agree_on_keys(database, OF_OLD)


async def test_what_is_done_is_not_done_again(old: World, database: Database) -> None:
    await walk(database)
    before = await stored(old)
    assert numbers(await walk(database)) == (0, (), 0, 0)
    assert await stored(old) == before


async def test_a_walk_that_was_ended_anywhere_goes_on_with_the_rest(old: World, database: Database) -> None:
    await agree_on_keys(database, OF_BOTH)
    begun = await Reencryption(database, OF_BOTH).reseal(FIRST, BATCH)
    assert begun.sealed_anew == BATCH
    assert await Reencryption(database, OF_BOTH).sealed() == Sealed(newest=BATCH, older=10 - BATCH, unreadable=0)
    assert (await walk(database)).sealed_anew == 10 - BATCH


async def test_several_walks_side_by_side_do_each_secret_once(old: World, database: Database) -> None:
    found = await asyncio.gather(*(walk(database) for _ in range(4)))
    assert sum(each.sealed_anew for each in found) == 10
    assert await Reencryption(database, OF_BOTH).sealed() == Sealed(newest=10, older=0, unreadable=0)


async def test_what_was_replaced_after_it_was_read_is_left_as_it_is(
    old: World, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await agree_on_keys(database, OF_BOTH)
    store = Reencryption(database, OF_BOTH)
    write = store._write
    other = OF_OLD.seal(Secret("whsec_other"))

    async def late(anew: Any) -> int:
        await old.sql("update secrets set ciphertext = $2 where id = $1", anew[0][0], other)
        return await write(anew)

    monkeypatch.setattr(store, "_write", late)
    assert (await store.reseal(FIRST, BATCH)).sealed_anew == BATCH - 1
    assert other in (await stored(old)).values()


async def test_secrets_of_before_fingerprints_were_kept_go_over_too(old: World, database: Database) -> None:
    await old.sql("update secrets set key_id = null")
    await old.sql("update key_marks set key_id = null")
    assert (await Reencryption(database, OF_BOTH).sealed()).older == 10
    assert (await walk(database)).sealed_anew == 10
    await agree_on_keys(database, OF_NEW)


async def test_those_of_before_that_are_under_the_newest_key_already_keep_their_text(
    old: World, database: Database
) -> None:
    await old.sql("update secrets set key_id = null")
    before = await stored(old)
    assert numbers(await walk(database, OF_OLD)) == (0, (), 0, 0)
    assert await stored(old) == before
    assert await Reencryption(database, OF_OLD).sealed(ask=False) == Sealed(newest=10, older=0, unreadable=0)


async def test_a_rotation_during_the_walk_stays(old: World, database: Database) -> None:
    endpoint = (await old.sql("select id from endpoints order by id limit 1"))[0]["id"]
    secrets = [Secret(f"whsec_{number}") for number in range(20)]

    async def rotate() -> None:
        for secret in secrets:
            await World.over(database, vault=Vault([OLD, NEW])).endpoints.rotate_secret(
                TENANT, endpoint, secret_id=new_id(), secret=secret, overlap_seconds=60
            )

    await asyncio.gather(rotate(), walk(database), walk(database))
    await walk(database)
    (destination,) = (await World.over(database, vault=OF_NEW).destinations.read([endpoint])).values()
    assert not isinstance(destination, Exception)
    assert (destination.secret, destination.previous_secret) == (secrets[-1], secrets[-2])


async def test_who_still_has_the_old_key_in_front_seals_under_the_new_one_once_that_is_retired(
    old: World, database: Database
) -> None:
    await walk(database)
    endpoint = await endpoint_of(database, OLD, NEW, name="late")
    destination = (await World.over(database, vault=OF_NEW).destinations.read([endpoint]))[endpoint]
    assert not isinstance(destination, Exception)


async def test_who_has_a_retired_key_alone_seals_nothing(old: World, database: Database) -> None:
    await walk(database)
    with pytest.raises(KeysRetired, match="restart it with the newest"):
        await endpoint_of(database, OLD, name="late")


async def test_a_key_is_not_retired_while_something_is_being_sealed_under_it(old: World, database: Database) -> None:
    await agree_on_keys(database, OF_BOTH)
    store = Reencryption(database, OF_BOTH)
    while (batch := await store.reseal(FIRST, BATCH)).last is not None:
        assert batch.sealed_anew
    async with database.transaction() as connection:
        await connection.fetch("select from key_marks where key_id = $1 for share", OF_OLD.newest)
        retiring = asyncio.create_task(store.retire((), ()))
        await old.until_blocked(retiring)
        await connection.execute(
            "insert into secrets (id, ciphertext, key_id) values ($1, $2, $3)",
            new_id(), OF_OLD.seal(Secret("x")), OF_OLD.newest,
        )  # fmt: skip
    assert await retiring is False
    assert await marked(database, OF_BOTH) == {OF_NEW.newest: False, OF_OLD.newest: False}


async def test_a_secret_that_no_key_opens_is_named_and_the_rest_is_done(old: World, database: Database) -> None:
    endpoint = await endpoint_of(database, LOST, name="forlorn")
    found = await walk(database)
    ((kind, secret_of, name),) = [(each.kind, each.id, each.name) for each in found.unreadable]
    assert (kind, secret_of, name, found.sealed_anew) == ("endpoint", endpoint, "forlorn", 10)
    assert await Reencryption(database, OF_BOTH).sealed() == Sealed(newest=10, older=0, unreadable=1)


async def test_a_lost_key_stands_in_nobodys_way_once_it_is_given_up(old: World, database: Database) -> None:
    await agree_on_keys(database, Vault([LOST, OLD]))
    forlorn = await endpoint_of(database, LOST, OLD, name="forlorn")
    assert (await walk(database)).lost == 1
    with pytest.raises(OtherKeys, match="lacks one"):
        await agree_on_keys(database, OF_BOTH)
    assert [each.name for each in (await walk(database, give_up=True)).unreadable] == ["forlorn"]
    await agree_on_keys(database, OF_NEW)
    world = World.over(database, vault=OF_NEW)
    await world.endpoints.rotate_secret(
        TENANT, forlorn, secret_id=new_id(), secret=Secret("whsec_new"), overlap_seconds=60
    )
    destination = (await world.destinations.read([forlorn]))[forlorn]
    assert not isinstance(destination, Exception)
    assert (destination.secret, destination.previous_secret) == (Secret("whsec_new"), None)


async def test_a_lost_key_of_what_nobody_uses_any_more_is_given_up_unasked(old: World, database: Database) -> None:
    await agree_on_keys(database, Vault([LOST, OLD]))
    forlorn = await endpoint_of(database, LOST, OLD, name="forlorn")
    await old.endpoints.remove(TENANT, forlorn)
    found = await walk(database)
    assert (*numbers(found), found.given_up) == (10, (), 1, 0, 1)
    await agree_on_keys(database, OF_NEW)


async def test_keys_of_another_installation_give_up_nothing_unasked(old: World, database: Database) -> None:
    with pytest.raises(OtherKeys, match="none of the keys"):
        await walk(database, Vault([LOST]))
