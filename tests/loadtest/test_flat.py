"""Claims about the table of `make bench-flat`: what is judged, and by what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.loadtest.flat import Drained, Round, Row, rows
from tests.loadtest.flat_cases import CASES, PLAIN, Case, odd_payload

CASE = Case("wide", "something wide", wanted=1.5)
FLOORED = Case("slow", "something slow", own_floor=True, wanted=1.25)
PLAIN_TURN = Drained(10_000, 100, 50, 1_700)


def turn(processor_us: float, *, rate: float = 10_000) -> Round:
    """A round in which a delivery of the case took so much of the processor."""
    return Round(PLAIN_TURN, replace(PLAIN_TURN, rate=rate, dispatcher_us=processor_us - 50))


def row_of(case: Case, *rounds: Round) -> Row:
    """The case's own line."""
    return rows(case, list(rounds))[1]


def test_the_middle_one_of_all_rounds_counts() -> None:
    assert row_of(CASE, turn(150), turn(900), turn(180)).ratio == pytest.approx(1.2)


@pytest.mark.parametrize(("processor_us", "met"), [(225, True), (226, False)])
def test_a_delivery_may_cost_as_much_as_wanted(processor_us: float, met: bool) -> None:
    assert row_of(CASE, turn(processor_us)).met is met


def test_a_slow_clock_alone_misses_nothing() -> None:
    row = row_of(CASE, turn(150, rate=2_000))
    assert (row.rate_ratio, row.met) == (0.2, True)


@pytest.mark.parametrize(("rate", "met"), [(800, True), (799, False)])
def test_where_the_bare_client_is_slower_too_the_share_of_its_rate_counts(rate: float, met: bool) -> None:
    plain, case = replace(PLAIN_TURN, floor=20_000), replace(PLAIN_TURN, rate=rate, dispatcher_us=900, floor=2_000)
    assert row_of(FLOORED, Round(plain, case)).met is met


def test_what_a_kib_costs_is_told_beside_what_a_delivery_does() -> None:
    large = replace(CASE, payload_bytes=102_400)
    assert [row.us_per_kib for row in rows(large, [turn(200)])] == pytest.approx([150 / (300 / 1024), 2.0])


def test_the_plain_case_has_nothing_that_makes_a_case_special() -> None:
    special = [(case.due, case.history, case.tls, case.fan_out > 1, case.own_floor) for case in (PLAIN, *CASES)]
    assert special[0] == (0, 0, False, False, False)
    assert {case.name for case in CASES} == {"due", "history", "endpoints", "fan-out", "payload", "tls"}


def test_payloads_have_their_size_and_do_not_repeat_themselves() -> None:
    payload = odd_payload(102_400)
    assert len(payload) == 102_400
    assert len({payload[place : place + 64] for place in range(0, len(payload), 64)}) == 1_600
