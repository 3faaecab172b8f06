"""Claims about the report of `make bench`: what is judged, and that names which programs read have stayed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from relay.loadtest.bench import Report
from relay.loadtest.bench_report import Target, as_json, is_quiet, targets, text
from relay.loadtest.observing import Queue
from tests.loadtest.reports import DRAIN, LOAD, REPORT, TIMES, with_load


def missed(report: Report) -> list[str]:
    """The targets that this report misses."""
    return [each.name for each in targets(report) if not each.met]


def test_a_report_that_reaches_everything_misses_nothing() -> None:
    assert missed(REPORT) == []


@pytest.mark.parametrize(
    ("report", "names"),
    [
        (replace(REPORT, drain=replace(DRAIN, rate=8_499.0)), ["drain, deliveries/s"]),
        (replace(REPORT, drain=replace(DRAIN, dispatcher_us=131.0)), ["dispatcher + PostgreSQL, µs per delivery"]),
        (replace(REPORT, drain=replace(DRAIN, lost=1)), ["lost"]),
        (with_load(lost=1), ["lost"]),
        (with_load(load=replace(LOAD, rate=3_999.0)), ["events/s that were all accepted"]),
        (with_load(answers={"202": 59_999, "503": 1}), ["events/s that were all accepted"]),
        (with_load(arrived_ms=TIMES | {"p99": 106.1}), ["p99 from due to arrived, ms"]),
        (with_load(queue=Queue((90, 200, 300, 1_001), 1_000)), ["owed at the end"]),
    ],
)
def test_what_falls_short_is_missed_and_nothing_else(report: Report, names: list[str]) -> None:
    assert missed(report) == names


def test_without_a_load_only_the_drain_is_judged() -> None:
    names = [each.name for each in targets(replace(REPORT, sustained=None))]
    assert names == ["drain, deliveries/s", "dispatcher + PostgreSQL, µs per delivery", "lost"]


def test_a_person_reads_each_verdict_and_on_which_machine_it_counts() -> None:
    lines = text(REPORT).splitlines()
    assert "wanted (this counts on an idle machine with 2 cores only):" in lines
    assert "  drain, deliveries/s: 9,000, wanted at least 8,500, goal 12,000: met" in lines
    assert lines[-1] == "  lost: 0, wanted 0: met"


@pytest.mark.parametrize("report", [replace(REPORT, busy=0.6), replace(REPORT, cores=4)])
def test_a_person_reads_that_the_machine_was_another_or_busy(report: Report) -> None:
    assert not is_quiet(report)
    assert text(report).splitlines()[-1].startswith("  this machine was not that: load ")


def test_the_table_leaves_to_others_what_no_party_has_spent() -> None:
    (row,) = (line for line in text(REPORT).splitlines() if line.startswith("events posted one by one"))
    assert row.split()[-8:] == ["70.0", "90.0", "80.0", "10.0", "40.0", "10.0", "3,000", "0.2000"]


def test_a_program_reads_the_names_that_it_has_always_read() -> None:
    read = json.loads(as_json(REPORT))
    assert read["drain"].keys() >= {"rate", "dispatcher_us", "postgres_us", "sink_us", "lost", "duplicates"}
    for floor in ("client_floor", "queue_floor"):
        assert read[floor].keys() >= {"rate", "client_us", "postgres_us"}
    assert read["ratio"] == 0.6


def test_a_program_reads_the_verdicts() -> None:
    read = json.loads(as_json(REPORT))
    assert [Target(**each) for each in read["targets"]] == targets(REPORT)
    assert read["quiet"] is True
