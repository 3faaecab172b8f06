"""The names of requests that change what waits for a person: twice is once, and the second gets the first's answer."""

from __future__ import annotations

import asyncio
import os
from uuid import UUID

import pytest

from relay.domain.delivery import DeadReason, DeliveryMove
from relay.store.filters import DeadLetterFilter
from relay.store.redrive import Effect, Performed, Redrive, Redrives
from relay.store.request_keys import KeptAnswer, RequestKey, RequestKeyReused, RequestUnderWay
from relay.store.retention import Retention
from tests.store.world import TENANT, World, attempt

OTHER = "acct_other"
KEY = RequestKey("again", b"\x01" * 32)


@pytest.fixture
def redrives(world: World) -> Redrives:
    return Redrives(world.database, entropy=os.urandom, key_retention_seconds=3600.0)


@pytest.fixture
async def delivery(world: World) -> UUID:
    """A dead letter."""
    await world.owe(1, await world.add_endpoint())
    claimed = await world.claim_one()
    await world.record(attempt(claimed, DeliveryMove.BURY, dead=DeadReason.EXHAUSTED))
    return claimed.id


async def redrive(
    redrives: Redrives, delivery: UUID, key: RequestKey | None = KEY, *, tenant: str = TENANT
) -> Performed:
    async def work(redrive: Redrive) -> KeptAnswer:
        view = await redrive.delivery(delivery)
        return KeptAnswer(202, f"generation {view.generation if view else None}".encode())

    return await redrives.perform(tenant, key, work)


async def generation(world: World, delivery: UUID) -> int:
    return int((await world.delivery(delivery))["generation"])


async def test_a_repeated_request_does_nothing_and_gets_the_first_answer(
    world: World, redrives: Redrives, delivery: UUID
) -> None:
    first = await redrive(redrives, delivery)
    second = await redrive(redrives, delivery)
    assert first.answer == second.answer == KeptAnswer(202, b"generation 1")
    assert (first.replayed, second.replayed, second.effect) == (False, True, Effect())
    assert await generation(world, delivery) == 1


async def test_without_a_name_each_request_counts(world: World, redrives: Redrives, delivery: UUID) -> None:
    for expected in (1, 2):
        assert (await redrive(redrives, delivery, None)).answer.body == f"generation {expected}".encode()
    assert await world.rows_in("request_keys") == 0


async def test_another_request_under_the_name_is_refused(world: World, redrives: Redrives, delivery: UUID) -> None:
    await redrive(redrives, delivery)
    with pytest.raises(RequestKeyReused):
        await redrive(redrives, delivery, RequestKey(KEY.key, b"\x02" * 32))
    assert await generation(world, delivery) == 1


async def test_a_name_is_its_tenants_alone(world: World, redrives: Redrives, delivery: UUID) -> None:
    await world.add_tenant(OTHER, 1)
    await redrive(redrives, delivery)
    assert (await redrive(redrives, delivery, tenant=OTHER)).answer.body == b"generation None"


async def test_many_at_once_under_one_name_do_it_once(world: World, redrives: Redrives, delivery: UUID) -> None:
    async with asyncio.timeout(30):
        performed = await asyncio.gather(*(redrive(redrives, delivery) for _ in range(20)), return_exceptions=True)
    done = [each for each in performed if isinstance(each, Performed)]
    assert all(isinstance(each, Performed | RequestUnderWay) for each in performed)
    assert {each.answer.body for each in done} == {b"generation 1"}
    assert sum(not each.replayed for each in done) == 1
    assert await generation(world, delivery) == 1


async def test_a_request_is_told_of_the_one_of_its_name_that_is_under_way_and_later_gets_its_answer(
    world: World, redrives: Redrives, delivery: UUID
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(redrive: Redrive) -> KeptAnswer:
        await redrive.delivery(delivery)
        begun.set()
        await go_on.wait()
        return KeptAnswer(202, b"slow")

    first = asyncio.create_task(redrives.perform(TENANT, KEY, slow))
    async with asyncio.timeout(20):
        await begun.wait()
        with pytest.raises(RequestUnderWay):
            await redrive(redrives, delivery)
        go_on.set()
        assert (await first).answer.body == b"slow"
        assert await redrive(redrives, delivery) == Performed(KeptAnswer(202, b"slow"), replayed=True, effect=Effect())


async def test_a_request_that_failed_leaves_its_name_free(world: World, redrives: Redrives, delivery: UUID) -> None:
    async def fails(redrive: Redrive) -> KeptAnswer:
        await redrive.redrive_dead_letters(DeadLetterFilter())
        raise LookupError

    with pytest.raises(LookupError):
        await redrives.perform(TENANT, KEY, fails)
    assert await generation(world, delivery) == 0
    assert not (await redrive(redrives, delivery)).replayed


async def test_a_name_whose_time_is_over_is_free_whether_it_was_pruned_or_not(
    world: World, redrives: Redrives, delivery: UUID
) -> None:
    retention = Retention(world.database)
    for expected in (1, 2, 3):
        performed = await redrive(redrives, delivery)
        assert performed.answer.body == f"generation {expected}".encode()
        await world.sql("update request_keys set expires_at = now()")
        if expected == 2:
            assert await retention.prune_request_keys(batch=10) == 1
    assert await retention.prune_request_keys(batch=10) == 1
    assert await retention.prune_request_keys(batch=10) == 0


async def test_a_name_that_was_taken_anew_is_not_pruned(world: World, redrives: Redrives, delivery: UUID) -> None:
    await redrive(redrives, delivery)
    await world.sql("update request_keys set expires_at = now()")
    await redrive(redrives, delivery)
    assert await Retention(world.database).prune_request_keys(batch=10) == 0
    assert (await redrive(redrives, delivery)).replayed
