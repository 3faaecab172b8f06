"""Claims about the numbering of consumers."""

import json
from pathlib import Path

import pytest

from relay.metrics.roster import FILE, Roster


def test_consumers_are_numbered_in_the_order_in_which_they_come() -> None:
    roster = Roster(3)
    assert [roster.number(name) for name in ("b", "a", "b", "c")] == [0, 1, 0, 2]


def test_past_the_limit_all_are_the_others(tmp_path: Path) -> None:
    for roster in (Roster(2), Roster(2, tmp_path)):
        assert [roster.number(name) for name in ("a", "b", "c", "d", "a")] == [0, 1, 2, 2, 0]
        assert roster.is_full
        assert list(roster.numbers) == ["a", "b"]


def test_a_consumer_that_is_called_other_is_one_of_the_others() -> None:
    roster = Roster(2)
    assert roster.number("other") == 2
    assert roster.numbers == {}


def test_workers_agree_on_the_numbers_whoever_saw_a_consumer_first(tmp_path: Path) -> None:
    first, second = Roster(10, tmp_path), Roster(10, tmp_path)
    assert (first.number("a"), second.number("b"), first.number("c"), second.number("a")) == (0, 1, 2, 0)
    first.refresh()
    assert first.numbers == Roster(10, tmp_path).numbers == {"a": 0, "b": 1, "c": 2}


def test_two_workers_that_enter_one_consumer_at_once_give_it_one_number(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('\n"a"\n\n"a"\n\n"b"\n')
    assert Roster(10, tmp_path).numbers == {"a": 0, "b": 1}


@pytest.mark.parametrize("name", ['qu"ote', "line\nbreak", "ünïcode", "", "\x00", "\ud800"])
def test_a_name_comes_back_as_it_went(tmp_path: Path, name: str) -> None:
    Roster(10, tmp_path).number(name)
    assert list(Roster(10, tmp_path).numbers) == [name]


def test_what_a_killed_worker_left_unfinished_is_nobody(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'\n"a"\n\n"cut sho')
    roster = Roster(10, tmp_path)
    assert (roster.number("b"), roster.numbers) == (1, {"a": 0, "b": 1})
    assert Roster(10, tmp_path).numbers == {"a": 0, "b": 1}


def test_a_line_that_is_still_being_written_is_read_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(b'\n"a"\n\n"b')
    roster = Roster(10, tmp_path)
    assert list(roster.numbers) == ["a"]
    path.write_bytes(b'\n"a"\n\n"b"\n')
    roster.refresh()
    assert list(roster.numbers) == ["a", "b"]


def test_what_is_no_name_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("\n".join(["", json.dumps(7), "{}", json.dumps("a"), ""]))
    assert Roster(10, tmp_path).numbers == {"a": 0}


def test_a_roster_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    roster = Roster(10, tmp_path / "gone")
    assert roster.number("a") == 10
