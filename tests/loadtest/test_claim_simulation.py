"""Claims of the model of claims: it plays the same again, loses nothing, and shows what it was made to show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.loadtest.claim_simulation import CLAIM_MS, Case, Dispatcher, Seen, Simulation

SMALL = Case(dispatchers=4, cores=4, rate=2_000.0, lanes=200, seconds=0.5)


def played(case: Case) -> Seen:
    return Simulation(case).run()


def test_the_same_seed_plays_the_same_and_another_one_does_not() -> None:
    first, again, other = played(SMALL), played(SMALL), played(replace(SMALL, seed=2))

    assert first == again
    assert first.waited_ms != other.waited_ms


def test_what_comes_is_claimed_within_the_pace_where_the_server_has_room() -> None:
    seen = played(SMALL)

    assert seen.delivered > 0.9 * SMALL.rate * SMALL.seconds
    assert max(seen.waited_ms) < 40.0


def test_no_lane_is_held_by_two_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    held: set[int] = set()
    pick = Simulation._pick  # what is looked at is inside

    def looked_at(self: Simulation, by: Dispatcher) -> tuple[dict[int, list[float]], bool]:
        held.update(self._held)  # likewise
        before = set(self._held)  # likewise
        picked, contended = pick(self, by)
        assert before.isdisjoint(picked)
        return picked, contended

    monkeypatch.setattr(Simulation, "_pick", looked_at)
    played(replace(SMALL, rate=8_000.0))
    assert held


def test_a_server_with_too_few_cores_is_busy_and_delivers_what_it_can() -> None:
    seen = played(replace(SMALL, cores=1, rate=40_000.0))

    assert seen.busy_ms > 0.9 * 1000.0 * SMALL.seconds
    assert seen.delivered < 0.5 * 40_000.0 * SMALL.seconds


def test_wake_ups_for_everybody_cost_claims_in_vain_and_those_for_one_do_not() -> None:
    fleet = replace(SMALL, dispatchers=50, cores=32, rate=200.0)

    everybody, one = played(fleet), played(replace(fleet, woken=False))

    assert everybody.empty > 10 * one.empty
    assert everybody.busy_ms > CLAIM_MS * everybody.empty
