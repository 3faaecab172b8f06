"""A dispatcher that stood still beyond its lease: another takes over, and the late outcome cannot change a thing."""

from __future__ import annotations

import signal
import time

from tests.support.gate import Gate
from tests.support.installation import BRIEF_LEASE, Installation, add_endpoint, eventually, kill, metrics
from tests.support.producer import Producer, numbered
from tests.support.receiver import Receiver

DEADLINE = 60.0


async def test_a_stalled_dispatchers_late_outcome_is_kept_as_an_attempt_and_refused_by_its_token(
    installation: Installation,
) -> None:
    """Case C109."""
    async with Gate() as gate:
        gateway = installation.gateway()
        stalled = installation.dispatcher(**BRIEF_LEASE)
        add_endpoint(gateway, gate.url)
        await Producer([gateway.url]).post(numbered(1), DEADLINE)
        first = await gate.visit(DEADLINE)
        worker = stalled.worker()
        kill(worker, signal.SIGSTOP)
        first.answer(200)

        heir = installation.dispatcher(**BRIEF_LEASE)
        second = await gate.visit(DEADLINE)
        assert (second.delivery_id, second.attempt) == (first.delivery_id, 2)

        # the stalled one wakes up in the middle of its successor's attempt, and writes what it knows
        kill(worker, signal.SIGCONT)

        async def both_tell() -> bool:
            return bool(await installation.value("select count(*) = 2 from delivery_attempts"))

        await eventually(both_tell, DEADLINE, "the reaper's record and the late attempt stand beside each other")
        row = (await installation.fetch("select status::text, attempts, lease_token from deliveries"))[0]
        reaped, late = await installation.fetch(
            "select attempt, outcome_class::text, error_class, lease_token from delivery_attempts order by at"
        )
        assert (row["status"], row["attempts"]) == ("in_flight", 2), "the successor's claim stands"
        assert (reaped["attempt"], reaped["error_class"]) == (1, "lease_expired")
        assert late["attempt"] == 1
        assert late["error_class"] != "lease_expired", "it tells what its worker saw"
        assert late["lease_token"] == reaped["lease_token"] != row["lease_token"]

        second.answer(500)
        third = await gate.visit(DEADLINE)
        assert (third.delivery_id, third.attempt) == (first.delivery_id, 3)
        third.answer(200)
        await installation.all_closed(1, DEADLINE)
        assert gate.waiting == 0, "nothing was sent a fourth time"

    attempts = await installation.fetch("select attempt, outcome_class::text from delivery_attempts order by at")
    assert [row["attempt"] for row in attempts] == [1, 1, 2, 3]
    assert [row["outcome_class"] for row in attempts][2:] == ["retryable", "success"]
    assert metrics(stalled)["relay_leases_lost_total"] == 1
    assert metrics(heir)["relay_leases_lost_total"] == 0
    assert metrics(heir)["relay_leases_reaped_total"] + metrics(stalled)["relay_leases_reaped_total"] == 1


ENDPOINTS = 10
STALL_SECONDS = 3.0
"""Longer than any of the timeouts, shorter than the lease."""


async def test_a_dispatcher_that_stood_still_for_a_while_blames_no_endpoint_for_it(
    installation: Installation, receiver: Receiver
) -> None:
    """C23: each of them answered while nobody looked. What came of it is unknown, and tried again; none has failed."""
    gateway = installation.gateway()
    dispatcher = installation.dispatcher(**BRIEF_LEASE)
    for number in range(ENDPOINTS):
        add_endpoint(gateway, receiver.url(f"/slow/{number}?ms=700"))
    await Producer([gateway.url]).post(numbered(1), DEADLINE)
    await receiver.arrive(ENDPOINTS, DEADLINE)
    worker, began = dispatcher.worker(), time.monotonic()
    kill(worker, signal.SIGSTOP)

    async def long_enough() -> bool:
        return time.monotonic() - began > STALL_SECONDS

    await eventually(long_enough, DEADLINE, "time has passed")
    kill(worker, signal.SIGCONT)
    await installation.all_closed(1, DEADLINE)
    classes = {row[0] for row in await installation.fetch("select distinct error_class from delivery_attempts")}
    assert classes <= {None, "cut_short"}
    assert await installation.value("select sum(failures) from endpoint_state") == 0


async def test_a_stalled_gateway_holds_up_no_other(installation: Installation) -> None:
    gateways = [installation.gateway(), installation.gateway()]
    stalled = gateways[0].worker()
    await Producer([gateway.url for gateway in gateways], connections=8).post(numbered(100, prefix="before"), DEADLINE)
    kill(stalled, signal.SIGSTOP)
    await Producer([gateways[1].url], connections=8).post(numbered(100, prefix="while"), DEADLINE)
    kill(stalled, signal.SIGCONT)
    await Producer([gateways[0].url], connections=8).post(numbered(100, prefix="after"), DEADLINE)
    assert await installation.value("select count(*) from journal") == 300
