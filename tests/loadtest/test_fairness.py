"""Claims about the report on fairness: what is compared, and what the target's verdict says."""

from __future__ import annotations

import json

import pytest

from relay.loadtest.fairness import WANTED_RATIO, Plan, Report, Round, as_json, text
from relay.loadtest.steady import Load, Steady

PLAN = Plan(rate=200, seconds=10, healthy=100, owed=10_000, dead=90, rounds=3, payload_bytes=500)
LOAD = Load(200, 10, 100, 500, gateways=1, dispatchers=1, in_turn=True)


def steady(p99: float) -> Steady:
    times = {"p50": p99 / 2, "p95": p99, "p99": p99, "max": p99}
    return Steady(LOAD, {"202": 2_000}, times, times, 1, 2, 100, 200, 300)


def report(*hanging: float, dead: float = 10.0) -> Report:
    return Report(PLAN, 0.5, 2, tuple(Round(steady(10.0), steady(each), steady(dead)) for each in hanging))


def test_the_middle_one_of_all_rounds_counts() -> None:
    assert report(11.0, 90.0, 12.0).ratios()["hanging"] == {"p50": 1.2, "p99": 1.2}


def test_a_round_is_compared_with_what_it_was_alone_in_that_round() -> None:
    slow = Round(steady(100.0), steady(110.0), steady(100.0))
    assert Report(PLAN, 0.5, 2, (slow,)).ratios()["hanging"]["p99"] == 1.1


def test_the_worse_neighbours_decide() -> None:
    assert report(11.0, dead=13.0).worst == 1.3


@pytest.mark.parametrize(("p99", "met"), [(10 * WANTED_RATIO, True), (10 * WANTED_RATIO + 0.1, False)])
def test_the_target_is_met_up_to_and_with_its_own_value(p99: float, met: bool) -> None:
    assert report(p99).met is met


def test_a_person_reads_the_verdict_beside_how_busy_the_machine_was() -> None:
    assert text(report(12.0)).endswith("wanted: p99 at most 1.5 x alone: 1.2 x, met (load 0.5 on 2 cores before)")


def test_answers_losses_and_duplicates_of_all_loads_are_added_up() -> None:
    assert "6,000 x 202; lost 3, duplicates 6" in text(report(12.0)).splitlines()


def test_a_program_reads_all_that_was_measured_and_the_verdict() -> None:
    read = json.loads(as_json(report(12.0)))
    assert read["target"] == {"p99_ratio": 1.2, "wanted_ratio": 1.5, "met": True}
    assert read["rounds"][0]["alone"]["load"]["in_turn"] is True
