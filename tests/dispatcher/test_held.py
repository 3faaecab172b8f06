"""What a consumer has read and not acknowledged."""

from __future__ import annotations

from uuid import UUID

from relay.broker import Message
from relay.dispatcher.consumer import Held

LANE = UUID(int=99)


def message(name: str, *numbers: int) -> Message:
    return Message(name, tuple(UUID(int=number) for number in numbers))


def ids(*numbers: int) -> list[UUID]:
    return [UUID(int=number) for number in numbers]


def test_a_message_is_done_once_nothing_of_it_is_left() -> None:
    held = Held()
    held.take([message("a", 1, 2), message("b", 3)])
    assert held.settle(ids(1, 2, 3), dict.fromkeys(ids(2), LANE)) == ["b"]
    assert held.settle(ids(2), {}) == ["a"]
    assert len(held) == 0


def test_what_was_not_asked_for_keeps_its_message() -> None:
    held = Held()
    held.take([message("a", 1, 2)])
    assert held.settle(ids(1), {}) == []
    assert held.fresh() == ids(2)


def test_what_is_left_over_is_known_with_its_lane_and_is_not_fresh() -> None:
    held = Held()
    held.take([message("a", 1, 2)])
    held.settle(ids(1, 2), dict.fromkeys(ids(2), LANE))
    assert (held.fresh(), held.left_over()) == ([], [(UUID(int=2), LANE)])


def test_a_message_that_comes_again_is_the_same_message() -> None:
    held = Held()
    held.take([message("a", 1)])
    held.settle(ids(1), dict.fromkeys(ids(1), LANE))
    held.take([message("a", 1)])
    assert (held.fresh(), held.settle(ids(1), {})) == ([], ["a"])


def test_one_delivery_in_two_messages_finishes_both() -> None:
    held = Held()
    held.take([message("a", 1, 2), message("b", 1, 3)])
    assert held.settle(ids(1, 2, 3), {}) == ["a", "b"]


def test_a_message_that_names_only_what_is_held_is_needless() -> None:
    held = Held()
    assert held.take([message("a", 1, 2)]) == []
    assert held.take([message("a", 1, 2), message("b", 2), message("c", 2, 3)]) == ["b"]
    assert held.settle(ids(1, 2, 3), {}) == ["a", "c"]


def test_a_message_is_needed_again_once_what_it_names_is_claimed() -> None:
    held = Held()
    held.take([message("a", 1, 2)])
    held.settle(ids(1), {})
    assert held.take([message("b", 1)]) == []


def test_past_its_bound_the_oldest_messages_are_let_go() -> None:
    held = Held()
    held.take([message("a", 1, 2), message("b", 2, 3), message("c", 4)])
    held.let_go(3)
    assert held.fresh() == ids(2, 3, 4)
    assert held.settle(ids(1, 2, 3, 4), {}) == ["b", "c"]


def test_everything_can_be_given_up() -> None:
    held = Held()
    held.take([message("a", 1), message("b", 2)])
    assert held.give_up() == (["a", "b"], ids(1, 2))
    assert (len(held), held.settle([], {})) == (0, [])
