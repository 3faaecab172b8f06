"""How much of a lane one process lets under way."""

from __future__ import annotations

from uuid import UUID

from relay.dispatcher.lanes import CLAIM_SECONDS, FIRST_WINDOW, IDLE_LANES, Lane, Lanes
from tests.support.deliveries import new_id

LIMIT = 40
CRM, ERP = new_id(), new_id()


def window(lanes: Lanes, endpoint: UUID, now: float = 0.0) -> int:
    """How much more a claim may take of a lane; what is not named has the others' window."""
    allowance = lanes.allowance(now)
    if endpoint not in allowance.lanes:
        return allowance.others
    place = list(allowance.lanes).index(endpoint)
    return allowance.windows[place] - allowance.busy[place]


def fill(lanes: Lanes, endpoint: UUID, now: float = 0.0) -> list[Lane]:
    """Take all that a lane may have."""
    return [lanes.enter(endpoint, now) for _ in range(window(lanes, endpoint, now))]


def answer(lanes: Lanes, taken: list[Lane], now: float = 0.0) -> None:
    for lane in taken:
        lanes.leave(lane)
        lanes.answered(lane, now)


def fail(lanes: Lanes, taken: list[Lane]) -> None:
    for lane in taken:
        lanes.leave(lane)
        lanes.failed(lane, 0.0)


def test_a_lane_of_which_nobody_has_heard_gets_a_small_window() -> None:
    lanes = Lanes(LIMIT)
    assert len(fill(lanes, CRM)) == FIRST_WINDOW
    assert window(lanes, CRM) == 0


def test_a_window_that_is_used_doubles_with_each_round_of_answers() -> None:
    lanes = Lanes(LIMIT)
    sizes = []
    for _ in range(3):
        taken = fill(lanes, CRM)
        sizes.append(len(taken))
        answer(lanes, taken)
    assert sizes == [4, 8, 16]


def test_no_lane_owns_more_than_half_of_the_permits_however_quickly_it_answers() -> None:
    lanes = Lanes(LIMIT)
    for _ in range(10):
        answer(lanes, fill(lanes, CRM))
    assert window(lanes, CRM) == LIMIT // 2


def test_a_window_that_is_not_used_does_not_grow() -> None:
    lanes = Lanes(LIMIT)
    for _ in range(20):
        answer(lanes, [lanes.enter(CRM, 0.0)])
    assert window(lanes, CRM) == FIRST_WINDOW


def test_failures_shrink_a_window_and_one_send_is_always_left() -> None:
    lanes = Lanes(LIMIT)
    fail(lanes, fill(lanes, CRM))
    assert window(lanes, CRM) == 1


def test_a_lane_that_says_nothing_gets_no_more_than_it_has() -> None:
    lanes = Lanes(LIMIT)
    answer(lanes, fill(lanes, CRM))
    lanes.enter(CRM, 0.0)
    assert window(lanes, CRM, now=0.9) > 0
    assert window(lanes, CRM, now=1.0) == 0


def test_lanes_in_doubt_share_half_of_the_permits() -> None:
    lanes = Lanes(LIMIT)
    endpoints = [new_id() for _ in range(LIMIT)]
    taken = 0
    while left := lanes.allowance(0.0).doubtful:
        for endpoint in endpoints[:left]:
            lanes.enter(endpoint, 0.0)
            taken += 1
        lanes.doubt(endpoints[:left])
        del endpoints[:left]
    assert taken == LIMIT // 2


def test_what_says_nothing_is_in_doubt_and_what_answers_is_not() -> None:
    lanes = Lanes(LIMIT)
    hanging = fill(lanes, CRM)
    slow = fill(lanes, ERP)
    assert lanes.allowance(0.5).doubtful == LIMIT // 2
    answer(lanes, slow[:1], now=1.0)
    assert lanes.allowance(1.5).doubtful == LIMIT // 2 - len(hanging)


def test_an_answer_ends_the_doubt() -> None:
    lanes = Lanes(LIMIT)
    taken = [lanes.enter(CRM, 0.0) for _ in range(2)]
    lanes.doubt({CRM})
    assert lanes.allowance(0.0).doubtful == LIMIT // 2 - 2
    answer(lanes, taken[:1])
    assert lanes.allowance(0.0).doubtful == LIMIT // 2


def test_a_failed_lane_gets_nothing_more_while_those_in_doubt_have_their_share() -> None:
    lanes = Lanes(LIMIT)
    fail(lanes, [lanes.enter(ERP, 0.0)])
    lanes.enter(ERP, 0.0)
    for endpoint in [new_id() for _ in range(LIMIT // 2)]:
        lanes.enter(endpoint, 0.0)
        lanes.doubt({endpoint})
    assert window(lanes, ERP) == 0


def test_a_lane_that_is_shut_gives_nothing_until_it_is_reopened() -> None:
    lanes = Lanes(LIMIT)
    lanes.enter(CRM, 0.0)
    lanes.shut(CRM)
    lanes.shut(ERP)
    assert (window(lanes, CRM), window(lanes, ERP)) == (0, 0)
    lanes.reopen(CRM)
    lanes.reopen(ERP)
    assert (window(lanes, CRM), window(lanes, ERP)) == (FIRST_WINDOW - 1, FIRST_WINDOW)


def test_a_window_outlives_a_short_rest_and_not_a_long_one() -> None:
    lanes = Lanes(LIMIT)
    answer(lanes, fill(lanes, CRM))
    assert window(lanes, CRM, now=0.9) == 2 * FIRST_WINDOW
    assert window(lanes, CRM, now=1.0) == FIRST_WINDOW


def test_of_resting_lanes_only_so_many_are_remembered() -> None:
    lanes = Lanes(LIMIT)
    for _ in range(IDLE_LANES + 10):
        answer(lanes, fill(lanes, new_id()))
    assert len(lanes.allowance(0.0).lanes) == IDLE_LANES


def test_a_lane_is_stuck_once_it_has_been_full_for_a_while() -> None:
    lanes = Lanes(LIMIT)
    taken = fill(lanes, CRM)
    assert list(lanes.allowance(0.05).stuck) == []
    assert list(lanes.allowance(0.1).stuck) == [CRM]
    lanes.leave(taken[0])
    assert list(lanes.allowance(0.2).stuck) == []


def test_what_was_claimed_before_a_lane_closed_is_not_to_be_sent() -> None:
    lanes = Lanes(LIMIT)
    lanes.close({CRM}, 10.0)
    assert lanes.is_closed_since(CRM, asked_at=9.9)
    assert not lanes.is_closed_since(CRM, asked_at=10.1)
    assert not lanes.is_closed_since(ERP, asked_at=9.9)


def test_a_closing_is_forgotten_when_no_claim_is_as_old() -> None:
    lanes = Lanes(LIMIT)
    lanes.close({CRM}, 10.0)
    lanes.close({ERP}, 10.0 + CLAIM_SECONDS)
    assert not lanes.is_closed_since(CRM, asked_at=9.9)


def test_a_lane_that_hung_for_long_is_remembered_from_when_that_was_known() -> None:
    lanes = Lanes(LIMIT)
    lane = lanes.enter(CRM, 0.0)
    lanes.leave(lane)
    lanes.failed(lane, 5.0)
    assert window(lanes, CRM, now=5.5) == FIRST_WINDOW // 2


def test_a_lane_in_doubt_is_asked_by_one_request_at_a_time() -> None:
    lanes = Lanes(LIMIT)
    taken = [lanes.enter(CRM, 0.0)]
    lanes.doubt({CRM})
    assert window(lanes, CRM) == 0
    answer(lanes, taken)
    assert window(lanes, CRM) == 2


def test_after_a_429_one_request_asks_before_others_follow() -> None:
    lanes = Lanes(LIMIT)
    taken = fill(lanes, CRM)
    for lane in taken:
        lanes.leave(lane)
        lanes.throttled(lane, 0.0)
    assert len(fill(lanes, CRM)) == 1


def test_an_answer_that_had_to_be_cut_off_widens_no_window() -> None:
    lanes = Lanes(LIMIT)
    for lane in fill(lanes, CRM):
        lanes.leave(lane)
        lanes.answered(lane, 0.0, in_order=False)
    assert window(lanes, CRM) == FIRST_WINDOW
