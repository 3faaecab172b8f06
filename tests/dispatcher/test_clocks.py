"""Machines whose clocks are wrong. A clock comes in from outside, so here a dispatcher is simply given a wrong one."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from relay.dispatcher import ClaimTuning
from relay.domain.ambient import Ambient
from relay.domain.telemetry import AttemptsRecorded, ClockCompared, LeasesLost, LeasesReaped, ReceiptsClosed
from tests.support.dispatching import TUNING, House
from tests.support.receiver import Receiver
from tests.support.scripted_server import OK, ScriptedServer, answering
from tests.support.world import real_ambient

SLACK_SECONDS = 10.0
"""What a busy machine may add to a retry."""


def ambient_of(minutes: int) -> Ambient:
    """The clocks of a machine whose date is so many minutes ahead."""
    return replace(real_ambient(), now=lambda: datetime.now(UTC) + timedelta(minutes=minutes))


async def test_two_dispatchers_ten_minutes_apart_send_everything_once(house: House, receiver: Receiver) -> None:
    """Case C108: leases and due times are the database's, so nobody takes another's lease for expired. The endpoint
    takes longer than the reaper's round."""
    endpoint = await house.endpoint(receiver.url("/slow?ms=6000"), timeout_seconds=10.0, max_in_flight=5)
    tuning = replace(TUNING, claim=ClaimTuning(batch=5, lease_seconds=15.0, poll_seconds=0.2))
    async with AsyncExitStack() as stack:
        for minutes in (5, -5):
            await stack.enter_async_context(house.dispatching(tuning, ambient=ambient_of(minutes)))
        receipts = await house.events(10, endpoint)
        await house.until(lambda: sum(each.count for each in house.heard(ReceiptsClosed)) == 10, 30.0)
    assert len(receiver.received()) == 10
    assert house.heard(LeasesReaped) == house.heard(LeasesLost) == []
    assert {(await house.delivery(receipt)).attempts for receipt in receipts} == {1}


@pytest.mark.parametrize("minutes", [5, -5])
async def test_a_retry_of_a_wrong_clock_is_neither_early_nor_late(house: House, minutes: int) -> None:
    """Case C108."""
    with ScriptedServer(answering(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", OK)) as server:
        endpoint = await house.endpoint(server.url(), retry={"base_seconds": 1.0, "max_seconds": 1.0})
        async with house.dispatching(ambient=ambient_of(minutes)):
            receipt = await house.event(endpoint)
            await house.until(lambda: bool(house.heard(ReceiptsClosed)))
    first, second = await house.receipts.attempts(await house.delivery(receipt))
    assert 1.0 <= (second.at - first.at).total_seconds() <= 1.0 + SLACK_SECONDS


@pytest.mark.parametrize("minutes", [5, -5])
async def test_a_wrong_clock_does_not_show_in_how_long_a_delivery_took(
    house: House, receiver: Receiver, minutes: int
) -> None:
    endpoint = await house.endpoint(receiver.url("/slow?ms=100"))
    async with house.dispatching(ambient=ambient_of(minutes)):
        await house.event(endpoint)
        await house.until(lambda: bool(house.heard(ReceiptsClosed)))
    (recorded,) = house.heard(AttemptsRecorded)
    (attempt,) = recorded.attempts
    assert 0.1 <= attempt.delivery_seconds <= 0.1 + SLACK_SECONDS


@pytest.mark.parametrize("minutes", [5, -5])
async def test_a_wrong_clock_reads_a_date_in_retry_after_by_the_databases(house: House, minutes: int) -> None:
    """Case C108: with the machine's own, two minutes would be none, or seven."""
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=120), usegmt=True)
    answer = f"HTTP/1.1 503 No\r\nRetry-After: {at}\r\nContent-Length: 0\r\n\r\n".encode()
    with ScriptedServer(answering(answer)) as server:
        endpoint = await house.endpoint(server.url(), retry={"base_seconds": 1.0, "max_seconds": 1.0})
        async with house.dispatching(ambient=ambient_of(minutes)):
            receipt = await house.event(endpoint)
            await house.until(lambda: bool(house.heard(AttemptsRecorded)))
    delivery = await house.delivery(receipt)
    (attempt,) = await house.receipts.attempts(delivery)
    assert 110.0 <= (delivery.due_at - attempt.at).total_seconds() <= 120.0 * 1.2 + SLACK_SECONDS


@pytest.mark.parametrize("minutes", [5, 0, -5])
async def test_by_how_much_a_clock_is_wrong_is_told(house: House, minutes: int) -> None:
    """Case C108. What the way to the database takes is no difference."""
    async with house.dispatching(ambient=ambient_of(minutes)):
        await house.until(lambda: bool(house.heard(ClockCompared)))
    told = house.heard(ClockCompared)[0].ahead_seconds
    assert abs(told - minutes * 60) < SLACK_SECONDS
    assert told == 0 if minutes == 0 else told * minutes > 0


@pytest.mark.parametrize("minutes", [60, -60])
async def test_a_wrong_clock_signs_with_the_databases_time(house: House, receiver: Receiver, minutes: int) -> None:
    """Receivers allow 300 seconds: signed by the machine's own, nothing would ever verify."""
    endpoint = await house.endpoint(receiver.url("/verify"))
    async with house.dispatching(ambient=ambient_of(minutes)):
        await house.event(endpoint)
        await house.until(lambda: bool(house.heard(AttemptsRecorded)))
    assert [arrival.status for arrival in receiver.received()] == [200]
