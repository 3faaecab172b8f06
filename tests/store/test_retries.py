"""When what failed is due again, as the database has it: spread, never absurd, never before the endpoint asked."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest

from relay.domain.backoff import DEFAULT, RetryPolicy
from relay.domain.delivery import ClaimedDelivery, DeliveryMove
from relay.domain.endpoint import AckMode
from relay.domain.outcome import Retry, judge
from relay.domain.sending import SendFacts
from tests.store.world import World, attempt

HOUR = 3600.0
FAILED = 5_000


def planned(claimed: ClaimedDelivery, retry: RetryPolicy, *headers: tuple[str, str]) -> float:
    """The wait that a 503 leads to."""
    judgement = judge(
        SendFacts(503, headers=headers),
        ack=AckMode.RESPONSE,
        retry=retry,
        generation_attempt=claimed.generation_attempt,
        generation_age=claimed.generation_age,
        draw=random.random(),
        now=claimed.claimed_at,
    )
    assert isinstance(judgement.verdict, Retry)
    return judgement.verdict.delay_seconds


async def fail_together(world: World, *headers: tuple[str, str], round_: int) -> list[float]:
    """Have 5,000 deliveries fail in one moment of that round; answers after how many seconds each is due again."""
    await world.owe(FAILED, await world.add_endpoint())
    claimed = (await world.claim(batch=FAILED)).deliveries
    rounds = [each._replace(generation_attempt=round_) for each in claimed]
    await world.record(*(attempt(each, DeliveryMove.RETRY, delay=planned(each, DEFAULT, *headers)) for each in rounds))
    began = await world.value("select min(due_at) from deliveries")
    return [(row[0] - began).total_seconds() for row in await world.sql("select due_at from deliveries")]


async def test_five_thousand_that_failed_together_come_back_apart(world: World) -> None:
    """Case C81: at 64 s they are spread over 25 s, to the microsecond."""
    offsets = await fail_together(world, round_=6)
    assert 0.95 * 64 * 0.4 <= max(offsets) <= 64 * 0.4
    assert max(Counter(map(int, offsets)).values()) < 2 * FAILED / (64 * 0.4)
    assert len(set(offsets)) > FAILED * 0.99


async def test_five_thousand_that_were_told_the_same_retry_after_come_back_apart_and_not_before_it(
    world: World,
) -> None:
    """Case C81: 60 s and up to a fifth more."""
    before = await world.value("select now()")
    offsets = await fail_together(world, ("retry-after", "60"), round_=1)
    assert 0.95 * 60 * 0.2 <= max(offsets) <= 60 * 0.2
    assert len(set(offsets)) > FAILED * 0.99
    assert await world.value("select min(due_at) from deliveries") - before >= timedelta(seconds=60)


@pytest.mark.parametrize("base", [1.0, 30 * 24 * HOUR])
@pytest.mark.parametrize("made", [15, 64, 1023, 1024, 1100, 1999])
async def test_a_retry_after_a_thousand_attempts_is_due_within_the_longest_delay(
    world: World, base: float, made: int
) -> None:
    """Case C80."""
    policy = RetryPolicy(2000, base_seconds=base, max_seconds=HOUR, window_seconds=1e9, jitter=0.2)
    await world.owe(1, await world.add_endpoint())
    await world.sql("update deliveries set attempts = $1, generation_attempts = $1", made - 1)
    claimed = await world.claim_one()
    assert claimed.generation_attempt == made
    await world.record(attempt(claimed, DeliveryMove.RETRY, delay=planned(claimed, policy)))
    wait = await world.value("select extract(epoch from due_at - now())::float8 from deliveries")
    assert 0.7 * HOUR < wait <= 1.2 * HOUR


async def test_the_longest_delay_that_a_rule_may_name_is_a_sane_instant(world: World) -> None:
    """A week, and its jitter of the most that a setting allows."""
    policy = RetryPolicy(1000, base_seconds=24 * HOUR, max_seconds=168 * HOUR, window_seconds=90 * 24 * HOUR, jitter=1)
    await world.owe(1, await world.add_endpoint())
    claimed = (await world.claim_one())._replace(generation_attempt=999)
    await world.record(attempt(claimed, DeliveryMove.RETRY, delay=planned(claimed, policy)))
    assert await world.value("select due_at < now() + interval '15 days' and due_at >= now() from deliveries")
