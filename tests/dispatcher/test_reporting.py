"""The reporter: one process measures for all, and whoever lost the lock shows nothing from that moment on."""

from __future__ import annotations

import pytest

from relay.dispatcher import reporter
from relay.domain.housekeeping import QueueMeasured, ReportingEnded
from tests.support.dispatching import House

END_THE_HOLDER = """
    select pg_terminate_backend(pid) from pg_locks
    where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())
"""


async def test_a_reporter_whose_session_has_ended_stops_showing_rows_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when it measures next: by then another one may have measured the same rows."""
    monkeypatch.setattr(reporter, "EVERY_SECONDS", 3600.0)
    async with house.dispatching():
        await house.until(lambda: bool(house.heard(QueueMeasured)))
        await house.execute(END_THE_HOLDER)
        await house.until(lambda: bool(house.heard(ReportingEnded)))
