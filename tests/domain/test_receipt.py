"""Claims about the end of a receipt and its story."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.receipt import (
    BOUNDARY_OF,
    Boundary,
    Moment,
    ReceiptOutcome,
    TimelineEntry,
    TimelineWhat,
    after,
    closes,
    timeline,
)

RECEIVED = datetime(2026, 9, 14, 9, 41, 7, 214_000, tzinfo=UTC)


def moment(what: TimelineWhat, ms: float, consumer: str | None = None) -> Moment:
    return Moment(what, RECEIVED + timedelta(milliseconds=ms), consumer)


def test_a_receipt_closes_with_its_last_ack() -> None:
    assert [closes(3, acked) for acked in range(4)] == [None, None, None, ReceiptOutcome.DELIVERED]


def test_a_receipt_that_was_ever_redriven_says_so() -> None:
    assert closes(3, 3, redriven=True) is ReceiptOutcome.DELIVERED_AFTER_REDRIVE
    assert closes(3, 2, redriven=True) is None


def test_a_discarded_delivery_closes_the_receipt_incomplete() -> None:
    assert closes(3, 2, discarded=1, redriven=True) is ReceiptOutcome.CLOSED_INCOMPLETE
    assert closes(3, 1, discarded=1) is None
    assert closes(1, 0, discarded=1) is ReceiptOutcome.CLOSED_INCOMPLETE


def test_an_event_without_a_route_stays_open_until_it_is_discarded() -> None:
    assert closes(0, 0) is None
    assert closes(0, 0, discarded=1) is ReceiptOutcome.CLOSED_INCOMPLETE


PROGRESS = st.integers(0, 8).flatmap(
    lambda expected: st.integers(0, max(expected, 1)).flatmap(
        lambda acked: st.tuples(st.just(expected), st.just(acked), st.integers(0, max(expected, 1) - acked))
    )
)


@settings(max_examples=25)
@given(PROGRESS, st.booleans())
def test_a_receipt_closes_exactly_when_nothing_is_owed_and_says_what_is_missing(
    progress: tuple[int, int, int], redriven: bool
) -> None:
    expected, acked, discarded = progress
    outcome = closes(expected, acked, discarded=discarded, redriven=redriven)
    assert (outcome is not None) == (acked + discarded == max(expected, 1))
    assert (outcome is ReceiptOutcome.CLOSED_INCOMPLETE) == (outcome is not None and discarded > 0)
    assert outcome is not ReceiptOutcome.DELIVERED_AFTER_REDRIVE or redriven


@settings(max_examples=25)
@given(PROGRESS, st.booleans())
def test_a_redrive_reopens_a_closed_receipt_and_the_ack_that_follows_closes_it(
    progress: tuple[int, int, int], redriven: bool
) -> None:
    """Taking an ack or a discarded letter back owes one delivery more; its ack is then the last."""
    expected, acked, discarded = progress
    if closes(expected, acked, discarded=discarded, redriven=redriven) is None:
        return
    acked, discarded = (acked, discarded - 1) if discarded else (acked - 1, 0)
    assert closes(expected, acked, discarded=discarded, redriven=True) is None
    after_the_ack = closes(expected, acked + 1, discarded=discarded, redriven=True)
    assert after_the_ack is (ReceiptOutcome.CLOSED_INCOMPLETE if discarded else ReceiptOutcome.DELIVERED_AFTER_REDRIVE)


def test_every_line_of_a_timeline_belongs_to_a_boundary() -> None:
    assert set(BOUNDARY_OF) == set(TimelineWhat)
    assert set(BOUNDARY_OF.values()) == set(Boundary)


def test_a_timeline_tells_an_events_way_from_its_check_to_its_close() -> None:
    told = timeline(
        RECEIVED,
        [
            moment(TimelineWhat.CLOSED, 64.125),
            moment(TimelineWhat.ACKED, 64.125, "email"),
            moment(TimelineWhat.ACKED, 31.0, "ledger"),
            moment(TimelineWhat.ROUTED, 1.5),
            moment(TimelineWhat.COMMITTED, 8.5),
            Moment(TimelineWhat.RECEIPT_ASSIGNED, after(RECEIVED, 2_125)),
            Moment(TimelineWhat.CHECKED, after(RECEIVED, 1_750)),
        ],
    )

    assert [(e.boundary.value, e.what.value, e.at_ms, e.consumer) for e in told] == [
        ("B1", "checked", 1.75, None),
        ("B1", "receipt_assigned", 2.125, None),
        ("B2", "committed", 8.5, None),
        ("B3", "routed", 8.5, None),
        ("B4", "acked", 31.0, "ledger"),
        ("B4", "acked", 64.125, "email"),
        ("B4", "closed", 64.125, None),
    ]


def test_a_redrive_is_told_between_the_dead_letter_and_the_ack() -> None:
    told = timeline(
        RECEIVED,
        [
            moment(TimelineWhat.ACKED, 900, "email"),
            moment(TimelineWhat.REDRIVEN, 800, "email"),
            moment(TimelineWhat.DEAD_LETTERED, 700, "email"),
        ],
    )

    assert [e.what for e in told] == [TimelineWhat.DEAD_LETTERED, TimelineWhat.REDRIVEN, TimelineWhat.ACKED]


def test_a_database_clock_that_is_behind_does_not_turn_time_back() -> None:
    told = timeline(
        RECEIVED,
        [moment(TimelineWhat.COMMITTED, -990), moment(TimelineWhat.CHECKED, 1.75), moment(TimelineWhat.ACKED, -900)],
    )

    assert told == (
        TimelineEntry(Boundary.B1, TimelineWhat.CHECKED, 1.75),
        TimelineEntry(Boundary.B2, TimelineWhat.COMMITTED, 1.75),
        TimelineEntry(Boundary.B4, TimelineWhat.ACKED, 1.75),
    )


@pytest.mark.parametrize("shift", [-5000, 0, 5000])
def test_a_receipt_without_moments_has_an_empty_timeline(shift: int) -> None:
    assert timeline(RECEIVED + timedelta(milliseconds=shift), []) == ()


@settings(max_examples=40)
@given(st.lists(st.builds(moment, st.sampled_from(TimelineWhat), st.integers(-1000, 1000)), max_size=8))
def test_a_timeline_leaves_nothing_out_and_never_runs_backwards(moments: list[Moment]) -> None:
    told = timeline(RECEIVED, moments)

    times = [entry.at_ms for entry in told]
    assert sorted(e.what for e in told) == sorted(m.what for m in moments)
    assert times == sorted(times)
    assert all(at_ms >= 0 for at_ms in times)
