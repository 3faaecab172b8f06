"""Idempotency keys: one name, one event, one answer."""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import replace

import asyncpg
import pytest

from relay.store.database import Database
from relay.store.journal import Appended, AppendResult, Journal
from tests.store.world import KEY_SECONDS, World, event, named, new_id, only

RESULTS = AppendResult


def results(appended: list[Appended]) -> list[AppendResult]:
    return [each.result for each in appended]


async def lapse(world: World, *keys: str) -> None:
    """Let so much time pass that these keys have expired."""
    await world.sql("update idempotency_keys set expires_at = now() - interval '1 second' where key = any ($1)", keys)


async def events(world: World) -> int:
    return int(await world.value("select count(*) from journal"))


async def test_a_replay_answers_the_first_answers_bytes_and_creates_nothing(world: World) -> None:
    key = named("order-1", head=b'{"receipt":"rcp_1","position":"', tail=b'","note":"\xc3\xa9\x00"}')
    (first,) = await world.append(event(key=key, to=(new_id(),)))
    (again,) = await world.append(event(key=named("order-1", head=b"other", tail=b"other"), to=(new_id(), new_id())))
    assert (first.result, first.answer) == (RESULTS.APPENDED, None)
    assert (again.result, again.position) == (RESULTS.REPLAYED, first.position)
    assert again.answer == b'{"receipt":"rcp_1","position":"p06:1","note":"\xc3\xa9\x00"}'
    assert await events(world) == 1
    assert await world.value("select count(*) from deliveries") == 1


async def test_a_key_with_another_body_is_a_conflict_and_creates_nothing(world: World) -> None:
    await world.append(event(key=named("order-1", body=b"1")))
    (other,) = await world.append(event(key=named("order-1", body=b"2")))
    assert (other.result, other.position, other.answer) == (RESULTS.CONFLICT, None, None)
    assert await events(world) == 1


async def test_events_without_a_key_are_never_replays(world: World) -> None:
    assert results(await world.append(event(payload=b"same"), event(payload=b"same"))) == [RESULTS.APPENDED] * 2


async def test_a_key_belongs_to_its_source(world: World) -> None:
    await world.append(event(key=named("k")))
    assert results(await world.append(event(key=named("k"), source="billing"))) == [RESULTS.APPENDED]


async def test_a_key_belongs_to_its_tenant(world: World) -> None:
    await world.add_tenant("acct_other", 3)
    await world.append(event(key=named("k")))
    assert results(await world.append(event(key=named("k"), tenant="acct_other", partition=3))) == [RESULTS.APPENDED]


async def test_a_group_may_hold_one_key_of_several_tenants_and_sources(world: World) -> None:
    await world.add_tenant("acct_other", 3)
    group = [event(key=named("k")), event(key=named("k"), source="b"), event(key=named("k"), tenant="acct_other")]
    assert results(await world.append(*group)) == [RESULTS.APPENDED] * 3


async def test_an_expired_key_names_a_new_event_and_then_dedupes_against_that(world: World) -> None:
    (first,) = await world.append(event(key=named("k", body=b"1", head=b"first ")))
    await lapse(world, "k")
    (second,) = await world.append(event(key=named("k", body=b"2", head=b"second ")))
    (third,) = await world.append(event(key=named("k", body=b"2", head=b"third ")))
    assert [first.result, second.result, third.result] == [RESULTS.APPENDED, RESULTS.APPENDED, RESULTS.REPLAYED]
    assert third.position == second.position != first.position
    assert third.answer == b'second p06:2"}'
    assert await events(world) == 2


async def test_an_expired_keys_old_body_conflicts_with_its_new_one(world: World) -> None:
    await world.append(event(key=named("k", body=b"1")))
    await lapse(world, "k")
    await world.append(event(key=named("k", body=b"2")))
    assert results(await world.append(event(key=named("k", body=b"1")))) == [RESULTS.CONFLICT]


async def test_a_key_lives_as_long_as_the_journal_is_told(world: World) -> None:
    await Journal(world.database, key_retention_seconds=120.0).append(await world.versions(), [event(key=named("k"))])
    left = await world.value("select extract(epoch from expires_at - now()) from idempotency_keys")
    assert 100 < left <= 120


async def test_a_key_dedupes_over_midnight(world: World) -> None:
    """Case C60: the key's event lies in yesterday's partition and the repeat would lie in today's."""
    day_ms = 86_400_000
    now_ms = new_id().int >> 80
    await world.append(event(key=named("k"), receipt=new_id(unix_ms=now_ms - day_ms)))
    assert results(await world.append(event(key=named("k")))) == [RESULTS.REPLAYED]
    assert await world.value("select count(distinct tableoid) from journal") == 1


async def test_replays_conflicts_and_fresh_events_mix_in_one_group(world: World) -> None:
    lane = new_id()
    await world.append(*(event(key=named(f"old-{n}", head=b"%d " % n), to=(lane,)) for n in range(3)))
    group = [
        event(to=(lane,)),
        event(key=named("old-1"), to=(lane,)),
        event(key=named("new-1"), to=(lane,)),
        event(key=named("old-0", body=b"other"), to=(lane,)),
        event(key=named("old-2"), to=(lane,)),
        event(key=named("new-0"), to=(lane,)),
    ]
    appended = await world.append(*group)
    assert results(appended) == [
        RESULTS.APPENDED, RESULTS.REPLAYED, RESULTS.APPENDED, RESULTS.CONFLICT, RESULTS.REPLAYED, RESULTS.APPENDED,
    ]  # fmt: skip # one line per six results says less
    assert [str(each.position) for each in appended] == ["p06:4", "p06:2", "p06:5", "None", "p06:3", "p06:6"]
    assert appended[1].answer == b'1 p06:2"}'
    assert await world.value("select count(*) from deliveries") == 6
    assert await world.value("select count(*) from idempotency_keys") == 5


async def test_a_group_of_replays_only_takes_no_number(world: World) -> None:
    keys = [named(f"k{n}") for n in range(5)]
    await world.append(*(event(key=key) for key in keys))
    again = await world.append(*(event(key=key) for key in reversed(keys)))
    assert [str(each.position) for each in again] == ["p06:5", "p06:4", "p06:3", "p06:2", "p06:1"]
    assert await world.value("select next_number from journal_heads where partition = 6") == 6


async def test_the_same_receipt_sent_again_under_its_key_is_a_replay(world: World) -> None:
    """A gateway that does not know whether its append was committed sends the very same again."""
    added = event(key=named("k"))
    await world.append(added)
    assert results(await world.append(added)) == [RESULTS.REPLAYED]


async def test_a_failed_append_does_not_keep_its_keys(world: World) -> None:
    broken = event(key=named("k2"))
    broken = replace(broken, envelope=broken.envelope._replace(type="nul\x00inside"))
    with pytest.raises(Exception, match="refused"):
        await world.append(event(key=named("k1")), broken)
    assert results(await world.append(event(key=named("k1")), event(key=named("k2")))) == [RESULTS.APPENDED] * 2


async def test_a_hundred_at_once_with_one_key_make_one_event_and_the_same_answer(world: World) -> None:
    versions = await world.versions()
    first_or_again = await asyncio.gather(
        *(world.journal.append(versions, [event(key=named("k"), to=(new_id(),))]) for _ in range(100))
    )
    counted = [each.result for (each,) in first_or_again]
    assert (counted.count(RESULTS.APPENDED), counted.count(RESULTS.REPLAYED)) == (1, 99)
    assert {each.answer for (each,) in first_or_again} == {None, b'{"position":"p06:1"}'}
    assert await events(world) == 1
    assert await world.value("select count(*) from deliveries") == 1


async def appender(dsn: str, keys: list[str], groups: int) -> list[Appended]:
    """Append groups of these keys, each time in another order, on a pool of its own."""
    database = await Database.connect(dsn, name="appender", size=1)
    world = World.over(database)
    answers: list[Appended] = []
    try:
        for _ in range(groups):
            drawn = random.sample(keys, 20)
            answers += await world.append(*(event(key=named(key), to=(new_id(),)) for key in drawn))
    finally:
        await database.close()
    return answers


async def test_groups_that_name_the_same_keys_in_different_orders_do_not_deadlock(
    world: World, database_dsn: str
) -> None:
    keys = [os.urandom(4).hex() for _ in range(40)]
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(appender(database_dsn, keys, 15) for _ in range(6)))
    appended = [each for answer in answers for each in answer if each.result is RESULTS.APPENDED]
    used = await world.value("select count(*) from idempotency_keys")
    assert len(appended) == used == await events(world)
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    assert await world.value(deadlocks) == 0


async def test_a_key_that_was_found_taken_cannot_be_pruned_before_its_answer_is_read(world: World) -> None:
    """The append of a replay locks the key's row although it changes nothing of it."""
    await world.append(event(key=named("k")))
    versions = await world.versions()
    async with world.database.transaction() as connection:
        replay = Journal(only(connection), key_retention_seconds=KEY_SECONDS)
        assert results(await replay.append(versions, [event(key=named("k"))])) == [RESULTS.REPLAYED]
        with pytest.raises(asyncpg.LockNotAvailableError):
            async with world.database._pool.acquire() as pruner:
                await pruner.execute("set local lock_timeout = '50ms'; delete from idempotency_keys")
