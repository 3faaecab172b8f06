"""What a leader remembers of what it has announced: what is news, what is forgotten, and how much it may be."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from uuid import UUID

import pytest

from relay.dispatcher.announced import Announced
from relay.store.announcing import Look, ReadyLane, Row
from relay.store.queue import FIRST_LANE

LANE, OTHER, LAST = UUID(int=10), UUID(int=20), UUID(int=30)


def rows(count: int, first: int = 1) -> tuple[Row, ...]:
    return tuple((UUID(int=number), None) for number in range(first, first + count))


def ids(count: int, first: int = 1) -> list[UUID]:
    return [row[0] for row in rows(count, first)]


def look(*lanes: ReadyLane, after: UUID = FIRST_LANE, resume_after: UUID = FIRST_LANE) -> Look:
    return Look(after, lanes, resume_after, is_unmarked=False)


def lane(count: int, first: int = 1, *, endpoint: UUID = LANE, closings: str = "") -> ReadyLane:
    return ReadyLane(endpoint, closings, rows(count, first))


def test_what_is_ready_is_news_once() -> None:
    memory = Announced()
    assert memory.news(look(lane(3)), 0.0) == ids(3)
    assert memory.news(look(lane(4)), 1.0) == ids(1, 4)


def test_what_was_claimed_since_is_news_again() -> None:
    memory = Announced()
    memory.news(look(lane(1)), 0.0)
    again = ReadyLane(LANE, "", ((UUID(int=1), datetime(2026, 1, 1, tzinfo=UTC)),))
    assert memory.news(look(again), 1.0) == ids(1)


def test_what_is_claimed_is_forgotten() -> None:
    memory = Announced()
    memory.news(look(lane(3)), 0.0)
    memory.news(look(lane(1, 3)), 1.0)
    assert memory.size == 1


def test_a_lane_that_was_seen_closed_is_announced_anew_when_it_opens() -> None:
    memory = Announced()
    memory.news(look(lane(3)), 0.0)
    assert memory.news(look(lane(0)), 1.0) == []
    assert memory.news(look(lane(3)), 2.0) == ids(3)


def test_a_lane_that_was_closed_while_nobody_looked_is_announced_anew() -> None:
    memory = Announced()
    memory.news(look(lane(3)), 0.0)
    assert memory.news(look(lane(3, closings="held")), 1.0) == ids(3)


def test_what_is_stale_is_announced_again_and_what_is_not_is_not() -> None:
    memory = Announced()
    memory.news(look(lane(1)), 0.0)
    memory.news(look(lane(2)), 5.0)
    assert memory.news(look(lane(2)), 6.0, stale_before=3.0) == ids(1)
    assert memory.news(look(lane(2)), 7.0, stale_before=3.0) == []


@pytest.mark.parametrize(
    ("after", "resume_after", "left"),
    [(FIRST_LANE, FIRST_LANE, 1), (LANE, FIRST_LANE, 3), (FIRST_LANE, LANE, 1), (OTHER, LAST, 3)],
    ids=["all lanes", "those behind it", "those up to it", "other ones"],
)
def test_a_lane_is_forgotten_once_a_look_has_passed_it_in_vain(after: UUID, resume_after: UUID, left: int) -> None:
    memory = Announced()
    memory.news(look(lane(2)), 0.0)
    memory.news(look(lane(1, 9, endpoint=LAST), after=after, resume_after=resume_after), 1.0)
    assert memory.size == left


def in_doubt(number: int) -> list[ReadyLane]:
    """So many lanes that did not answer last time, with one row each."""
    return [
        dataclasses.replace(lane(1, 100_000 + each, endpoint=UUID(int=100_000 + each)), is_doubtful=True)
        for each in range(number)
    ]


def test_no_more_is_announced_and_not_claimed_than_there_may_be() -> None:
    memory = Announced(most=10)
    lanes = [lane(8, 100 * number, endpoint=UUID(int=number)) for number in range(1, 40)]
    for now in range(50):
        memory.news(look(*lanes, *in_doubt(20)), float(now))
    assert memory.size == 10


def test_lanes_that_come_to_doubt_with_what_they_had_leave_no_more_to_be_announced() -> None:
    memory = Announced(most=100)
    lanes = [lane(1, number, endpoint=UUID(int=number)) for number in range(1, 91)]
    memory.news(look(*lanes), 0.0)
    doubtful = [dataclasses.replace(each, is_doubtful=True) for each in lanes]
    assert len(memory.news(look(*doubtful, lane(500, 1_000, endpoint=UUID(int=1_000))), 1.0)) == 10
    assert memory.size == 100


def test_no_number_of_deep_lanes_keeps_one_from_its_first_word() -> None:
    memory = Announced(most=100)
    deep = [lane(60, 100 * number, endpoint=UUID(int=number)) for number in range(1, 11)]
    for now in range(50):
        memory.news(look(*deep), float(now))
    fresh = lane(1, 9_000, endpoint=LAST)
    assert memory.news(look(*deep, fresh), 60.0) == ids(1, 9_000)


def test_no_number_of_lanes_in_doubt_leaves_one_that_answers_less() -> None:
    memory, alone = Announced(most=1_000), Announced(most=1_000)
    for now in range(5):
        memory.news(look(*in_doubt(6_000)), float(now))
    healthy = lane(300, endpoint=LAST)
    assert memory.news(look(*in_doubt(6_000), healthy), 6.0) == alone.news(look(healthy), 6.0)


@pytest.mark.parametrize("is_doubtful", [False, True], ids=["that answer", "in doubt"])
@pytest.mark.parametrize("count", [1, 30], ids=["of one row", "deep"])
def test_where_lanes_are_more_than_places_each_has_its_turn(is_doubtful: bool, count: int) -> None:
    """Whatever is announced is claimed before the next look, and something else is due in its stead."""
    memory, told = Announced(most=100), dict.fromkeys(range(1, 151), 0)
    for now in range(41):
        lanes = []
        for number, announced in told.items():
            ready = lane(count, 10_000 * number + announced, endpoint=UUID(int=number))
            lanes.append(dataclasses.replace(ready, is_doubtful=is_doubtful))
        for delivery in memory.news(look(*lanes), float(now)):
            told[delivery.int // 10_000] += 1
    assert min(told.values()) > 0
    assert count > 1 or max(told.values()) - min(told.values()) <= 1


def test_a_lane_that_gives_less_by_now_is_not_told_of_more() -> None:
    memory = Announced()
    memory.news(look(lane(5)), 0.0)
    fewer = dataclasses.replace(lane(5), rows=rows(2))
    assert (memory.news(look(fewer), 1.0), memory.size) == ([], 2)
