"""When the claimer asks for narrow claims, and that nothing is lost by it."""

from __future__ import annotations

from typing import Any

import pytest

from relay.dispatcher import claimer
from relay.domain.telemetry import AttemptsRecorded
from relay.store.queue import Claim, Queue
from tests.support.dispatching import House
from tests.support.receiver import Receiver


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each claim was narrow."""
    narrow: list[bool] = []
    claim_due = Queue.claim_due

    async def noting(queue: Queue, **wanted: Any) -> Claim:
        narrow.append(wanted["narrow"])
        return await claim_due(queue, **wanted)

    monkeypatch.setattr(Queue, "claim_due", noting)
    return narrow


async def test_after_a_slow_claim_come_narrow_ones_and_then_a_wide_one_again(
    house: House, receiver: Receiver, asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every claim counts as slow here."""
    monkeypatch.setattr(claimer, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(claimer, "SLOW_SECONDS_PER_ROW", 0.0)
    monkeypatch.setattr(claimer, "NARROW_SECONDS", 0.6)
    endpoint = await house.endpoint(receiver.url("/ok"))
    await house.events(20, endpoint)
    async with house.dispatching():
        await house.until(lambda: True in asked and False in asked[asked.index(True) :])
        await house.events(20, endpoint)
        await house.until(lambda: sum(len(each.attempts) for each in house.heard(AttemptsRecorded)) == 40)
    assert asked[:2] == [False, True]


async def test_claims_that_are_quick_are_wide(
    house: House, receiver: Receiver, asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "SLOW_SECONDS", 60.0)
    await house.event(await house.endpoint(receiver.url("/ok")))
    async with house.dispatching():
        await house.until(lambda: bool(house.heard(AttemptsRecorded)))
    assert True not in asked
