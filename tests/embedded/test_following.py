"""Which standby has the most, and when one that does not follow is helped: judgements without a server."""

from __future__ import annotations

import itertools

import pytest

from relay.embedded.following import LONGEST_STANDSTILL_SECONDS, STANDSTILL_SECONDS, Follower, Patience, Remedy
from relay.embedded.promotion import Position, furthest

FOLLOWS = Follower(streams=True, connected=True, lost=False)
AWAY = Follower(streams=False, connected=False, lost=False)
LOST = Follower(streams=False, connected=False, lost=True)


@pytest.mark.parametrize(
    ("positions", "chosen"),
    [
        ({"r2": Position(1, 500), "r3": Position(1, 400)}, "r2"),
        ({"r2": Position(1, 400), "r3": Position(1, 500)}, "r3"),
        ({"r2": Position(1, 900), "r3": Position(2, 500)}, "r3"),
        ({"r3": Position(1, 400), "r2": Position(1, 400)}, "r2"),
        ({"r3": Position(1, 400)}, "r3"),
    ],
)
def test_the_furthest_has_the_newest_timeline_and_of_that_the_most(positions: dict[str, Position], chosen: str) -> None:
    assert furthest(positions) == chosen


def test_a_position_reads_as_postgresql_writes_it() -> None:
    assert str(Position(2, (3 << 32) + 0xAB)) == "3/AB of timeline 2"


def test_a_standby_that_follows_is_left_alone() -> None:
    patience = Patience()
    assert {patience.judge(now, FOLLOWS, None) for now in range(0, 10_000, 100)} == {Remedy.NONE}


def test_a_standby_that_moves_is_left_alone() -> None:
    patience = Patience()
    remedies = {patience.judge(now, AWAY, f"0/{now:X}") for now in range(0, 10_000, 10)}
    assert remedies == {Remedy.NONE}


@pytest.mark.parametrize("place", ["0/1", None], ids=["it stands still", "it says nothing"])
def test_a_standby_that_stands_still_is_started_anew_and_then_copied_anew(place: str | None) -> None:
    patience = Patience()
    soon, late, later = STANDSTILL_SECONDS - 1, STANDSTILL_SECONDS, 2 * STANDSTILL_SECONDS
    remedies = [patience.judge(now, AWAY, place) for now in (0.0, soon, late, late + soon, later)]
    assert remedies == [Remedy.NONE, Remedy.NONE, Remedy.RESTART, Remedy.NONE, Remedy.REBUILD]


def test_copies_that_do_not_help_are_made_more_and_more_rarely() -> None:
    patience = Patience()
    times = [now for now in range(50_000) if patience.judge(float(now), AWAY, None) is Remedy.REBUILD]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == sorted(gaps)
    assert gaps[0] == 2 * STANDSTILL_SECONDS
    assert gaps[-1] == LONGEST_STANDSTILL_SECONDS


def test_once_it_follows_again_its_past_is_forgotten() -> None:
    patience = Patience()
    patience.judge(0.0, AWAY, None)
    assert patience.judge(STANDSTILL_SECONDS, AWAY, None) is Remedy.RESTART
    patience.judge(STANDSTILL_SECONDS + 1, FOLLOWS, None)
    patience.judge(1_000.0, AWAY, None)
    assert patience.judge(1_000.0 + STANDSTILL_SECONDS, AWAY, None) is Remedy.RESTART


def test_a_standby_whose_log_is_gone_at_the_primary_is_copied_at_once() -> None:
    assert Patience().judge(0.0, LOST, "0/1") is Remedy.REBUILD
