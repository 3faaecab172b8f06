"""Pruning: what is over goes, row by row; what was bound anew stays."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from relay.store.journal import Appended, AppendResult
from relay.store.retention import Retention
from tests.store.world import World, event, named, only

OVER = "update idempotency_keys set expires_at = now() - interval '1 second'"


async def test_a_key_lives_for_its_window_and_is_bound_anew_after_it_whatever_is_pruned_between(world: World) -> None:
    """Case C60: K, K again after its window, K once more a second later, with a pruning between all steps."""
    retention = Retention(world.database)
    answers: list[Appended] = []
    for is_over in (False, True, False):
        if is_over:
            await world.sql(OVER)
        await retention.prune_idempotency_keys(batch=10)
        answers += await world.append(event(key=named("K")))
        assert await retention.prune_idempotency_keys(batch=10) == 0
    assert [each.result for each in answers] == [AppendResult.APPENDED, AppendResult.APPENDED, AppendResult.REPLAYED]
    assert answers[2].position == answers[1].position != answers[0].position
    assert await world.rows_in("receipts") == 2


async def test_a_key_that_is_bound_anew_beside_the_pruning_stays(world: World) -> None:
    """The pruning passes over the row that an append holds, and finds it in force afterwards."""
    retention = Retention(world.database)
    await world.append(event(key=named("K")))
    await world.sql(OVER)
    async with world.database.transaction() as connection:
        await World.over(only(connection)).append(event(key=named("K")))
        assert await retention.prune_idempotency_keys(batch=10) == 0
    assert await retention.prune_idempotency_keys(batch=10) == 0
    (answer,) = await world.append(event(key=named("K")))
    assert answer.result is AppendResult.REPLAYED


async def test_a_key_that_is_being_pruned_can_be_bound_anew(world: World) -> None:
    await world.append(event(key=named("K")))
    await world.sql(OVER)
    async with world.database.transaction() as connection:
        assert await Retention(only(connection)).prune_idempotency_keys(batch=10) == 1
        append = asyncio.create_task(world.append(event(key=named("K"))))
        await world.until_blocked(append)
    async with asyncio.timeout(20):
        (answer,) = await append
    assert answer.result is AppendResult.APPENDED
    assert await world.rows_in("idempotency_keys") == 1


async def test_pruning_goes_batch_by_batch_the_oldest_first(world: World) -> None:
    retention = Retention(world.database)
    await world.append(*(event(key=named(f"k{number}")) for number in range(5)))
    await world.sql("update idempotency_keys set expires_at = now() - right(key, 1)::integer * interval '1 minute'")
    await world.sql("update idempotency_keys set expires_at = now() + interval '1 hour' where key = 'k2'")
    assert [await retention.prune_idempotency_keys(batch=3) for _ in range(3)] == [3, 1, 0]
    assert [row[0] for row in await world.sql("select key from idempotency_keys")] == ["k2"]


async def test_names_and_signatures_that_are_not_over_stay(world: World) -> None:
    retention = Retention(world.database)
    for name, left in (("over", timedelta()), ("fresh", timedelta(hours=1))):
        await world.sql("insert into request_keys values ('acct_default', $1, '', null, null, now() + $2)", name, left)
        await world.sql("insert into signed_requests values ('acct_default', $1, '', '', now() + $2)", name, left)
    assert await retention.prune_request_keys(batch=10) == 1
    assert await retention.prune_signed_requests(batch=10) == 1
    assert [row[0] for row in await world.sql("select key from request_keys")] == ["fresh"]
    assert [row[0] for row in await world.sql("select source from signed_requests")] == ["fresh"]
