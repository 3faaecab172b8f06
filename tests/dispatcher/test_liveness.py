"""A loop that is well says so again and again, whether it has anything to do or not: silence is what alarms are for."""

from __future__ import annotations

from collections import Counter

import pytest

from relay.dispatcher import maintainer, reaper, recorder, reporter
from relay.domain.telemetry import Loop, LoopSucceeded
from relay.store import wakeups
from tests.support.dispatching import TUNING, House

LOOPS = {
    Loop.CLAIMER, Loop.WAKEUPS, Loop.RECORDER, Loop.REAPER, Loop.HEARTBEAT, Loop.MAINTAINER, Loop.REPORTER,
}  # fmt: skip
PERIODS = (
    (maintainer, "EVERY_SECONDS"),
    (reaper, "EVERY_SECONDS"),
    (reporter, "EVERY_SECONDS"),
    (recorder, "QUIET_SECONDS"),
    (wakeups, "QUIET_SECONDS"),
)


@pytest.mark.parametrize(("module", "period"), PERIODS, ids=lambda each: getattr(each, "__name__", each))
def test_no_loop_is_silent_for_more_than_a_minute(module: object, period: str) -> None:
    assert getattr(module, period) <= 60


async def test_every_loop_of_a_dispatcher_without_work_renews_its_success(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, period in PERIODS:
        monkeypatch.setattr(module, period, 0.1)
    async with house.dispatching(TUNING):
        await house.until(lambda: set(LOOPS) <= {loop for loop, count in renewed(house).items() if count >= 3})


def renewed(house: House) -> Counter[Loop]:
    return Counter(each.loop for each in house.heard(LoopSucceeded))
