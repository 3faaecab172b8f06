"""The reporting lock: one process holds it at a time, and loses it with its session."""

from __future__ import annotations

import asyncio

import pytest

from relay.store import health as health_module
from relay.store.faults import StoreUnavailable
from relay.store.health import Health
from tests.store.world import World


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
