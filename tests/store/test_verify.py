"""The verification of a healthy database: every state is accounted for, and so is what was pruned."""

from __future__ import annotations

import asyncio
from datetime import date
from uuid import UUID

import pytest

from relay.domain.verification import FaultKind, PartitionAccount, Tally, Verification
from relay.store.verify import Records, Verifying
from tests.store import bulk
from tests.store.verifying import (
    EVENTS,
    MATCHED,
    NO_ROUTE,
    OTHER_PARTITION,
    VOID,
    in_every_state,
    kinds,
    verified,
    walk,
)
from tests.store.world import World, event

EMPTY = Verification(Tally(), (), (), 0)
LAST = EVENTS + VOID - 3
"""The last position of the partition that all are in but the other tenant's three."""


async def test_an_empty_journal_is_right(world: World) -> None:
    found = await verified(world)
    assert found == EMPTY
    assert found.ok
    assert found.gapless


@pytest.mark.parametrize("window", [1, 2, 256])
async def test_every_state_is_accounted_for_however_small_the_windows_are(world: World, window: int) -> None:
    await in_every_state(world)
    found = await verified(world, window=window)
    assert found.faults == ()
    assert found.tally == Tally(
        events=EVENTS, void=VOID, matched=MATCHED, delivered=14, waiting=5, dead=2, discarded=1, no_route=NO_ROUTE
    )
    assert found.partitions == (PartitionAccount(6, 1, LAST), PartitionAccount(OTHER_PARTITION, 1, 3))
    assert found.ok


async def test_events_that_come_while_it_walks_do_no_harm(world: World) -> None:
    await in_every_state(world)
    lane = await world.add_endpoint()
    loop = asyncio.get_running_loop()
    appending: list[asyncio.Task[list[UUID]]] = []

    def another(_: int, __: int) -> None:
        appending.append(loop.create_task(world.owe(1, lane)))

    found = await verified(world, window=1, tell=another)
    await asyncio.gather(*appending)
    assert len(appending) > EVENTS
    assert found.faults == ()
    assert found.ok


async def test_positions_that_were_pruned_are_no_gap(world: World) -> None:
    await in_every_state(world)
    await prune(world, OTHER_PARTITION, 1, 2)
    found = await verified(world)
    assert found.faults == ()
    assert found.partitions[1] == PartitionAccount(OTHER_PARTITION, 3, 3, pruned=2)


async def test_a_partition_of_which_everything_was_pruned_has_neither_first_nor_last(world: World) -> None:
    await in_every_state(world)
    await prune(world, OTHER_PARTITION, 1, 3)
    found = await verified(world)
    assert found.ok
    assert found.partitions[1] == PartitionAccount(OTHER_PARTITION, pruned=3)


async def test_a_pruned_range_explains_no_more_than_its_positions(world: World) -> None:
    await in_every_state(world)
    await prune(world, 6, 4, 6)
    await world.sql("update pruned_ranges set first = 5")
    found = await verified(world)
    (fault,) = found.faults
    assert (fault.kind, fault.count, fault.first) == (FaultKind.MISSING_POSITION, 1, ("p06:4",))
    assert found.partitions[0] == PartitionAccount(6, 1, LAST, gaps=1, missing=1, pruned=2)


async def test_what_is_left_of_a_day_that_was_pruned_just_now_is_being_removed(world: World) -> None:
    await in_every_state(world)
    await prune_events(world, OTHER_PARTITION, 1, 1)
    assert (await verified(world)).faults == ()


async def test_what_is_left_of_a_day_that_was_pruned_long_ago_is_a_fault(world: World) -> None:
    await in_every_state(world)
    await prune_events(world, OTHER_PARTITION, 1, 1)
    await world.sql("update pruned_ranges set pruned_at = now() - interval '2 days'")
    found = await verified(world)
    assert kinds(found) == {FaultKind.LEFTOVER_RECEIPT}
    assert found.unaccounted == 0
    await world.sql("delete from receipts where journal_day = (select day from pruned_ranges)")
    assert kinds(await verified(world)) == {FaultKind.LEFTOVER_DELIVERY}


async def test_an_event_that_was_pruned_while_it_was_owed_is_not_accounted_for(world: World) -> None:
    lane = await world.add_endpoint()
    await world.owe(1, lane)
    await prune_events(world, 6, 1, 1)
    found = await verified(world)
    assert (kinds(found), found.unaccounted) == ({FaultKind.LEFTOVER_RECEIPT}, 1)
    await world.sql("delete from receipts")
    found = await verified(world)
    assert (kinds(found), found.unaccounted) == ({FaultKind.LEFTOVER_DELIVERY}, 1)


async def test_a_plan_that_knows_nothing_of_the_rows_takes_no_longer(world: World) -> None:
    """Without statistics a join may be planned for one row; ten thousand by ten thousand would take minutes."""
    async with world.database.connection() as connection:
        lanes = await bulk.add_lanes(connection, 3)
        await bulk.owe(connection, 10_000, lanes)
    async with asyncio.timeout(30):
        found = await verified(world, window=10_000)
    assert found.tally.matched == found.tally.waiting == 10_000


async def test_no_window_is_larger_than_asked_for_but_for_one_event_with_all_its_deliveries(world: World) -> None:
    lanes = [await world.add_endpoint() for _ in range(5)]
    await world.owe(1, *lanes)
    await world.owe(4, lanes[0])
    windows: list[int] = []

    class Watched(Verifying):
        async def records(self, day: date, first: UUID, last: UUID) -> Records:
            seen = await super().records(day, first, last)
            windows.append(seen.tally.matched)
            return seen

    assert (await walk(Watched(world.database), window=2)).ok
    assert [each for each in sorted(windows) if each] == [2, 2, 5]


async def test_an_event_is_met_twice_and_the_steps_never_run_over(world: World) -> None:
    await in_every_state(world)
    told: list[tuple[int, int]] = []
    await verified(world, window=3, tell=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (2 * (EVENTS + VOID), 2 * (EVENTS + VOID))


async def test_a_walk_writes_nothing(world: World) -> None:
    await in_every_state(world)
    before = await written(world)
    await verified(world)
    assert await written(world) == before


async def written(world: World) -> int:
    """How many rows of Relay's tables this database has inserted, updated or deleted so far."""
    await world.sql("select pg_stat_force_next_flush()")
    rows = await world.value("select sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint from pg_stat_user_tables")
    return int(rows)


async def prune_events(world: World, partition: int, first: int, last: int) -> None:
    """Drop events and record that, as retention does, leaving what hung on them for later."""
    await world.sql(
        "with pruned as (delete from journal where partition = $1 and number between $2 and $3 returning day, number)"
        " insert into pruned_ranges (day, partition, first, last)"
        " select day, $1, min(number), max(number) from pruned group by day",
        partition,
        first,
        last,
    )


async def prune(world: World, partition: int, first: int, last: int) -> None:
    """Drop events with all that hung on them."""
    await prune_events(world, partition, first, last)
    gone = "not exists (select from journal j where j.receipt_id = {}.receipt_id)"
    await world.sql(f"delete from deliveries where {gone.format('deliveries')}")  # noqa: S608 # a name of this file
    await world.sql(f"delete from idempotency_keys where {gone.format('idempotency_keys')}")  # noqa: S608 # likewise
    await world.sql("delete from receipts r where not exists (select from journal j where j.receipt_id = r.id)")


async def test_what_a_verification_found_is_kept_for_the_gauge(world: World) -> None:
    await world.append(event())
    store = Verifying(world.database)
    await store.keep(EMPTY)
    found = await verified(world)
    await store.keep(found)
    rows = await world.sql("select ok, events, unaccounted, faults from last_verification")
    assert [tuple(row) for row in rows] == [(True, 1, 0, 0)]
