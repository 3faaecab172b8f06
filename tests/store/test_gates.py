"""The gates of a lane in the claim: what they let through, when they open, and what is told of them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from relay.domain.backoff import DEFAULT
from relay.domain.breaker import Breaker, BreakerPolicy, BreakerState, Observed, observe
from relay.domain.bucket import Bucket
from relay.domain.delivery import ClaimedDelivery, DeadReason, DeliveryMove
from relay.domain.endpoint import EndpointState
from relay.domain.outcome import DeferralReason, LaneNotice
from relay.store.database import Database
from relay.store.endpoints import Destinations
from relay.store.health import Health
from relay.store.queue import FIRST_LANE, UNBOUNDED, Allowance, Gates, LaneMove, Queue
from tests.store.world import GONE, TENANT, WIDE, World, allowed, attempt, held, lanes_of, new_id

FAILED = LaneNotice(answered=False)
ANSWERED = LaneNotice(answered=True)
POLICY = BreakerPolicy()


async def lane_of(world: World, *, rate: float = 100_000, burst: int = 100_000, owed: int = 0) -> UUID:
    """A lane with its bucket, and so many deliveries in it."""
    lane = await world.add_endpoint(replace(WIDE, name=new_id().hex, rate_per_second=rate, burst=burst))
    await world.owe(owed, lane)
    return lane


async def ago(world: World, seconds: float) -> None:
    """Let so much time pass for every lane: each of its instants lies so much further back."""
    back = timedelta(seconds=seconds)
    await world.sql(
        "update endpoint_state set tokens_at = tokens_at - $1::interval, held_until = held_until - $1,"
        " opened_at = opened_at - $1, cooldown_until = cooldown_until - $1, probe_until = probe_until - $1,"
        " found_closed_at = found_closed_at - $1",
        back,
    )
    await world.sql("update deliveries set due_at = due_at - $1::interval, claimed_at = claimed_at - $1", back)


async def fail(world: World, *claimed: ClaimedDelivery) -> tuple[LaneMove, ...]:
    """Record that the endpoint did not answer these; they are due again at once."""
    return (await world.record(*(attempt(each, DeliveryMove.RETRY, lane=FAILED) for each in claimed))).breakers


async def breaker(world: World) -> tuple[str, int, int]:
    """State, failures and trips of the only lane."""
    return tuple((await world.sql("select breaker::text, failures, trips from endpoint_state"))[0])


async def opened(world: World, *, owed: int = 20) -> UUID:
    """A lane whose breaker has just opened."""
    lane = await lane_of(world, owed=owed)
    assert await fail(world, *(await world.claim(batch=5)).deliveries) == (LaneMove(lane, BreakerState.OPEN, 1, 30.0),)
    return lane


async def deferrals(world: World) -> list[tuple[str, int]]:
    """The deferred attempts on record, by reason and length."""
    rows = await world.sql(
        "select reason, deferred_for_ms from delivery_attempts where outcome_class = 'deferred' order by at"
    )
    return [tuple(row) for row in rows]


# The bucket.


async def test_a_lane_gives_its_burst_at_once_and_then_waits_for_its_rate(world: World) -> None:
    await lane_of(world, rate=5, burst=5, owed=50)
    assert len((await world.claim()).deliveries) == 5
    assert (await world.claim()).deliveries == ()
    await ago(world, 1.0)
    assert len((await world.claim()).deliveries) == 5
    await ago(world, 60.0)
    assert len((await world.claim()).deliveries) == 5


async def test_a_bucket_is_empty_for_everybody_who_claims(world: World, database_dsn: str) -> None:
    await lane_of(world, rate=0.001, burst=7, owed=100)
    workers = [await Database.connect(database_dsn, name=f"worker-{n}", size=1) for n in range(4)]
    try:
        claims = await asyncio.gather(*(World.over(each).claim() for each in workers for _ in range(5)))
    finally:
        for each in workers:
            await each.close()
    assert sum(len(claim.deliveries) for claim in claims) == 7


async def test_what_is_handed_back_at_once_gives_its_tokens_back(world: World) -> None:
    await lane_of(world, rate=0.001, burst=5, owed=50)
    claimed = (await world.claim()).deliveries
    await world.queue.hand_back([(each.id, each.lease_token) for each in claimed[:3]])
    assert len((await world.claim()).deliveries) == 3


async def test_what_is_handed_back_after_the_bucket_was_refilled_gives_nothing_back(world: World) -> None:
    await lane_of(world, rate=5, burst=5, owed=50)
    claimed = (await world.claim()).deliveries
    await ago(world, 10.0)
    again = (await world.claim()).deliveries
    await world.queue.hand_back([(each.id, each.lease_token) for each in claimed])
    assert (len(again), (await world.claim()).deliveries) == (5, ())


async def test_a_burst_that_was_lowered_counts_from_the_next_claim_on(world: World) -> None:
    await lane_of(world, rate=0.001, burst=10, owed=50)
    await world.sql("update endpoints set burst = 2")
    assert len((await world.claim()).deliveries) == 2


async def test_the_databases_bucket_does_the_sums_of_the_domains(world: World) -> None:
    lane = await lane_of(world, rate=1, burst=1)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    draw = random.Random(7)
    for _ in range(60):
        bucket = Bucket(draw.choice([0.1, 3.0, 1e5]), draw.randint(1, 50), draw.uniform(0, 60), draw.uniform(0, 120))
        now = draw.uniform(0, 120)
        await world.sql(
            "update endpoints set rate_per_second = $2, burst = $3 where id = $1", lane, bucket.rate, int(bucket.burst)
        )
        at, instant = start + timedelta(seconds=bucket.at), start + timedelta(seconds=now)
        await world.sql("update endpoint_state set tokens = $1, tokens_at = $2", bucket.tokens, at)
        available = await world.value(
            "select available_tokens(e, s, $1) from endpoints e join endpoint_state s on s.endpoint_id = e.id", instant
        )
        # instants have microseconds, of which a quick bucket makes tokens
        assert available == pytest.approx(bucket.available(now), abs=2e-6 * bucket.rate + 1e-9)


async def test_a_database_clock_that_was_set_back_closes_no_lane(world: World) -> None:
    await lane_of(world, rate=5, burst=5, owed=50)
    await world.claim()
    await ago(world, -3600.0)
    await world.sql("update deliveries set due_at = now()")
    assert len((await world.claim()).deliveries) == 5
    assert (await world.claim()).deliveries == ()
    await ago(world, 1.0)
    assert len((await world.claim()).deliveries) == 5


async def test_an_empty_bucket_is_waited_for_exactly(world: World) -> None:
    await lane_of(world, rate=0.5, burst=3, owed=10)
    await world.claim()
    seconds = await world.queue.seconds_to_next_due()
    assert seconds is not None
    assert 1.5 < seconds <= 2.0


# The breaker.


async def test_five_failures_in_a_row_close_the_lane(world: World) -> None:
    await opened(world)
    assert await breaker(world) == ("open", 0, 1)
    assert (await world.claim()).deliveries == ()


async def test_an_answer_ends_the_row_of_failures(world: World) -> None:
    await lane_of(world, owed=20)
    claimed = (await world.claim(batch=10)).deliveries
    await fail(world, *claimed[:4])
    await world.record(attempt(claimed[4], lane=ANSWERED))
    assert await breaker(world) == ("closed", 0, 0)
    assert await fail(world, *claimed[5:9]) == ()


async def test_failures_of_several_processes_count_together(world: World, database_dsn: str) -> None:
    await lane_of(world, owed=20)
    claimed = (await world.claim(batch=5)).deliveries
    workers = [await Database.connect(database_dsn, name=f"worker-{n}", size=1) for n in range(5)]
    try:
        moved = await asyncio.gather(
            *(fail(World.over(worker), each) for worker, each in zip(workers, claimed, strict=True))
        )
    finally:
        for each in workers:
            await each.close()
    assert sum(len(each) for each in moved) == 1
    assert await breaker(world) == ("open", 0, 1)


async def test_a_failure_that_is_recorded_twice_counts_once(world: World) -> None:
    await lane_of(world, owed=20)
    claimed = (await world.claim(batch=4)).deliveries
    await fail(world, *claimed)
    await fail(world, *claimed)
    assert await breaker(world) == ("closed", 4, 0)


async def test_a_late_failure_has_no_say(world: World) -> None:
    await lane_of(world, owed=20)
    claimed = (await world.claim(batch=5, lease=-1.0)).deliveries
    await world.queue.reap(batch=10)
    assert await fail(world, *claimed) == ()
    assert await breaker(world) == ("closed", 0, 0)


async def test_sends_that_began_before_the_breaker_opened_have_no_say(world: World) -> None:
    await lane_of(world, owed=20)
    stragglers = (await world.claim(batch=6)).deliveries
    await fail(world, *(await world.claim(batch=5)).deliveries)
    await world.record(attempt(stragglers[0], lane=ANSWERED))
    await fail(world, *stragglers[1:])
    assert await breaker(world) == ("open", 0, 1)


async def test_after_the_cooldown_one_delivery_probes_whoever_asks(world: World, database_dsn: str) -> None:
    await opened(world)
    await ago(world, 29.0)
    assert (await world.claim()).deliveries == ()
    await ago(world, 1.0)
    workers = [await Database.connect(database_dsn, name=f"worker-{n}", size=1) for n in range(3)]
    try:
        claims = await asyncio.gather(*(World.over(each).claim() for each in workers))
    finally:
        for each in workers:
            await each.close()
    assert sorted(len(claim.deliveries) for claim in claims) == [0, 0, 1]
    assert (await breaker(world))[0] == "half_open"


async def test_an_answered_probe_opens_the_lane(world: World) -> None:
    lane = await opened(world)
    await ago(world, 30.0)
    (probe,) = (await world.claim()).deliveries
    recorded = await world.record(attempt(probe, DeliveryMove.RETRY, lane=ANSWERED))
    assert recorded.breakers == (LaneMove(lane, BreakerState.CLOSED, 0, 0.0),)
    assert len((await world.claim()).deliveries) == 20


async def test_a_dead_lane_gets_one_probe_per_cooldown_and_they_double(world: World) -> None:
    """C78: five windows, five probes, each of another delivery."""
    await opened(world, owed=30)
    probes = []
    for number, cooldown in enumerate((30.0, 60.0, 120.0, 240.0, 300.0, 300.0), start=2):
        await ago(world, cooldown - 1.0)
        assert (await world.claim()).deliveries == ()
        await ago(world, 1.0)
        (probe,) = (await world.claim()).deliveries
        assert (await world.claim()).deliveries == ()
        late = attempt(probe, DeliveryMove.RETRY, delay=3_600.0, lane=FAILED)
        assert [each.trips for each in (await world.record(late)).breakers] == [number]
        probes.append(probe.id)
    assert len(set(probes)) == len(probes)


async def test_while_half_open_only_the_probe_counts(world: World) -> None:
    await lane_of(world, owed=20)
    stragglers = (await world.claim(batch=3)).deliveries
    await fail(world, *(await world.claim(batch=5)).deliveries)
    await ago(world, 30.0)
    await world.claim()
    await world.record(attempt(stragglers[0], lane=ANSWERED))
    await fail(world, stragglers[1])
    assert (await breaker(world))[0] == "half_open"


async def test_a_probe_that_never_reports_is_replaced_after_its_deadline(world: World) -> None:
    await opened(world)
    await ago(world, 30.0)
    (first,) = (await world.claim()).deliveries
    await ago(world, 14.0)
    assert (await world.claim()).deliveries == ()
    await ago(world, 1.0)
    (second,) = (await world.claim()).deliveries
    await fail(world, first)
    assert (await breaker(world))[:1] == ("half_open",)
    await world.record(attempt(second, lane=ANSWERED))
    assert await breaker(world) == ("closed", 0, 0)


async def test_a_probe_has_as_long_as_its_endpoint_allows(world: World) -> None:
    await opened(world)
    await world.sql("update endpoints set timeout_seconds = 40")
    await ago(world, 30.0)
    await world.claim()
    await ago(world, 44.0)
    assert (await world.claim()).deliveries == ()
    await ago(world, 1.0)
    assert len((await world.claim()).deliveries) == 1


async def test_a_probe_that_comes_back_unsent_lets_the_next_one_try_at_once(world: World) -> None:
    await opened(world)
    await ago(world, 30.0)
    (probe,) = (await world.claim()).deliveries
    await world.queue.hand_back([(probe.id, probe.lease_token)], delay_seconds=60.0)
    assert await breaker(world) == ("open", 0, 1)
    assert len((await world.claim()).deliveries) == 1


async def test_a_probe_that_taught_nothing_lets_the_next_one_try_at_once(world: World) -> None:
    await opened(world)
    await ago(world, 30.0)
    (probe,) = (await world.claim()).deliveries
    await world.record(attempt(probe, DeliveryMove.RETRY, delay=60.0))
    assert await breaker(world) == ("open", 0, 1)
    assert len((await world.claim()).deliveries) == 1


async def test_without_a_breaker_nothing_is_counted_and_nothing_closes(world: World) -> None:
    await opened(world)
    await world.sql("update endpoint_state set answered_at = now()")
    queue = Queue(world.database, world.database, Gates(breaker=None))
    claim = await queue.claim_due(after=FIRST_LANE, batch=10, token=new_id(), lease_seconds=60.0)
    assert len(claim.deliveries) == 10
    recorded = await queue.record([attempt(each, DeliveryMove.RETRY, lane=FAILED) for each in claim.deliveries])
    assert recorded.breakers == ()
    assert await breaker(world) == ("open", 0, 1)


async def test_a_cooling_lane_is_waited_for_and_a_probe_looked_after_soon(world: World) -> None:
    await opened(world)
    cooling = await world.queue.seconds_to_next_due()
    await ago(world, 30.0)
    await world.claim()
    probing = await world.queue.seconds_to_next_due()
    assert cooling is not None
    assert probing is not None
    assert 25.0 < cooling <= 30.0
    assert 0.1 < probing <= 0.4


async def test_the_databases_breaker_moves_as_the_domains_does(world: World) -> None:
    """The same sends, told to both, leave both in the same state, over every state and every kind of end."""
    lane = await lane_of(world)
    draw = random.Random(11)
    tokens = [new_id() for _ in range(3)]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    ours = Breaker()
    seen = set()
    for step in range(600):
        now = float(step * 10)
        if ours.state is not BreakerState.CLOSED and now >= ours.until and draw.random() < 0.7:
            ours = replace(ours, state=BreakerState.HALF_OPEN, until=now + 15, probe=draw.choice(tokens))
            await world.sql(
                "update endpoint_state set breaker = 'half_open', probe_token = $1, probe_until = $2",
                ours.probe, start + timedelta(seconds=ours.until),
            )  # fmt: skip # the arguments of one call
        observed = Observed(
            draw.choice(tokens), now - draw.choice([0, 5, 100]), draw.choice([True, False, False, None])
        )
        ours = observe(ours, POLICY, observed, now)
        await world.sql(
            "update endpoint_state s"
            " set (breaker, failures, trips, opened_at, cooldown_until, probe_token, probe_until)"
            " = (select b.breaker, b.failures, b.trips, b.opened_at, b.cooldown_until, b.probe_token, b.probe_until"
            "    from breaker_after(s, $1, $2, $3, 5, 30, 300, $4) b)",
            observed.token, start + timedelta(seconds=observed.began_at), observed.answered,
            start + timedelta(seconds=now),
        )  # fmt: skip # the arguments of one call
        state, failures, trips, probe, until = (
            await world.sql(
                "select breaker::text, failures, trips, probe_token,"
                " extract(epoch from coalesce(probe_until, cooldown_until) - $2)::float"
                " from endpoint_state where endpoint_id = $1", lane, start,
            )
        )[0]  # fmt: skip # the arguments of one call
        assert (state, failures, trips, probe) == (ours.state, ours.failures, ours.trips, ours.probe)
        if ours.state is not BreakerState.CLOSED:
            assert until == pytest.approx(ours.until)
        seen.add((ours.state, observed.answered))
    assert len(seen) == 9


# What is in doubt.


async def test_lanes_in_doubt_give_one_delivery_each_and_no_more_than_they_may_together(world: World) -> None:
    doubtful = [await lane_of(world, owed=10) for _ in range(5)]
    sound = await lane_of(world, owed=10)
    await world.sql("update endpoint_state set answered_at = null where endpoint_id = any ($1)", doubtful)
    claim = await world.queue.claim_due(
        after=FIRST_LANE, batch=1_000, token=new_id(), lease_seconds=60.0, allowance=Allowance(doubtful=3)
    )
    given = lanes_of(claim.deliveries)
    assert given.pop(sound) == 10
    assert list(given.values()) == [1, 1, 1]
    assert claim.doubtful == set(given)


async def test_a_window_bounds_what_a_lane_gives(world: World) -> None:
    named, other = [await lane_of(world, owed=10) for _ in range(2)]
    allowance = Allowance(lanes=[named], busy=[2], windows=[5], others=4)
    claim = await world.queue.claim_due(
        after=FIRST_LANE, batch=100, token=new_id(), lease_seconds=60.0, allowance=allowance
    )
    assert lanes_of(claim.deliveries) == {named: 3, other: 4}


# What is told.


async def test_a_lane_found_closed_is_told_once_for_each_closing(world: World) -> None:
    await opened(world)
    told = [(await world.claim()).found_closed for _ in range(3)]
    assert [[gate for _, gate in each] for each in told] == [[DeferralReason.BREAKER], [], []]


@pytest.mark.parametrize(
    ("reason", "close", "reopen"),
    [
        (
            "retry_after",
            "update endpoint_state set held_until = now() + interval '9 s', held_reason = 'retry_after'",
            9.0,
        ),
        ("breaker", "update endpoint_state set breaker = 'open', cooldown_until = now() + interval '9 s'", 9.0),
        ("rate_limit", "update endpoint_state set tokens = 0.1, tokens_at = now() + interval '8.99999 s'", 9.0),
    ],
)
async def test_what_waited_behind_a_gate_is_told_by_which_and_how_long_and_keeps_its_attempts(
    world: World, reason: str, close: str, reopen: float
) -> None:
    await lane_of(world, owed=3)
    await world.sql(close)
    assert (await world.claim()).deliveries == ()
    assert await deferrals(world) == []
    await ago(world, reopen + 1.0)
    claimed = (await world.claim()).deliveries
    ((told, length),) = await deferrals(world)
    assert told == reason
    assert 9_900 < length < 11_000
    assert {each.attempt for each in claimed} == {1}
    assert await world.value("select attempt from delivery_attempts") == 0


async def test_what_a_pause_kept_waiting_is_told_when_a_person_resumes_it(world: World) -> None:
    lane = await lane_of(world, owed=3)
    await world.endpoints.set_state(TENANT, lane, EndpointState.PAUSED)
    await world.claim()
    await ago(world, 5.0)
    await world.endpoints.set_state(TENANT, lane, EndpointState.ACTIVE)
    await world.claim()
    ((reason, length),) = await deferrals(world)
    assert (reason, length // 1000) == ("paused", 5)


async def test_when_another_gate_takes_over_both_are_told(world: World) -> None:
    lane = await lane_of(world, owed=3)
    await world.endpoints.set_state(TENANT, lane, EndpointState.PAUSED)
    await world.claim()
    await ago(world, 5.0)
    await world.endpoints.set_state(TENANT, lane, EndpointState.ACTIVE)
    await world.sql("update endpoint_state set held_until = now() + interval '3 s', held_reason = 'retry_after'")
    await world.claim()
    await ago(world, 4.0)
    await world.claim()
    assert [(reason, length // 1000) for reason, length in await deferrals(world)] == [
        ("paused", 5),
        ("retry_after", 4),
    ]


async def test_what_came_after_the_gate_had_opened_was_not_kept_waiting(world: World) -> None:
    lane = await lane_of(world, owed=1)
    await world.sql("update endpoint_state set held_until = now() + interval '9 s', held_reason = 'retry_after'")
    await world.claim()
    await world.sql("delete from deliveries")
    await ago(world, 60.0)
    await world.owe(1, lane)
    assert len((await world.claim()).deliveries) == 1
    assert await deferrals(world) == []


async def test_a_lane_that_is_full_here_is_told_of_only_when_it_is_stuck(world: World) -> None:
    lane = await lane_of(world, owed=3)
    full = allowed({lane: UNBOUNDED})
    assert (await world.claim(busy={lane: UNBOUNDED})).found_closed == ()
    claim = await world.queue.claim_due(
        after=FIRST_LANE, batch=10, token=new_id(), lease_seconds=60.0, allowance=replace(full, stuck=[lane])
    )
    assert [gate for _, gate in claim.found_closed] == [DeferralReason.ENDPOINT_CONCURRENCY]
    await ago(world, 2.0)
    await world.claim()
    ((reason, length),) = await deferrals(world)
    assert (reason, length // 1000) == ("endpoint_concurrency", 2)


async def test_a_lane_from_which_somebody_is_just_claiming_is_passed_over_and_worth_asking_again(
    world: World, database_dsn: str
) -> None:
    locked, free = [await lane_of(world, owed=2) for _ in range(2)]
    other = await Database.connect(database_dsn, name="other", size=1)
    try:
        async with other.transaction() as connection:
            await connection.execute("select from endpoint_state where endpoint_id = $1 for no key update", locked)
            claim = await world.claim()
    finally:
        await other.close()
    assert (lanes_of(claim.deliveries), claim.contended) == ({free: 2}, True)
    assert lanes_of((await world.claim()).deliveries) == {locked: 2}


# What else a notice does.


async def test_a_429_holds_every_lane_with_the_same_credential_and_no_other(world: World) -> None:
    asked, sibling, stranger = [await lane_of(world, owed=2) for _ in range(3)]
    await world.sql("update endpoints set credential = 'one' where id = any ($1)", [asked, sibling])
    claimed = [each for each in (await world.claim(batch=3)).deliveries if each.endpoint_id == asked]
    await world.record(attempt(claimed[0], DeliveryMove.RETRY, lane=held(30.0)))
    rows = await world.sql("select endpoint_id from endpoint_state where held_until > now()")
    assert {row[0] for row in rows} == {asked, sibling}
    assert stranger not in {row[0] for row in rows}


async def test_a_lane_that_waits_behind_a_gate_is_late_only_once_it_is_open(world: World) -> None:
    await opened(world)
    await ago(world, 20.0)
    late = await lateness(world)
    assert late is not None
    assert late < 0
    await ago(world, 15.0)
    late = await lateness(world)
    assert late is not None
    assert 4.0 < late < 6.0


async def test_a_lane_whose_bucket_is_empty_is_not_late(world: World) -> None:
    """However long ago its deliveries were due: they are due anew when there is a token for one."""
    await lane_of(world, rate=0.001, burst=5, owed=50)
    assert len((await world.claim()).deliveries) == 5
    await ago(world, 500.0)
    late = await lateness(world)
    assert late is not None
    assert late < 0


async def test_what_waits_for_the_outcome_of_a_probe_is_not_late(world: World) -> None:
    await opened(world)
    await ago(world, 30.0)
    assert len((await world.claim()).deliveries) == 1
    late = await lateness(world)
    assert late is None or late < 0
    assert (await breaker(world))[0] == "half_open"


async def test_what_a_breaker_kept_waiting_is_not_late_when_it_has_recovered(world: World) -> None:
    await opened(world)
    await ago(world, 30.0)
    (probe,) = (await world.claim()).deliveries
    await world.record(attempt(probe, lane=ANSWERED))
    late = await lateness(world)
    assert late is not None
    assert late < 1.0


async def lateness(world: World) -> float | None:
    return (await Health(world.database).look_for_late()).late


async def test_an_endpoint_tells_which_gate_is_closed_and_when_it_opens(world: World) -> None:
    lane = await opened(world)
    endpoint = await world.endpoints.get(TENANT, lane)
    assert endpoint is not None
    assert endpoint.closed_by == DeferralReason.BREAKER
    assert endpoint.opens_at is not None
    assert 25.0 < await world.value("select extract(epoch from $1 - now())::float", endpoint.opens_at) <= 30.0
    paused = await world.endpoints.set_state(TENANT, lane, EndpointState.PAUSED)
    assert paused is not None
    assert (paused.closed_by, paused.opens_at) == (DeferralReason.PAUSED, None)
    await ago(world, 31.0)
    resumed = await world.endpoints.set_state(TENANT, lane, EndpointState.ACTIVE)
    assert resumed is not None
    assert (resumed.closed_by, resumed.opens_at) == (None, None)


async def test_what_waits_behind_a_full_lane_is_told_so_and_is_not_late(world: World) -> None:
    lane = await world.add_endpoint(replace(WIDE, name="narrow", max_in_flight=2))
    await world.owe(5, lane)
    await world.claim()
    await ago(world, 70.0)
    waiting = await world.value("select id from deliveries where status = 'pending' limit 1")
    view = await world.receipts.delivery(TENANT, waiting)
    assert view is not None
    assert (view.held_reason, view.held_until) == (DeferralReason.ENDPOINT_CONCURRENCY, None)
    assert await lateness(world) is None


async def test_a_lane_that_was_full_and_has_nothing_under_way_is_late_from_then_on(world: World) -> None:
    lane = await world.add_endpoint(replace(WIDE, name="narrow", max_in_flight=2))
    await world.owe(5, lane)
    await world.record(*(attempt(each, lane=ANSWERED) for each in (await world.claim()).deliveries))
    await world.sql("update endpoint_state set full_at = now() - interval '7 s'")
    await ago(world, 70.0)
    late = await lateness(world)
    assert late is not None
    assert 6.0 < late < 8.0


async def test_a_lane_that_gave_its_share_and_has_free_slots_is_late(world: World) -> None:
    await lane_of(world, owed=5)
    await world.claim(batch=2)
    await ago(world, 70.0)
    late = await lateness(world)
    assert late is not None
    assert late > 60.0


async def test_a_person_who_resumes_an_endpoint_has_it_tried_at_once(world: World) -> None:
    lane = await opened(world)
    await world.sql("update endpoint_state set held_until = now() + interval '1 h', held_reason = 'retry_after'")
    await world.endpoints.set_state(TENANT, lane, EndpointState.ACTIVE)
    assert len((await world.claim()).deliveries) == 1
    assert (await breaker(world))[0] == "half_open"


async def test_resuming_does_not_send_a_second_probe_beside_the_first(world: World) -> None:
    lane = await opened(world)
    await ago(world, 30.0)
    assert len((await world.claim()).deliveries) == 1
    await world.endpoints.set_state(TENANT, lane, EndpointState.ACTIVE)
    assert (await world.claim()).deliveries == ()


async def test_an_endpoint_that_moves_to_another_url_begins_anew(world: World) -> None:
    lane = await opened(world)
    await world.sql("update endpoint_state set held_until = now() + interval '1 h', held_reason = 'retry_after'")
    await world.endpoints.update(TENANT, lane, lambda config: replace(config, rate_per_second=7.0))
    assert (await world.claim()).deliveries == ()
    await world.endpoints.update(TENANT, lane, lambda config: replace(config, url="http://127.0.0.1:9099/other"))
    assert await breaker(world) == ("closed", 0, 0)
    assert len((await world.claim()).deliveries) == 1


async def test_where_there_is_no_breaker_none_stays_open_on_record(world: World) -> None:
    await opened(world)
    await world.queue.close_breakers()
    assert await breaker(world) == ("open", 0, 1)
    await Queue(world.database, world.database, Gates(breaker=None)).close_breakers()
    assert await breaker(world) == ("closed", 0, 0)


async def test_a_claim_tells_how_many_waits_it_put_on_record(world: World) -> None:
    await opened(world)
    await world.claim()
    await ago(world, 31.0)
    assert (await world.claim()).deferrals == 1


async def test_an_endpoint_gets_no_more_time_than_a_lease_leaves(world: World) -> None:
    slow = await world.add_endpoint(replace(WIDE, name="slow", timeout_seconds=50.0))
    quick = await world.add_endpoint(replace(WIDE, name="quick", timeout_seconds=3.0))
    destinations = Destinations(world.database, world.vault, default_retry=DEFAULT, most_timeout_seconds=15.0)
    found = await destinations.read([slow, quick])
    assert [getattr(found[each], "timeout_seconds", None) for each in (slow, quick)] == [15.0, 3.0]
    assert await destinations.beyond_timeout() == ["slow"]


async def test_who_answers_is_known_to_all_and_who_fails_is_in_doubt_with_or_without_a_breaker(world: World) -> None:
    lane = await lane_of(world, owed=30)
    queue = Queue(world.database, world.database, Gates(breaker=None))
    claimed = (await world.claim(batch=2)).deliveries
    await queue.record([attempt(claimed[0], DeliveryMove.RETRY, delay=60.0, lane=FAILED)])
    in_doubt = await queue.claim_due(after=FIRST_LANE, batch=10, token=new_id(), lease_seconds=60.0)
    assert (len(in_doubt.deliveries), in_doubt.doubtful) == (1, frozenset({lane}))
    await queue.record([attempt(claimed[1], lane=ANSWERED)])
    sound = await queue.claim_due(after=FIRST_LANE, batch=10, token=new_id(), lease_seconds=60.0)
    assert (len(sound.deliveries), sound.doubtful) == (10, frozenset())


async def test_who_has_not_answered_for_long_is_in_doubt(world: World) -> None:
    await lane_of(world, owed=30)
    await world.sql("update endpoint_state set answered_at = now() - interval '601 s'")
    assert len((await world.claim(batch=10)).deliveries) == 1


async def test_an_answer_is_put_on_record_once_a_minute(world: World) -> None:
    await lane_of(world, owed=30)
    claimed = (await world.claim(batch=3)).deliveries
    written = "select xmin::text from endpoint_state"
    before = await world.value(written)
    await world.record(attempt(claimed[0], lane=ANSWERED))
    assert await world.value(written) == before
    await world.sql("update endpoint_state set answered_at = now() - interval '61 s'")
    await world.record(attempt(claimed[1], lane=ANSWERED))
    assert await world.value("select answered_at > now() - interval '1 s' from endpoint_state")


async def test_a_record_names_every_lane_that_it_shut(world: World) -> None:
    throttled, sibling, gone, dead = [await lane_of(world, owed=5) for _ in range(4)]
    await world.sql("update endpoints set credential = 'one' where id = any ($1)", [throttled, sibling])
    claimed = (await world.claim()).deliveries
    of = {lane: [each for each in claimed if each.endpoint_id == lane] for lane in (throttled, gone, dead)}
    recorded = await world.record(
        attempt(of[throttled][0], DeliveryMove.RETRY, lane=held(30.0)),
        attempt(of[gone][0], DeliveryMove.BURY, dead=DeadReason.PERMANENT_FAILURE, lane=GONE),
        *(attempt(each, DeliveryMove.RETRY, lane=FAILED) for each in of[dead]),
    )
    assert recorded.shut == {throttled, sibling, gone, dead}


async def test_what_waits_for_an_explicit_ack_fills_no_slot(world: World) -> None:
    lane = await world.add_endpoint(replace(WIDE, name="narrow", max_in_flight=1))
    await world.owe(2, lane)
    await world.record(attempt(await world.claim_one(), DeliveryMove.RECEIVE, lane=ANSWERED))
    assert await world.value("select is_full(s) from endpoint_state s") is False


async def test_after_a_429_one_delivery_asks_before_others_follow(world: World) -> None:
    await lane_of(world, owed=30)
    await world.record(attempt(await world.claim_one(), DeliveryMove.RETRY, lane=held(30.0)))
    await ago(world, 31.0)
    (asking,) = (await world.claim()).deliveries
    await world.record(attempt(asking, lane=ANSWERED))
    assert len((await world.claim()).deliveries) > 1


async def test_an_endpoint_that_answered_is_unknown_again_at_another_url(world: World) -> None:
    lane = await lane_of(world, owed=10)
    await world.endpoints.update(TENANT, lane, lambda config: replace(config, url="http://127.0.0.1:9099/other"))
    claim = await world.claim()
    assert (len(claim.deliveries), claim.doubtful) == (1, frozenset({lane}))
