"""Claims about the life of a delivery."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.delivery import MOVES, DeliveryMove, DeliveryStatus, IllegalMove, move

PENDING, IN_FLIGHT = DeliveryStatus.PENDING, DeliveryStatus.IN_FLIGHT
DELIVERED, DEAD, VOID = DeliveryStatus.DELIVERED, DeliveryStatus.DEAD, DeliveryStatus.VOID

LIFE = """
    pending   + claim     = in_flight
    pending   + ack       = delivered
    pending   + bury      = dead
    pending   + redrive   = pending
    pending   + void      = void
    in_flight + hand_back = pending
    in_flight + reap      = pending
    in_flight + receive   = in_flight
    in_flight + ack       = delivered
    in_flight + retry     = pending
    in_flight + bury      = dead
    in_flight + redrive   = pending
    in_flight + void      = void
    delivered + redrive   = pending
    dead      + ack       = delivered
    dead      + redrive   = pending
    void      + revive    = pending
"""


def test_the_table_has_these_moves_and_no_others() -> None:
    told = [line.split() for line in LIFE.strip().splitlines()]

    assert {(status, by): to for status, _, by, _, to in told} == {
        (status.value, by.value): to.value for (status, by), to in MOVES.items()
    }


def test_every_move_is_made_from_somewhere() -> None:
    assert {by for _, by in MOVES} == set(DeliveryMove)


def test_every_status_is_reached_from_the_first() -> None:
    reached = {PENDING}
    for _ in DeliveryStatus:
        reached |= {to for (status, _), to in MOVES.items() if status in reached}

    assert reached == set(DeliveryStatus)


def test_what_is_delivered_stays_delivered_until_a_person_wants_it_sent_again() -> None:
    assert [by for status, by in MOVES if status is DELIVERED] == [DeliveryMove.REDRIVE]


def test_a_dead_or_void_delivery_comes_back_only_when_it_is_sent_for() -> None:
    back = {by for (status, by), to in MOVES.items() if status in {DEAD, VOID} and to in {PENDING, IN_FLIGHT}}

    assert back == {DeliveryMove.REDRIVE, DeliveryMove.REVIVE}


def test_whatever_is_shown_can_be_sent_again() -> None:
    assert {status for status, by in MOVES if by is DeliveryMove.REDRIVE} == set(DeliveryStatus) - {VOID}


@settings(max_examples=25)
@given(st.lists(st.sampled_from(DeliveryMove), max_size=30))
def test_no_run_of_moves_sends_what_was_not_claimed_or_leaves_a_delivery_stuck(moves: list[DeliveryMove]) -> None:
    """Whatever is tried in whatever order: each send follows a claim, and from anywhere an ack can still be reached."""
    status, claimed = PENDING, False
    for by in moves:
        if (status, by) not in MOVES:
            continue
        claimed = by in {DeliveryMove.CLAIM, DeliveryMove.RECEIVE}
        status = move(status, by)
        assert (status is IN_FLIGHT) == claimed
    assert DELIVERED in reachable(status)


def reachable(status: DeliveryStatus) -> set[DeliveryStatus]:
    """Every status that some run of moves leads to."""
    seen = {status}
    while True:
        more = {to for (start, _), to in MOVES.items() if start in seen} - seen
        if not more:
            return seen
        seen |= more


def test_a_delivery_is_sent_only_after_a_claim() -> None:
    assert {by for (status, by), to in MOVES.items() if to is IN_FLIGHT and status is not IN_FLIGHT} == {
        DeliveryMove.CLAIM
    }


def test_every_pair_is_either_in_the_table_or_refused_in_words() -> None:
    for status in DeliveryStatus:
        for by in DeliveryMove:
            if (status, by) in MOVES:
                assert move(status, by) is MOVES[status, by]
            else:
                with pytest.raises(IllegalMove, match=f"that is {status} cannot {by}"):
                    move(status, by)
