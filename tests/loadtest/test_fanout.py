"""Claims about the report on fan-out: what is compared, and what the target's verdict says."""

from __future__ import annotations

import json

import pytest

from relay.loadtest.backlog import Shape
from relay.loadtest.fanout import Cost, Plan, Report, Round, as_json, text

PLAN = Plan(endpoints=1_000, events=20, workers=4, rounds=3)


def report(*shared: tuple[float, float]) -> Report:
    """Rounds in which a shared receipt took so long on the clock and of the processor, an own one 100 of each."""
    own = Cost(100.0, 60.0, 40.0)
    return Report(PLAN, tuple(Round(own, Cost(clock, 60.0, processor - 60.0)) for clock, processor in shared))


def test_the_middle_one_of_all_rounds_counts() -> None:
    assert report((110, 100), (900, 130), (120, 120)).ratios() == {"clock": 1.2, "processor": 1.2}


@pytest.mark.parametrize(("clock", "processor", "met"), [(150, 150, True), (151, 100, False), (100, 151, False)])
def test_the_clock_and_the_processor_both_decide(clock: float, processor: float, met: bool) -> None:
    assert report((clock, processor)).met is met


def test_a_person_reads_the_verdict() -> None:
    assert text(report((110, 120))).endswith("wanted: at most 1.5 x: 1.1 x on the clock, 1.2 x of the processor, met")


def test_a_program_reads_the_verdict() -> None:
    assert json.loads(as_json(report((110, 120))))["target"] == {"ratio": 1.2, "wanted_ratio": 1.5, "met": True}


def test_a_shape_owes_each_event_to_as_many_as_it_says() -> None:
    assert Shape(20, 1_000, 500, fan_out=1_000).deliveries == Shape(20_000, 1_000, 500).deliveries == 20_000
