"""Claims about the guard: which report is worse than the baseline, which is not, and that the baseline is whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.loadtest.bench import Report
from tests.loadtest.guard import (
    COMMITTED,
    MEASURES,
    MOST_APART,
    PLAN,
    TIMED,
    Compared,
    Measure,
    Recorded,
    compare,
    faults_of,
    middle,
    read,
    record,
)
from tests.loadtest.reports import COST, REPORT, with_cost, with_drain

BASELINE = record([REPORT])


def worse(report: Report) -> list[str]:
    """The ratios that are worse in this report than in the one that made the baseline."""
    return [each.measure.name for each in compare(BASELINE, middle([report])) if each.is_worse]


def test_an_equal_report_is_not_worse() -> None:
    assert worse(REPORT) == []


@pytest.mark.parametrize(
    ("report", "name"),
    [
        (replace(REPORT, ratio=REPORT.ratio * 0.5), "rate of the drain to the slower floor"),
        (with_drain(dispatcher_us=REPORT.drain.dispatcher_us * 2), "dispatcher to the bare client"),
        (with_drain(postgres_us=REPORT.drain.postgres_us * 2), "PostgreSQL to the queue alone"),
        (with_drain(wal_bytes=REPORT.drain.wal_bytes * 1.5), "log bytes per delivery of the drain"),
        (with_drain(commits=REPORT.drain.commits * 4), "commits per delivery of the drain"),
        (with_cost(gateway=500.0), "an event posted to both floors"),
        (with_cost(wal_bytes=9_000.0), "log bytes per event posted"),
        (with_cost(commits=1.5), "commits per event posted"),
    ],
)
def test_what_got_worse_is_named_and_nothing_else(report: Report, name: str) -> None:
    assert worse(report) == [name]


def test_a_slower_machine_is_not_worse() -> None:
    """Everything takes twice as long, the floors as well."""
    client, queue, drain = REPORT.client_floor, REPORT.queue_floor, REPORT.drain
    slower = with_cost(**{party: 2.0 * us for party, us in COST.us.items()})
    slower = replace(
        slower,
        client_floor=replace(client, rate=client.rate / 2, client_us=client.client_us * 2),
        queue_floor=replace(
            queue, rate=queue.rate / 2, client_us=queue.client_us * 2, postgres_us=queue.postgres_us * 2
        ),
        drain=replace(
            drain, rate=drain.rate / 2, dispatcher_us=drain.dispatcher_us * 2, postgres_us=drain.postgres_us * 2
        ),
    )
    assert worse(slower) == []


def test_what_got_better_is_not_worse() -> None:
    assert worse(replace(with_drain(dispatcher_us=1.0, postgres_us=1.0, wal_bytes=1.0), ratio=2.0)) == []


def test_of_three_runs_the_middle_one_is_compared() -> None:
    slow = with_drain(dispatcher_us=REPORT.drain.dispatcher_us * 3)
    assert middle([slow, REPORT, REPORT]) == middle([REPORT])
    assert middle([slow, REPORT, slow]) == middle([slow])


LESS = Measure("less is better", lambda _: 0.0, least=0.125)
AT_EIGHT = Recorded(8.0, 0.125)
MORE = Measure("more is better", lambda _: 0.0, least=0.125, more_is_better=True)


@pytest.mark.parametrize(
    ("measure", "now", "is_worse"),
    [
        (LESS, 9.0, False),
        (LESS, 9.01, True),
        (LESS, 1.0, False),
        (MORE, 7.0, False),
        (MORE, 6.99, True),
        (MORE, 99.0, False),
    ],
)
def test_a_ratio_may_be_worse_by_what_is_allowed(measure: Measure, now: float, is_worse: bool) -> None:
    assert Compared(measure, AT_EIGHT, now).is_worse is is_worse


def test_a_person_reads_by_how_much_it_is_worse() -> None:
    assert "25.0% worse, allowed 12%: WORSE" in Compared(LESS, AT_EIGHT, 10.0).text()
    assert "better: `make bench-baseline` would keep it" in Compared(LESS, AT_EIGHT, 4.0).text()
    assert Compared(LESS, AT_EIGHT, 8.5).text().endswith("as before")


def test_what_a_ratio_may_be_worse_by_is_what_runs_differed_by() -> None:
    far = with_drain(dispatcher_us=REPORT.drain.dispatcher_us * 1.25)
    recorded = record([REPORT, REPORT, far])
    assert recorded["dispatcher to the bare client"].tolerance == 0.25
    assert recorded["PostgreSQL to the queue alone"].tolerance == TIMED


def test_a_run_that_was_much_better_allows_nothing_more() -> None:
    recorded = record([REPORT, REPORT, with_cost(commits=0.01)])
    assert recorded["commits per event posted"].tolerance == COMMITTED


def test_runs_of_which_one_is_much_worse_make_no_baseline() -> None:
    with pytest.raises(ValueError, match="dispatcher to the bare client: one run was 50% worse"):
        record([REPORT, REPORT, with_drain(dispatcher_us=REPORT.drain.dispatcher_us * 1.5)])


def test_the_baseline_has_every_ratio_and_no_other() -> None:
    baseline = read()
    assert baseline.keys() == {each.name for each in MEASURES}
    assert all(each.middle > 0 and 0 < each.tolerance <= MOST_APART for each in baseline.values())


def test_what_is_measured_is_the_load_that_is_wanted() -> None:
    assert PLAN.load is not None
    assert (PLAN.load.rate, PLAN.load.endpoints, PLAN.load.in_turn) == (4_000.0, 1, True)


def test_a_run_whose_posts_were_not_accepted_cannot_be_compared() -> None:
    assert REPORT.sustained is not None
    well = replace(REPORT.sustained.steady, deliveries=60_000, answers={"202": 60_000})
    right = replace(REPORT, sustained=replace(REPORT.sustained, steady=well))
    refused = replace(REPORT.sustained, steady=replace(well, answers={"202": 59_000, "503": 1_000}))
    assert faults_of(right) == []
    assert faults_of(replace(right, sustained=refused)) == ["1000 posts were not accepted"]
    assert faults_of(replace(right, drain=replace(REPORT.drain, lost=3))) == ["3 deliveries of the backlog are lost"]
