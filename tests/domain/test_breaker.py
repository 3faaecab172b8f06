"""Claims about the circuit breaker."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.breaker import (
    MOVES,
    Breaker,
    BreakerPolicy,
    BreakerState,
    Observed,
    cooldown,
    grant_probe,
    may_probe,
    observe,
)

POLICY = BreakerPolicy()
DEADLINE = 15.0
OTHER, PROBE = UUID(int=1), UUID(int=2)
CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def after(breaker: Breaker, *answers: bool | None, now: float = 100.0, began: float = 99.0) -> Breaker:
    for answered in answers:
        breaker = observe(breaker, POLICY, Observed(OTHER, began, answered), now)
    return breaker


def granted(breaker: Breaker, now: float, token: UUID = PROBE) -> Breaker:
    probing = grant_probe(breaker, token, now, DEADLINE)
    assert probing is not None
    return probing


def told(breaker: Breaker, answered: bool | None, now: float, token: UUID = PROBE) -> Breaker:
    return observe(breaker, POLICY, Observed(token, now, answered), now)


OPENED = after(Breaker(), *[False] * 5)
PROBING = granted(OPENED, 130.0)


def test_five_failures_in_a_row_open_the_breaker_for_its_cooldown() -> None:
    assert after(Breaker(), *[False] * 4).state is CLOSED
    assert Breaker(OPEN, trips=1, opened_at=100.0, until=130.0) == OPENED


def test_one_answer_ends_the_row_of_failures() -> None:
    assert after(Breaker(), False, False, False, False, True, False) == Breaker(failures=1)


def test_two_failures_at_the_same_instant_count_as_two() -> None:
    assert after(Breaker(), False, False, now=100.0).failures == 2


def test_what_taught_nothing_changes_nothing() -> None:
    assert after(Breaker(failures=4), None) == Breaker(failures=4)


def test_a_threshold_of_one_opens_at_the_first_failure() -> None:
    assert observe(Breaker(), BreakerPolicy(threshold=1), Observed(OTHER, 0.0, False), 1.0).state is OPEN


def test_cooldowns_double_per_trip_up_to_the_longest() -> None:
    assert [cooldown(POLICY, trips) for trips in (1, 2, 3, 4, 5, 6, 5000)] == [30, 60, 120, 240, 300, 300, 300]


def test_sends_that_began_before_the_breaker_opened_have_no_say() -> None:
    assert after(OPENED, True, False, now=101.0) == OPENED

    recovered = told(PROBING, True, 131.0)
    assert after(recovered, *[False] * 5, now=132.0, began=99.9) == recovered
    assert after(recovered, *[False] * 5, now=132.0, began=131.5).state is OPEN


def test_nothing_probes_before_the_cooldown_is_over_nor_while_the_breaker_is_closed() -> None:
    assert grant_probe(OPENED, PROBE, 129.9, DEADLINE) is None
    assert grant_probe(Breaker(), PROBE, 1e9, DEADLINE) is None
    assert may_probe(OPENED, 130.0)


def test_one_send_probes_and_the_others_wait() -> None:
    assert Breaker(HALF_OPEN, trips=1, opened_at=100.0, until=145.0, probe=PROBE) == PROBING
    assert grant_probe(PROBING, OTHER, 130.0, DEADLINE) is None


@pytest.mark.parametrize("answered", [True, False, None])
def test_only_the_probe_moves_a_half_open_breaker(answered: bool | None) -> None:
    assert told(PROBING, answered, 131.0, token=OTHER) == PROBING


def test_an_answered_probe_closes_the_breaker_and_forgets_the_trips() -> None:
    assert told(PROBING, True, 131.0) == Breaker(CLOSED, opened_at=100.0)


def test_a_failed_probe_opens_the_breaker_for_twice_as_long() -> None:
    assert told(PROBING, False, 140.0) == Breaker(OPEN, trips=2, opened_at=140.0, until=200.0)


def test_a_probe_that_taught_nothing_leaves_the_probing_to_the_next() -> None:
    released = told(PROBING, None, 131.0)

    assert released == Breaker(OPEN, trips=1, opened_at=100.0, until=131.0)
    assert granted(released, 131.0, OTHER).probe == OTHER


def test_a_probe_that_never_reports_is_replaced_after_its_deadline() -> None:
    assert grant_probe(PROBING, OTHER, 144.9, DEADLINE) is None
    replaced = granted(PROBING, 145.0, OTHER)

    assert replaced == replace(PROBING, until=160.0, probe=OTHER)
    assert told(replaced, True, 146.0, token=PROBE) == replaced


def test_a_dead_endpoint_gets_one_probe_for_each_of_its_cooldowns() -> None:
    breaker, probes = OPENED, []
    for now in range(100, 1400):
        for _ in range(3):  # three dispatchers look at the same instant
            if (probing := grant_probe(breaker, PROBE, now, DEADLINE)) is not None:
                probes.append(now)
                breaker = told(probing, False, now)

    assert probes == [130, 190, 310, 550, 850, 1150]


@settings(max_examples=60)
@given(st.binary(min_size=120, max_size=120))
def test_whatever_happens_the_breaker_keeps_to_its_table(drawn: bytes) -> None:
    breaker, now, policy = Breaker(), 0.0, BreakerPolicy(threshold=2)
    claims: list[tuple[UUID, float]] = []
    for pause, which, answer in zip(*[iter(drawn)] * 3, strict=False):
        now += (0, 1, 5, 15, 30, 300)[pause % 6]
        before = breaker
        if answer >= 128:
            token = UUID(int=len(claims))
            probing = grant_probe(breaker, token, now, DEADLINE)
            assert (probing is not None) == (before.state is not CLOSED and now >= before.until)
            breaker = probing or breaker
            if probing or before.state is CLOSED:
                claims.append((token, now))
        elif which % 4 < len(claims):
            token, began_at = claims[-1 - which % 4]
            answered = (False, False, True, None)[answer % 4]
            breaker = observe(breaker, policy, Observed(token, began_at, answered), now)
            silenced = began_at < before.opened_at or (before.state is not CLOSED and token != before.probe)
            assert not silenced or breaker == before

        assert (breaker.probe is not None) == (breaker.state is HALF_OPEN)
        assert breaker.failures < policy.threshold
        assert breaker == before or breaker.state in {to for (state, _), to in MOVES.items() if state is before.state}
