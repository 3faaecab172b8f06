"""Claims about the report on a quorum's cost: what is compared, and what the target's verdict says."""

import json
from dataclasses import replace

import pytest

from relay.loadtest.quorum import GOAL_MS, WANTED_MS, Plan, Report, as_json, text
from relay.loadtest.quorum_floor import Floor
from relay.loadtest.steady import Load, Steady


def times(p50: float, p99: float) -> dict[str, float]:
    return {"p50": p50, "p95": p99, "p99": p99, "max": p99}


def steady(quorum: int, p50: float, p99: float) -> Steady:
    load = Load(500, 30, endpoints=1, payload_bytes=500, gateways=1, dispatchers=1, quorum=quorum)
    return Steady(load, {"202": 14_990, "503": 10}, times(p50, p99), times(p50, p99), 3, 4, 100, 200, 300)


def report(p99: float = 20.0, *, busy: float = 0.1) -> Report:
    floor = Floor(times(2, 10), times(1, 2), times(1, 5), times(0.3, 1), 9_000)
    return Report(Plan(500, 30, 500), busy, 2, floor, steady(1, 2.5, 4), steady(2, 5, p99))


def test_the_quorums_202_is_set_against_one_machine_and_against_the_floor() -> None:
    assert report().ratios() == {"to_one_machine": {"p50": 2.0, "p99": 5.0}, "to_floor": {"p50": 2.5, "p99": 2.0}}


def test_a_floor_that_took_no_time_divides_nothing_by_zero() -> None:
    made = report()
    nothing = replace(made, floor=replace(made.floor, proven_ms=times(0, 0)))
    assert nothing.ratios()["to_floor"]["p99"] == 20_000.0


@pytest.mark.parametrize(("p99", "met"), [(WANTED_MS, True), (WANTED_MS + 0.1, False)])
def test_the_target_is_met_up_to_and_with_its_own_value(p99: float, met: bool) -> None:
    assert report(p99).met is met


def test_a_person_reads_the_target_and_whether_it_was_met() -> None:
    assert text(report(20.0)).endswith("wanted: p99 of the 202 at most 30 ms (goal 12 ms): 20.0 ms, met")
    assert text(report(45.0)).endswith("45.0 ms, missed")


def test_a_busy_machine_is_told_beside_the_verdict() -> None:
    assert text(report(45.0, busy=3.0)).endswith("missed; the machine was not quiet before (load 3.0 on 2 cores)")


def test_answers_losses_and_duplicates_are_shown_of_both_loads() -> None:
    lines = text(report()).splitlines()
    for machines in ("1 machine:", "2 machines:"):
        assert any(line.startswith(f"{machines} 14,990 x 202, 10 x 503; lost 3, duplicates 4;") for line in lines), (
            machines
        )


def test_a_program_reads_all_that_was_measured_and_the_verdict() -> None:
    read = json.loads(as_json(report(20.0)))
    assert read["target"] == {"p99_ms": 20.0, "wanted_ms": WANTED_MS, "goal_ms": GOAL_MS, "met": True}
    assert read["quorum"]["answered_ms"]["p99"] == 20.0
    assert read["floor"]["barriers"] == 9_000
    assert read["quiet"] is True
