"""The partitions of the days to come: made ahead, and anew where rows fell into none of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

import asyncpg
import pytest

from relay.store.faults import StoreBusy
from relay.store.health import Health
from tests.store.world import TENANT, World, attempt, event, new_id
from tests.support.days import DROP_DAYS_TO_COME


async def partitions(world: World, parent: str) -> int:
    children = "select count(*) from pg_inherits where inhparent = $1::text::regclass"
    return int(await world.value(children, parent))


async def drop_days(world: World) -> None:
    """Drop every day's partition, as if the maintainer had not run for long."""
    await world.sql("""
        do $$ declare child regclass; begin
            for child in select inhrelid::regclass from pg_inherits
                         where inhparent in ('journal'::regclass, 'delivery_attempts'::regclass)
                           and inhrelid::regclass::text not like '%default' loop
                execute format('drop table %s', child);
            end loop;
        end $$""")


async def test_a_migrated_database_has_its_days_ahead(world: World, health: Health) -> None:
    """Yesterday, today, fourteen days ahead, and one for what falls between (case C101)."""
    assert await partitions(world, "journal") == await partitions(world, "delivery_attempts") == 17
    assert await health.ensure_partitions(14) == 0


async def test_missing_days_are_made_and_a_second_time_there_is_nothing_to_make(world: World, health: Health) -> None:
    await drop_days(world)
    assert await health.ensure_partitions(3) == 10
    assert await health.ensure_partitions(3) == 0
    assert await health.ensure_partitions(5) == 4
    assert await partitions(world, "journal") == 8


async def test_many_that_make_the_days_at_once_make_each_once(world: World, health: Health, other: Health) -> None:
    await drop_days(world)
    async with asyncio.timeout(30):
        made = await asyncio.gather(*(each.ensure_partitions(2) for each in (health, other, health, other)))
    assert sum(made) == 8


async def test_what_fell_into_the_default_partition_moves_into_its_day(world: World, health: Health) -> None:
    """Case C100, and C101's attempt of the day after."""
    await drop_days(world)
    (receipt,) = await world.owe(1, await world.add_endpoint())
    await world.append(event(receipt=new_id(unix_ms=1_000_000_000_000)))
    claimed = await world.claim_one()
    await world.record(attempt(claimed))
    assert [await world.rows_in(f"{parent}_default") for parent in ("journal", "delivery_attempts")] == [2, 1]
    await health.ensure_partitions(2)
    assert [await world.rows_in(f"{parent}_default") for parent in ("journal", "delivery_attempts")] == [0, 0]
    view = await world.receipts.get(TENANT, receipt)
    assert view is not None
    assert len(await world.receipts.attempts(view.deliveries[0])) == 1


@pytest.mark.parametrize("days_behind", [2, 29, 400, -20, -400])
async def test_events_of_a_clock_that_is_days_off_move_into_their_days(
    world: World, health: Health, days_behind: int
) -> None:
    """Case C100."""
    then_ms = (new_id().int >> 80) - days_behind * 86_400_000
    receipt = new_id(unix_ms=then_ms)
    await world.append(event(receipt=receipt))
    assert await world.rows_in("journal_default") == 1
    assert await health.ensure_partitions(14) == 1
    assert await world.rows_in("journal_default") == 0
    assert await world.value("select count(*) from journal where receipt_id = $1", receipt) == 1


async def test_a_day_is_made_while_appends_go_on(world: World, health: Health) -> None:
    await drop_days(world)
    lane = await world.add_endpoint()
    done = asyncio.Event()

    async def append() -> int:
        appended = 0
        while not done.is_set():
            try:
                await world.owe(3, lane)
            except StoreBusy:  # nothing was written, and the gateway tries again
                continue
            appended += 3
        return appended

    async with asyncio.timeout(60):
        appenders = [asyncio.create_task(append()) for _ in range(3)]
        await health.ensure_partitions(2)
        done.set()
        appended = sum(await asyncio.gather(*appenders))
    assert await world.rows_in("journal") == appended
    assert await world.rows_in("journal_default") == 0


BUSY_SECONDS = 2.0
"""What a busy machine may add to a statement."""


@pytest.mark.parametrize("parent", ["journal", "delivery_attempts"])
async def test_work_goes_on_while_two_make_days_beside_a_long_read(
    world: World, health: Health, other: Health, database_dsn: str, parent: str
) -> None:
    """Case C124: a maker gives its wait up after half a second, and nobody who appends, claims or records waits for
    longer than for two of them. The other table has its days meanwhile, and this one once the read is over."""
    await world.sql(DROP_DAYS_TO_COME)
    lane = await world.add_endpoint()
    reader = await asyncpg.connect(database_dsn)
    reading = reader.transaction()
    await reading.start()
    await reader.execute(f"select count(*) from {parent}")  # noqa: S608 # a table's name, from a test
    slowest = {"append": 0.0, "claim": 0.0, "record": 0.0}

    async def timed(what: str, work: Awaitable[Any]) -> Any:
        began = time.monotonic()
        answer = await work
        slowest[what] = max(slowest[what], time.monotonic() - began)
        return answer

    async def make() -> list[BaseException | int]:
        rounds: list[BaseException | int] = []
        for _ in range(2):
            rounds += await asyncio.gather(
                *(each.ensure_partitions(2) for each in (health, other)), return_exceptions=True
            )
        return rounds

    worked = 0
    try:
        async with asyncio.timeout(40):
            making = asyncio.create_task(make())
            while not making.done():
                await timed("append", world.owe(1, lane))
                (claimed,) = (await timed("claim", world.claim())).deliveries
                await timed("record", world.record(attempt(claimed)))
                worked += 1
            assert {type(each) for each in await making} == {StoreBusy}
    finally:
        await reading.rollback()
        await reader.close()
    assert worked > 0
    assert max(slowest.values()) < 2 * 0.5 + BUSY_SECONDS, slowest
    assert sum(await asyncio.gather(*(each.ensure_partitions(2) for each in (health, other)))) == 2
    assert await world.rows_in("journal") == await world.rows_in("delivery_attempts") == worked


async def test_making_days_gives_up_where_a_lock_is_not_to_be_had(world: World, health: Health) -> None:
    """Everyone else would queue up behind that wait."""
    await drop_days(world)
    async with world.database.transaction() as connection:
        await connection.execute("select count(*) from journal_default")
        async with asyncio.timeout(20):
            with pytest.raises(StoreBusy):
                await health.ensure_partitions(2)
    assert await health.ensure_partitions(2) == 4, "the other table had its days already"
