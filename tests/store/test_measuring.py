"""What whoever holds the reporting lock measures: the queue's counts and ages."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from relay.domain.delivery import DeadReason, DeliveryMove
from relay.domain.endpoint import EndpointConfig, EndpointState
from relay.domain.housekeeping import DayTable, QueueMeasured
from relay.store import health as health_module
from relay.store import statements
from relay.store.health import Health
from relay.store.queue import FIRST_LANE
from tests.store import bulk
from tests.store.world import TENANT, World, attempt, event, new_id


async def measure(health: Health) -> QueueMeasured:
    async with health.reporting() as reporting:
        assert reporting is not None
        return await reporting.measure()


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
    long_ago = (await world.claim_one())._replace(claimed_at=datetime(2001, 9, 9, tzinfo=UTC))
    await world.record(attempt(long_ago))
    assert (await measure(health)).default_partition_rows == 1


async def test_events_in_the_default_partition_are_counted(world: World, health: Health) -> None:
    lane = await world.add_endpoint()
    week_ago_ms = (new_id().int >> 80) - 7 * 86_400_000
    await world.append(event(to=(lane,), receipt=new_id(unix_ms=week_ago_ms)))
    assert (await measure(health)).journal_default_partition_rows == 1


async def test_a_lease_that_has_run_out_is_counted_until_it_is_taken_back(world: World, health: Health) -> None:
    """Case C110's gauge."""
    await world.owe(3, await world.add_endpoint())
    await world.claim(batch=3)
    assert (await measure(health)).leases_expired == 0
    await world.sql("update deliveries set lease_until = now() - interval '1 second'")
    assert (await measure(health)).leases_expired == 3
    await world.queue.reap(batch=10)
    assert (await measure(health)).leases_expired == 0


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
