"""The gates of a lane under running dispatchers: who goes back, who is asked for, and what opens again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.api.receipt_views import next_attempt_at, waiting_for
from relay.dispatcher import ClaimTuning
from relay.dispatcher.launcher import Launcher
from relay.domain.delivery import DeliveryStatus
from relay.domain.outcome import HandBackReason
from relay.domain.telemetry import (
    AttemptsRecorded,
    DeliveriesHandedBack,
    DeliveryMetBug,
    LaneHeld,
    Loop,
    LoopSucceeded,
    ReceiptsClosed,
)
from relay.store.database import Database
from tests.support.dispatching import RETRY, TUNING, House
from tests.support.gate import Gate
from tests.support.link import Link
from tests.support.receiver import Receiver

DEADLINE = 15.0
PERMITS, BUGS, EVENTS = 2, 5, 10
LONG = replace(RETRY, base_seconds=60.0, max_seconds=60.0)
"""A 429 without a wish holds its lane for the base delay."""

BEATS, BEAT_SECONDS, POLL_SECONDS = 5, 0.2, 0.5
FEW_CLAIMS = 20
"""In a second: the poll asks twice, and a probe that is under way is looked after each 0.2 to 0.4 s. A loop that asks
over and over does so hundreds of times."""


def closed(house: House) -> int:
    return sum(each.count for each in house.heard(ReceiptsClosed))


def handed_back(house: House, reason: HandBackReason) -> int:
    return sum(each.count for each in house.heard(DeliveriesHandedBack) if each.reason is reason)


async def breaker(house: House) -> tuple[str, int, int]:
    """State, failures and trips of the only lane."""
    async with house.database.connection() as connection:
        state = await connection.fetchrow("select breaker::text, failures, trips from endpoint_state")
    assert state is not None
    return state["breaker"], state["failures"], state["trips"]


async def test_what_waits_behind_a_flight_that_must_not_be_sent_is_launched_all_the_same(house: House) -> None:
    async with Gate() as throttling, Gate() as other:
        throttled, healthy = await house.endpoint(throttling.url), await house.endpoint(other.url)
        await house.events(2, throttled)
        await house.event(healthy)
        async with house.dispatching(replace(TUNING, concurrency=1), retry=LONG):
            (await throttling.visit(DEADLINE)).answer(429)
            (await other.visit(DEADLINE)).answer(200)
            await house.until(lambda: closed(house) == 1)
        assert throttling.waiting == 0


async def test_what_was_claimed_before_a_429_goes_back_once_its_hold_is_written(house: House) -> None:
    async with Gate() as throttling, Gate() as other:
        throttled, busy = await house.endpoint(throttling.url), await house.endpoint(other.url)
        for endpoint in (throttled, busy):
            await house.event(endpoint)
        waiting = await house.event(throttled)
        async with house.dispatching(replace(TUNING, concurrency=1), retry=LONG):
            (await throttling.visit(DEADLINE)).answer(429)
            holding_up = await other.visit(DEADLINE)
            await house.until(lambda: bool(house.heard(LaneHeld)))
            await house.until(lambda: handed_back(house, HandBackReason.GATE) == 1)
            holding_up.answer(200)
            await house.until(lambda: closed(house) == 1)
        assert throttling.waiting == 0
    view = await house.delivery(waiting)
    assert (view.status, view.attempts) == (DeliveryStatus.PENDING, 0)
    assert waiting_for(view) == "retry_after"
    assert next_attempt_at(view) == view.held_until


async def test_what_was_claimed_before_a_410_goes_back_and_says_that_it_waits_for_a_person(house: House) -> None:
    async with Gate() as gate:
        endpoint = await house.endpoint(gate.url)
        receipts = await house.events(4, endpoint)
        async with house.dispatching(replace(TUNING, concurrency=1)):
            (await gate.visit(DEADLINE)).answer(410)
            await house.until(lambda: bool(house.heard(DeliveriesHandedBack)))
        assert gate.waiting == 0
    (told,) = house.heard(DeliveriesHandedBack)
    assert (told.count, told.reason, len(set(told.delivery_ids))) == (3, HandBackReason.GATE, 3), "in one statement"
    views = sorted([await house.delivery(receipt) for receipt in receipts], key=lambda view: view.attempts)
    assert [view.attempts for view in views] == [0, 0, 0, 1]
    assert {waiting_for(view) for view in views[:3]} == {"paused"}
    assert {next_attempt_at(view) for view in views[:3]} == {None}


CLOSINGS = {
    "rate_limit": [
        "update endpoints set rate_per_second = 0.001",
        "update endpoint_state set tokens = 0, tokens_at = now()",
    ],
    "breaker": ["update endpoint_state set breaker = 'open', trips = 1, cooldown_until = now() + interval '1 hour'"],
    "retry_after": ["update endpoint_state set held_until = now() + interval '1 hour', held_reason = 'retry_after'"],
    "paused": ["update endpoints set status = 'paused'"],
    "half_open": [
        "update endpoint_state set breaker = 'half_open', trips = 1, cooldown_until = now()",
        "update endpoint_state set probe_token = gen_random_uuid(), probe_until = now() + interval '1 hour'",
    ],
}


async def claims_of_a_second(house: House) -> int:
    """How often was claimed while the heart beat a few times."""

    def beats() -> int:
        return sum(each.loop is Loop.HEARTBEAT for each in house.heard(LoopSucceeded))

    def claims() -> int:
        return sum(each.loop is Loop.CLAIMER for each in house.heard(LoopSucceeded))

    first, claimed = beats(), claims()
    await house.until(lambda: beats() >= first + BEATS)
    return claims() - claimed


PACED = replace(
    TUNING,
    claim=ClaimTuning(batch=100, lease_seconds=60.0, poll_seconds=POLL_SECONDS),
    heartbeat_seconds=BEAT_SECONDS,
    drain_seconds=0.2,
)


@pytest.mark.parametrize("closing", CLOSINGS)
async def test_a_closed_lane_is_not_asked_for_over_and_over(house: House, closing: str) -> None:
    async with Gate() as gate:
        await house.events(200, await house.endpoint(gate.url))
        for statement in CLOSINGS[closing]:
            await house.execute(statement)
        async with house.dispatching(PACED):
            assert await claims_of_a_second(house) <= FEW_CLAIMS
        assert gate.waiting == 0


async def test_a_lane_that_is_full_here_is_not_asked_for_over_and_over(house: House) -> None:
    async with Gate() as gate:
        await house.events(200, await house.endpoint(gate.url, max_in_flight=2))
        async with house.dispatching(PACED):
            await gate.visits(2, DEADLINE)
            assert await claims_of_a_second(house) <= FEW_CLAIMS
        assert gate.waiting == 0


async def test_a_lane_in_doubt_without_a_permit_left_for_it_is_not_asked_for_over_and_over(house: House) -> None:
    async with Gate() as first, Gate() as second:
        for gate in (first, second):
            await house.events(20, await house.endpoint(gate.url))
        await house.execute("update endpoint_state set answered_at = null")
        async with house.dispatching(replace(PACED, concurrency=2)):
            await first.visit(DEADLINE)
            assert await claims_of_a_second(house) <= FEW_CLAIMS
        assert (first.waiting, second.waiting) == (0, 0)


async def test_bugs_while_judging_cost_a_lane_none_of_its_permits(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Launcher._judge
    broken: list[object] = []

    def buggy(self: Launcher, flight: object, *rest: object) -> None:
        if len(broken) < BUGS:
            broken.append(flight)
            raise RuntimeError("a bug")
        judge(self, flight, *rest)  # type: ignore[arg-type] # passed through as it came

    monkeypatch.setattr(Launcher, "_judge", buggy)
    endpoint = await house.endpoint(receiver.url("/ok"), max_in_flight=PERMITS)
    async with house.dispatching(replace(TUNING, concurrency=PERMITS)):
        await house.events(BUGS + EVENTS, endpoint)
        await house.until(lambda: closed(house) == EVENTS)
    assert len(house.heard(DeliveryMetBug)) == BUGS > PERMITS


@pytest.mark.parametrize("name", ["claims", "records"])
async def test_a_failure_whose_record_was_cut_off_counts_once(house: House, receiver: Receiver, name: str) -> None:
    endpoint = await house.endpoint(receiver.url("/slow?ms=300&status=500"), max_in_flight=4)
    async with house.dispatching(retry=LONG):
        await house.events(4, endpoint)
        await receiver.arrive(4, DEADLINE)
        await house.cut_connections(name)
        await house.until(lambda: sum(len(each.attempts) for each in house.heard(AttemptsRecorded)) == 4)
    assert await breaker(house) == ("closed", 4, 0)


async def test_a_failure_whose_record_was_not_answered_counts_once(
    database_dsn: str, database: Database, receiver: Receiver
) -> None:
    async with Link(database_dsn) as link:
        house = House(link.dsn, database)
        endpoint = await house.endpoint(receiver.url("/status/500/lost"))
        async with house.dispatching(retry=LONG):
            link.lose_next_answer(b"/status/500/lost")
            await house.event(endpoint)
            await house.until(lambda: bool(house.heard(AttemptsRecorded)))
    assert link.losses == 1
    assert await breaker(house) == ("closed", 1, 0)
