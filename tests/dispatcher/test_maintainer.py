"""The maintainer as one of a dispatcher's loops."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from relay.dispatcher import maintainer
from relay.domain.telemetry import Happening, Loop, LoopCrashed, LoopHeldUp, LoopSucceeded
from tests.support.days import DROP_DAYS_TO_COME
from tests.support.dispatching import House


async def test_a_round_beside_a_long_read_is_told_as_held_up_and_the_next_one_makes_the_days(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case C124: what was skipped is told, and is tried again at the maintainer's own pace."""
    monkeypatch.setattr(maintainer, "EVERY_SECONDS", 0.3)
    await house.execute(DROP_DAYS_TO_COME)
    reader = await asyncpg.connect(house.dsn)
    try:
        async with house.dispatching():
            async with reader.transaction():
                await reader.execute("select count(*) from journal")
                await house.until(lambda: len(of_the_maintainer(house, LoopHeldUp)) >= 2)
                assert of_the_maintainer(house, LoopSucceeded) == []
            await house.until(lambda: bool(of_the_maintainer(house, LoopSucceeded)))
    finally:
        await reader.close()
    assert {each.restart_seconds for each in of_the_maintainer(house, LoopHeldUp)} == {0.3}
    assert of_the_maintainer(house, LoopSucceeded)[0].handled == 14
    assert of_the_maintainer(house, LoopCrashed) == []


def of_the_maintainer(house: House, kind: type[Happening]) -> list[Any]:
    return [each for each in house.heard(kind) if each.loop is Loop.MAINTAINER]
