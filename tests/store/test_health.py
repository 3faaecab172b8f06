"""What processes tell each other: heartbeats, partitions, the reporting lock and what its holder measures."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import pytest

from relay.domain.delivery import DeadReason, DeliveryMove
from relay.domain.endpoint import EndpointConfig, EndpointState
from relay.domain.housekeeping import DayTable, QueueMeasured
from relay.store import health as health_module
from relay.store import statements
from relay.store.database import Database
from relay.store.faults import StoreBusy, StoreUnavailable
from relay.store.health import DISPATCHER, FORGOTTEN_AFTER_SECONDS, GATEWAY, ConnectionsAllowed, Health
from relay.store.queue import FIRST_LANE
from tests.store import bulk
from tests.store.world import TENANT, World, attempt, event, new_id
from tests.support.database import Server
from tests.support.days import DROP_DAYS_TO_COME


@pytest.fixture
def health(world: World) -> Health:
    return Health(world.database)


@pytest.fixture
async def other(database_dsn: str) -> AsyncIterator[Health]:
    """The same as another process sees it."""
    database = await Database.connect(database_dsn, name="other", size=2)
    yield Health(database)
    await database.close()


async def measure(health: Health) -> QueueMeasured:
    async with health.reporting() as reporting:
        assert reporting is not None
        return await reporting.measure()


async def test_a_heartbeat_is_seen_by_its_kind(health: Health, other: Health) -> None:
    assert await other.seconds_since(DISPATCHER) is None
    await health.beat(new_id(), DISPATCHER)
    seconds = await other.seconds_since(DISPATCHER)
    assert seconds is not None
    assert 0 <= seconds < 30
    assert await other.seconds_since(GATEWAY) is None


async def test_the_last_heartbeat_of_any_process_of_the_kind_counts(world: World, health: Health) -> None:
    early, late = new_id(), new_id()
    await health.beat(early, DISPATCHER)
    await world.sql("update heartbeats set reported_at = now() - interval '100 seconds'")
    await health.beat(late, DISPATCHER)
    seconds = await health.seconds_since(DISPATCHER)
    assert seconds is not None
    assert seconds < 30


async def test_a_process_beats_in_one_row(world: World, health: Health) -> None:
    process = new_id()
    for _ in range(3):
        await health.beat(process, DISPATCHER)
    assert await world.rows_in("heartbeats") == 1


async def test_a_process_that_was_silent_for_long_is_forgotten(world: World, health: Health) -> None:
    await health.beat(new_id(), DISPATCHER)
    await world.sql("update heartbeats set reported_at = now() - $1 * interval '1 second'", FORGOTTEN_AFTER_SECONDS + 1)
    await health.beat(new_id(), GATEWAY)
    assert await health.seconds_since(DISPATCHER) is None


async def test_a_database_that_answers_is_told_apart_from_one_that_is_away(health: Health, world: World) -> None:
    await health.writes()
    await world.database.close()
    with pytest.raises(StoreUnavailable):
        await Health(world.database).writes()


async def test_whether_there_is_room_is_found_out_by_writing_to_disk(world: World, health: Health) -> None:
    """A full disk cannot be had here; that it would be met is."""

    async def spilled() -> int:
        await world.sql("select pg_stat_force_next_flush()")
        return int(await world.value("select temp_bytes from pg_stat_database where datname = current_database()"))

    before = await spilled()
    await health.writes()
    async with asyncio.timeout(10):
        while await spilled() < before + 1_000_000:
            pass


async def test_a_bound_on_temporary_files_says_nothing_about_the_disk(database_dsn: str, world: World) -> None:
    await world.sql(f"alter database {urlsplit(database_dsn).path[1:]} set temp_file_limit = 0")
    database = await Database.connect(database_dsn, name="t", size=1)
    async with database.connection() as connection:
        with pytest.raises(asyncpg.ConfigurationLimitExceededError):
            await connection.fetch("select n from generate_series(1, 1000000) n order by hashint4(n)")
    await Health(database).writes()
    await database.close()


@pytest.fixture
async def bounded(database_server: Server, database_dsn: str) -> AsyncIterator[Health]:
    """The same as a role sees it that may open seven connections."""
    await database_server.run("create role bounded login password 'pw' connection limit 7")
    there = urlsplit(database_dsn)
    dsn = there._replace(netloc="bounded:pw@" + there.netloc.rpartition("@")[2]).geturl()
    database = await Database.connect(dsn, name="bounded", size=1)
    yield Health(database)
    await database.close()
    await database_server.run("drop role bounded")


async def test_a_superuser_may_open_what_the_server_has(world: World, health: Health) -> None:
    (row,) = await world.sql("show max_connections")
    reserved = int(await world.value("select current_setting('superuser_reserved_connections')"))
    assert await health.connections_allowed() == ConnectionsAllowed(
        int(row[0]) - reserved, "max_connections (less what it reserves)"
    )


async def test_the_narrowest_limit_of_connections_counts(
    world: World, bounded: Health, database_server: Server
) -> None:
    assert await bounded.connections_allowed() == ConnectionsAllowed(7, "connection limit of our role")
    name = await world.value("select current_database()")
    await database_server.run(f"alter database {name} connection limit 5")
    assert await bounded.connections_allowed() == ConnectionsAllowed(5, "connection limit of that database")


async def test_what_is_owed_is_what_is_pending_or_in_flight(world: World, health: Health) -> None:
    await world.owe(4, await world.add_endpoint())
    acked, received, _ = (await world.claim(batch=3)).deliveries
    await world.record(attempt(acked), attempt(received, DeliveryMove.RECEIVE))
    assert await health.owed() == 3


async def test_an_empty_queue_measures_as_empty(health: Health) -> None:
    measured = await measure(health)
    assert math.isnan(measured.oldest_pending_age)
    assert replace(measured, oldest_pending_age=0.0) == QueueMeasured(
        pending=0,
        in_flight=0,
        dead=0,
        oldest_pending_age=0.0,
        oldest_open_receipt_age=0.0,
        dead_by_consumer=(),
        open_breakers=(),
        default_partition_rows=0,
        journal_default_partition_rows=0,
        days_ahead=((DayTable.JOURNAL, 14), (DayTable.ATTEMPTS, 14)),
    )


async def test_the_queue_is_counted_by_status_and_dead_letters_by_consumer(world: World, health: Health) -> None:
    config = EndpointConfig(name="", url="http://127.0.0.1/", max_in_flight=100)
    lanes = [await world.add_endpoint(replace(config, name=name)) for name in ("ledger", "audit", "quiet")]
    await world.owe(4, *lanes)
    claimed = (await world.claim(batch=9)).deliveries
    of = {lane: [each for each in claimed if each.endpoint_id == lane] for lane in lanes}
    await world.record(
        *(attempt(each, DeliveryMove.BURY, dead=DeadReason.EXHAUSTED) for each in of[lanes[0]][:2]),
        attempt(of[lanes[1]][0], DeliveryMove.BURY, dead=DeadReason.REFUSED),
        attempt(of[lanes[2]][0]),
    )
    measured = await measure(health)
    assert (measured.pending, measured.in_flight, measured.dead) == (3, 5, 3)
    assert measured.dead_by_consumer == (("audit", 1), ("ledger", 2))


async def test_the_oldest_age_is_that_of_the_earliest_due_delivery(world: World, health: Health) -> None:
    lanes = await world.add_endpoints(3)
    await world.owe(2, *lanes)
    await world.sql("update deliveries set due_at = now() - interval '10 seconds'")
    due = "update deliveries set due_at = now() - $2 * interval '1 second' where endpoint_id = $1"
    await world.sql(due, lanes[1], 75.0)
    assert 75 <= (await measure(health)).oldest_pending_age < 105


async def test_what_is_due_later_is_not_late(world: World, health: Health) -> None:
    await world.owe(1, await world.add_endpoint())
    await world.sql("update deliveries set due_at = now() + interval '1 hour'")
    assert (await measure(health)).oldest_pending_age == 0.0


@pytest.mark.parametrize("state", [EndpointState.PAUSED, EndpointState.DISABLED])
async def test_what_is_held_by_a_person_is_never_late(world: World, health: Health, state: EndpointState) -> None:
    lane = await world.add_endpoint()
    await world.owe(1, lane)
    await world.sql("update deliveries set due_at = now() - interval '1 hour'")
    await world.endpoints.set_state(TENANT, lane, state)
    assert (await measure(health)).oldest_pending_age == 0.0


async def test_what_a_hold_kept_is_late_from_the_end_of_the_hold_on(world: World, health: Health) -> None:
    await world.owe(1, await world.add_endpoint())
    await world.sql("update deliveries set due_at = now() - interval '1 hour'")
    await world.sql("update endpoint_state set held_until = now() - interval '20 seconds'")
    assert 20 <= (await measure(health)).oldest_pending_age < 50


async def came(world: World, seconds_ago: float, lane: UUID) -> UUID:
    """An event for a lane that came so long ago, by all clocks; answers its delivery's id."""
    made = event(to=(lane,), receipt=new_id(unix_ms=(new_id().int >> 80) - round(1000 * seconds_ago)))
    await world.append(made)
    await world.sql(
        "update journal set committed_at = now() - $2 * interval '1 second' where receipt_id = $1",
        made.envelope.receipt_id,
        seconds_ago,
    )
    return made.fan_out[0][0]


async def test_the_oldest_open_receipt_is_the_oldest_with_something_owed(world: World, health: Health) -> None:
    lane = await world.add_endpoint()
    oldest, middle, _ = [await came(world, age, lane) for age in (500, 300, 100)]
    bury = "update deliveries set status = 'dead', dead_reason = 'exhausted', dead_at = now() where id = $1"
    assert 500 <= (await measure(health)).oldest_open_receipt_age < 530
    await world.sql(bury, oldest)
    assert 300 <= (await measure(health)).oldest_open_receipt_age < 330
    await world.sql("update deliveries set status = 'delivered', acked_at = now() where id = $1", middle)
    assert 100 <= (await measure(health)).oldest_open_receipt_age < 130


@pytest.mark.parametrize("state", [EndpointState.PAUSED, EndpointState.DISABLED])
async def test_what_waits_for_a_person_does_not_keep_an_alarm_ringing(
    world: World, health: Health, state: EndpointState
) -> None:
    closed, open_lane = await world.add_endpoints(2)
    await came(world, 500, closed)
    await came(world, 100, open_lane)
    await world.endpoints.set_state(TENANT, closed, state)
    assert 100 <= (await measure(health)).oldest_open_receipt_age < 130


@pytest.mark.parametrize("ahead", [3600, -3600])
async def test_a_gateways_wrong_clock_makes_no_receipt_old(world: World, health: Health, ahead: int) -> None:
    lane = await world.add_endpoint()
    await world.append(event(to=(lane,), receipt=new_id(unix_ms=(new_id().int >> 80) + 1000 * ahead)))
    assert 0 < (await measure(health)).oldest_open_receipt_age < 30


async def test_what_awaits_its_ack_keeps_its_receipt_open(world: World, health: Health) -> None:
    await came(world, 200, await world.add_endpoint())
    await world.record(attempt(await world.claim_one(), DeliveryMove.RECEIVE))
    assert 200 <= (await measure(health)).oldest_open_receipt_age < 230


async def first_tried(world: World, seconds_ago: float, retry: str | None = None) -> None:
    """An event of 500 seconds ago whose delivery was first tried so long ago, and waits for its next try."""
    lane = await world.add_endpoint()
    await came(world, 500, lane)
    await world.record(attempt(await world.claim_one(), DeliveryMove.RETRY, delay=1.0))
    await world.sql(
        "update deliveries set generation_started_at = now() - $1::float8 * interval '1 second'", seconds_ago
    )
    await world.sql("update endpoints set retry = $1::text::jsonb", retry)


@pytest.mark.parametrize(
    ("seconds_ago", "retry", "counts"),
    [
        (1700.0, None, True),
        (1900.0, None, False),
        (1900.0, '{"window_seconds": 3600}', True),
        (1700.0, '{"window_seconds": 600}', False),
        (1900.0, '{"preset": "patient"}', True),
        (1900.0, '{"max_attempts": 3}', False),
    ],
)
async def test_what_is_past_its_retry_window_does_not_keep_an_alarm_ringing(
    world: World, health: Health, seconds_ago: float, retry: str | None, counts: bool
) -> None:
    """It waits for its lane: the breaker's gauge and its lateness tell of that."""
    await first_tried(world, seconds_ago, retry)
    assert ((await measure(health)).oldest_open_receipt_age > 0) == counts


async def test_what_is_past_its_window_hides_nothing_that_is_not(world: World, health: Health) -> None:
    await first_tried(world, 1900.0)
    lane = await world.value("select id from endpoints")
    await came(world, 300, lane)
    assert 300 <= (await measure(health)).oldest_open_receipt_age < 330


async def test_an_ack_that_is_past_its_deadline_is_the_reconcilers(world: World, health: Health) -> None:
    await came(world, 500, await world.add_endpoint())
    await world.record(attempt(await world.claim_one(), DeliveryMove.RECEIVE))
    assert 500 <= (await measure(health)).oldest_open_receipt_age < 530
    await world.sql("update deliveries set received_at = now() - interval '301 seconds'")
    assert (await measure(health)).oldest_open_receipt_age == 0.0


async def test_attempts_in_the_default_partition_are_counted(world: World, health: Health) -> None:
    await world.owe(1, await world.add_endpoint())
    long_ago = replace(await world.claim_one(), claimed_at=datetime(2001, 9, 9, tzinfo=UTC))
    await world.record(attempt(long_ago))
    assert (await measure(health)).default_partition_rows == 1


async def test_events_in_the_default_partition_are_counted(world: World, health: Health) -> None:
    lane = await world.add_endpoint()
    week_ago_ms = (new_id().int >> 80) - 7 * 86_400_000
    await world.append(event(to=(lane,), receipt=new_id(unix_ms=week_ago_ms)))
    assert (await measure(health)).journal_default_partition_rows == 1


async def test_one_process_at_a_time_reports(health: Health, other: Health) -> None:
    async with health.reporting() as first:
        assert first is not None
        async with other.reporting() as second:
            assert second is None
        await first.measure()
    async with other.reporting() as third:
        assert third is not None


async def reports(health: Health) -> bool:
    async with health.reporting() as reporting:
        return reporting is not None


async def test_a_reporter_that_is_cancelled_gives_its_lock_back(world: World, health: Health, other: Health) -> None:
    measuring = asyncio.Event()

    async def report() -> None:
        async with health.reporting() as reporting:
            assert reporting is not None
            measuring.set()
            await reporting.measure()

    async with world.database.transaction() as blocking:
        await blocking.execute("lock table deliveries in access exclusive mode")
        reporter = asyncio.create_task(report())
        async with asyncio.timeout(10):
            await measuring.wait()
        reporter.cancel()
        await asyncio.wait([reporter], timeout=10)
    assert reporter.cancelled()
    async with asyncio.timeout(10):
        while not await reports(other):  # its session ends when it finds that nobody listens
            pass


async def test_a_reporter_whose_connection_is_lost_says_so_and_another_takes_over(
    world: World, health: Health, other: Health
) -> None:
    async def report_while_the_connection_is_cut() -> None:
        async with health.reporting() as reporting:
            assert reporting is not None
            await world.sql("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
            await reporting.measure()

    with pytest.raises(StoreUnavailable):
        await report_while_the_connection_is_cut()
    async with other.reporting() as reporting:
        assert reporting is not None


async def test_a_reporter_that_stands_still_loses_its_lock_and_learns_so(
    health: Health, other: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_module, "SILENT_REPORTER_SECONDS", 1.0)

    async def stand_still() -> None:
        async with health.reporting() as reporting:
            assert reporting is not None
            async with asyncio.timeout(10):
                await reporting.lost()
                while not await reports(other):
                    pass
            await reporting.measure()

    with pytest.raises(StoreUnavailable):
        await stand_still()


async def test_the_silence_of_whoever_reports_no_more_is_not_bounded(world: World, health: Health) -> None:
    assert await reports(health)
    # the pool lends the connection that came back last
    assert await world.value("show idle_session_timeout") == "0"


def test_a_holder_whose_link_has_died_gives_up_before_another_one_can_hold_the_lock() -> None:
    gives_up = health_module.REPORTING_EVERY_SECONDS + health_module.MEASURING_SECONDS
    assert gives_up < health_module.SILENT_REPORTER_SECONDS


async def test_a_lease_that_has_run_out_is_counted_until_it_is_taken_back(world: World, health: Health) -> None:
    """Case C110's gauge."""
    await world.owe(3, await world.add_endpoint())
    await world.claim(batch=3)
    assert (await measure(health)).leases_expired == 0
    await world.sql("update deliveries set lease_until = now() - interval '1 second'")
    assert (await measure(health)).leases_expired == 3
    await world.queue.reap(batch=10)
    assert (await measure(health)).leases_expired == 0


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


@pytest.mark.parametrize(
    ("statement", "arguments"),
    [("measure_queue", (1800.0, 3600.0, 300.0)), ("measure_lateness", (FIRST_LANE, 20_000)), ("bury_removed", (500,))],
)
async def test_what_runs_every_few_seconds_does_not_look_at_endpoints_that_are_owed_nothing(
    world: World, statement: str, arguments: tuple[object, ...]
) -> None:
    """Among a million of them, two statements took seconds of each five."""
    async with world.database.connection() as connection:
        idle = await bulk.add_lanes(connection, 3_000)
        await bulk.owe(connection, 20, idle[:10])
        await connection.execute("update endpoints set removed_at = now() where id = any ($1::uuid[])", idle[:2])
        await bulk.analyze(connection)
        answer = await connection.fetchval(
            f"explain (analyze, buffers, format json) {statements.text(statement)}", *arguments
        )
    top = json.loads(answer)[0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 1_000


@pytest.mark.parametrize("rows", [1_000, 20_500], ids=["few", "more than are looked through"])
async def test_the_oldest_event_that_is_owed_is_found_among_so_many_in_flight(world: World, rows: int) -> None:
    async with world.database.connection() as connection:
        await bulk.owe(connection, rows, await bulk.add_lanes(connection, 3))
        await connection.execute(
            "update deliveries set status = 'in_flight', lease_token = id, lease_until = now() + interval '1 hour',"
            " claimed_at = now()"
        )
        oldest = await connection.fetchval("select id from deliveries order by id limit 1")
        await connection.execute(
            "update journal set committed_at = now() - interval '77 seconds'"
            " where receipt_id = (select receipt_id from deliveries where id = $1)",
            oldest,
        )
    measured = await measure(Health(world.database))
    assert measured.in_flight == rows
    assert measured.oldest_open_receipt_age == pytest.approx(77.0, abs=20.0)


async def test_lateness_is_looked_for_a_bounded_number_of_lanes_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The latest delivery is in the third lane of five, the second lane is closed."""
    monkeypatch.setattr(health_module, "LANES_AT_ONCE", 2)
    lanes = await world.add_endpoints(5)
    await world.owe(1, *lanes)
    await world.sql("update deliveries set due_at = now() - interval '50 seconds' where endpoint_id = $1", lanes[2])
    await world.sql("update deliveries set due_at = now() - interval '90 seconds' where endpoint_id = $1", lanes[1])
    await world.endpoints.set_state(TENANT, lanes[1], EndpointState.PAUSED)
    health = Health(world.database)

    first = await health.look_for_late()
    assert first.go_on_behind == lanes[1]
    second = await health.look_for_late(lanes[1])
    assert second.go_on_behind == lanes[3]
    last = await health.look_for_late(lanes[3])

    assert last.go_on_behind is None
    assert [round((each.late or 0.0) / 50) for each in (first, second, last)] == [0, 1, 0]
    assert (await measure(health)).oldest_pending_age == pytest.approx(50.0, abs=20.0)
