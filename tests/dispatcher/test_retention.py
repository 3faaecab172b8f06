"""Retention as the work of dispatchers that have other things to do, and that others keep from it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from relay.dispatcher import maintainer, pruner, reporter
from relay.domain.housekeeping import DaysDropped, DayTable, EventsPruned, QueueMeasured
from relay.domain.receipt import ReceiptOutcome
from relay.domain.telemetry import AttemptsRecorded, Loop, LoopHeldUp, LoopSucceeded, ReceiptsClosed
from relay.store.retention import Windows
from tests.support.days import DROP_DAYS_TO_COME, age, make_day
from tests.support.dispatching import TUNING, House
from tests.support.receiver import Receiver
from tests.support.verified import assert_right

BUSY_SECONDS = 0.4
"""What a busy machine may add to an append; whoever queued behind a long read would add much more."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done each minute or hour is done several times a second."""
    monkeypatch.setattr(maintainer, "EVERY_SECONDS", 0.3)
    monkeypatch.setattr(pruner, "EVERY_SECONDS", 0.3)
    monkeypatch.setattr(reporter, "EVERY_SECONDS", 0.3)


async def value(house: House, sql: str) -> Any:  # a column of any type
    async with house.database.connection() as connection:
        return await connection.fetchval(sql)


async def delivered(house: House, receiver: Receiver, number: int, *, days: int) -> None:
    """Events that their endpoint got so many days ago, by a dispatcher that is gone."""
    before = len(house.heard(ReceiptsClosed))
    receipts = await house.events(number, await house.endpoint(receiver.url("/ok")))
    async with house.dispatching():
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)[before:]) == number)
    await age(house.database, receipts, days)


async def test_dispatchers_beside_each_other_prune_what_is_over_once(house: House, receiver: Receiver) -> None:
    await delivered(house, receiver, 5, days=40)
    for days in (33, 34, 35):
        await make_day(house.database, "delivery_attempts", datetime.now(UTC).date() - timedelta(days=days))
    async with house.dispatching(), house.dispatching():
        await house.until(lambda: bool(house.heard(EventsPruned)) and len(dropped(house, DayTable.ATTEMPTS)) == 3)
        async with asyncio.timeout(15):
            while await value(house, "select count(*) from receipts"):
                await house.until(lambda: True)
    assert [(each.count, each.kept) for each in house.heard(EventsPruned)] == [(5, 0)]
    assert len(dropped(house, DayTable.JOURNAL)) == 1
    await assert_right(house.dsn)


async def test_windows_are_those_of_the_dispatcher(house: House, receiver: Receiver) -> None:
    await delivered(house, receiver, 2, days=9)
    async with house.dispatching(replace(TUNING, windows=Windows(delivered_days=7))):
        await house.until(lambda: bool(house.heard(EventsPruned)))
    assert [each.count for each in house.heard(EventsPruned)] == [2]


async def test_a_dead_letter_past_its_window_is_told_of_as_an_expired_receipt(house: House, receiver: Receiver) -> None:
    receipts = await house.events(1, await house.endpoint(receiver.url("/status/404")))
    async with house.dispatching():
        await house.until(lambda: bool(house.heard(AttemptsRecorded)))
    await age(house.database, receipts, 91)
    async with house.dispatching():
        await house.until(lambda: bool(house.heard(EventsPruned)))
    assert [(each.outcome, each.count) for each in house.heard(ReceiptsClosed)] == [(ReceiptOutcome.EXPIRED, 1)]
    await assert_right(house.dsn)


async def test_a_dead_letter_stays_for_its_own_window_beside_events_that_go(house: House, receiver: Receiver) -> None:
    receipts = await house.events(1, await house.endpoint(receiver.url("/status/404")))
    async with house.dispatching():
        await house.until(lambda: bool(house.heard(AttemptsRecorded)))
    await age(house.database, receipts, 50)
    await delivered(house, receiver, 2, days=40)
    async with house.dispatching():
        await house.until(lambda: bool(house.heard(EventsPruned)))
    assert [each.count for each in house.heard(EventsPruned)] == [2]
    assert ReceiptOutcome.EXPIRED not in {each.outcome for each in house.heard(ReceiptsClosed)}


async def test_a_delivered_event_stays_for_its_own_window_where_dead_letters_have_a_shorter_one(
    house: House, receiver: Receiver
) -> None:
    receipts = await house.events(3, await house.endpoint(receiver.url("/ok")))
    async with house.dispatching():
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == 3)
    await age(house.database, receipts[:1], 40)
    await age(house.database, receipts[1:], 60)
    async with house.dispatching(replace(TUNING, windows=Windows(delivered_days=50, dead_days=20))):
        async with asyncio.timeout(15):
            while await value(house, "select kept from old_days where kept > 0") is None:
                await house.until(lambda: True)
    assert [each.count for each in house.heard(EventsPruned)] == [2]
    assert await value(house, "select count(*) from journal") == 1


def dropped(house: House, table: DayTable) -> list[DaysDropped]:
    return [each for each in house.heard(DaysDropped) if each.table is table]


def held_up(house: House, loop: Loop) -> list[LoopHeldUp]:
    return [each for each in house.heard(LoopHeldUp) if each.loop is loop]


def rounds_of_the_pruner(house: House) -> list[LoopSucceeded]:
    return [each for each in house.heard(LoopSucceeded) if each.loop is Loop.PRUNER]


async def test_beside_a_long_read_ingest_goes_on_and_what_was_skipped_is_counted_and_done_after_it(
    house: House, receiver: Receiver
) -> None:
    """Case C124: a long `SELECT` on events and attempts, partitions to make and to drop, 200 ingests a second, and
    two dispatchers that work and maintain together."""
    await delivered(house, receiver, 3, days=40)
    await make_day(house.database, "delivery_attempts", datetime.now(UTC).date() - timedelta(days=40))
    await house.execute(DROP_DAYS_TO_COME)
    endpoint = await house.endpoint(receiver.url("/ok"))
    reader = await asyncpg.connect(house.dsn)
    try:
        async with reader.transaction(), house.dispatching(), house.dispatching():
            await reader.execute("select (select count(*) from journal), (select count(*) from delivery_attempts)")
            slowest = await slowest_append(house, endpoint)
            await house.until(lambda: len(held_up(house, Loop.MAINTAINER)) > 3 and len(held_up(house, Loop.PRUNER)) > 3)
            assert house.heard(DaysDropped) == house.heard(EventsPruned) == []
            assert not all(each.whole for each in rounds_of_the_pruner(house))
            await reader.execute("rollback; begin")
            await house.until(
                lambda: len(dropped(house, DayTable.ATTEMPTS)) == len(dropped(house, DayTable.JOURNAL)) == 1
            )
            async with asyncio.timeout(15):
                while await value(house, "select days_ahead('journal') + days_ahead('delivery_attempts')") < 28:
                    await house.until(lambda: True)
            await house.until(lambda: rounds_of_the_pruner(house)[-1].whole)
    finally:
        await reader.close()
    assert slowest < BUSY_SECONDS
    await assert_right(house.dsn)


async def slowest_append(house: House, endpoint: Any) -> float:
    """The time of the second slowest of two hundred appends, one each five milliseconds."""
    times = []
    began = time.monotonic()
    for place in range(200):
        await asyncio.sleep(max(began + place * 0.005 - time.monotonic(), 0.0))
        at = time.monotonic()
        await house.event(endpoint)
        times.append(time.monotonic() - at)
    return sorted(times)[-2]


async def test_an_installation_that_was_idle_for_longer_than_days_are_made_ahead_takes_and_delivers_at_once(
    house: House, receiver: Receiver
) -> None:
    """Case C101: no day has a partition, not even this one; an event of the last instant before midnight is tried
    after it; two dispatchers make the days at their start, whatever is written."""
    await house.execute(
        """
        do $$ declare child regclass; begin
            for child in select p.child from unnest('{journal,delivery_attempts}'::text[]) t (name)
                         cross join partitions_of(t.name) p where not p.is_default loop
                execute format('drop table %s', child);
            end loop;
        end $$
        """
    )
    _, yesterdays = await house.events(2, await house.endpoint(receiver.url("/ok")))
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    await to_last_instant_before(house, yesterdays, midnight)
    assert await value(house, "select count(*) from journal_default") == 2
    async with house.dispatching(), house.dispatching():
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == 2)
        await house.until(lambda: any(dict(each.days_ahead).get(DayTable.JOURNAL) == 14 for each in measured(house)))
    assert await value(house, "select count(*) from journal_default") == 0
    assert await value(house, "select count(*) from delivery_attempts where at >= date_trunc('day', now())") == 2
    await assert_right(house.dsn)


def measured(house: House) -> list[QueueMeasured]:
    return house.heard(QueueMeasured)


async def to_last_instant_before(house: House, receipt: Any, midnight: datetime) -> None:
    """Let an event have come in the last millisecond of the day before."""
    digits = f"{int(midnight.timestamp() * 1000) - 1:012x}"
    place = f"{digits[:8]}-{digits[8:]}"
    day = (midnight - timedelta(days=1)).date()
    await house.execute(_MOVE_EVENT, receipt, place, day)
    await house.execute(_MOVE_DELIVERY, receipt, place, day)
    await house.execute(_MOVE_RECEIPT, receipt, place, day)


_MOVE_EVENT = """
update journal set day = $3::date, receipt_id = overlay(receipt_id::text placing $2 from 1)::uuid where receipt_id = $1
"""
_MOVE_DELIVERY = """
update deliveries set journal_day = $3::date, id = overlay(id::text placing $2 from 1)::uuid,
    receipt_id = overlay(receipt_id::text placing $2 from 1)::uuid
where receipt_id = $1
"""
_MOVE_RECEIPT = """
update receipts set journal_day = $3::date, id = overlay(id::text placing $2 from 1)::uuid where id = $1
"""


async def test_a_dispatcher_forgets_the_secret_of_an_endpoint_that_was_removed(
    house: House, receiver: Receiver
) -> None:
    await house.endpoint(receiver.url("/ok"))
    await house.execute("update endpoints set removed_at = now() - interval '2 hours'")
    await house.execute("update secrets set created_at = now() - interval '2 hours'")
    async with house.dispatching(), asyncio.timeout(15):
        while await value(house, "select count(*) from secrets"):
            await house.until(lambda: True)
