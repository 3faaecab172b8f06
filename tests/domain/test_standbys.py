"""What a server's settings promise, and what is said where that is not enough."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.standbys import NO_STANDBYS, ServerSays, Standbys, read_standbys, shortcoming

STRONG = ServerSays(standby_names="ANY 1 (r2, r3)", levels=("on",), fsync="on", sees_standbys=True)


@pytest.mark.parametrize(
    ("setting", "standbys"),
    [
        ("", NO_STANDBYS),
        ("  ", NO_STANDBYS),
        ("ANY 1 (r2, r3)", Standbys(1, ("r2", "r3"))),
        ("any 2(a,b,c)", Standbys(2, ("a", "b", "c"))),
        ("FIRST 1 (a)", Standbys(1, ("a",))),
        ("2 (a, b)", Standbys(2, ("a", "b"))),
        ("a, b", Standbys(1, ("a", "b"))),
        ("Alpha", Standbys(1, ("alpha",))),
        ("first", Standbys(1, ("first",))),
        ("any, first", Standbys(1, ("any", "first"))),
        ('ANY 1 ("a b", "say ""hi""")', Standbys(1, ("a b", 'say "hi"'))),
        ("*", Standbys(1, ("*",))),
        ("ANY 1 (a, A)", Standbys(1, ("a",))),
    ],
)
def test_a_setting_is_read_as_the_server_reads_it(setting: str, standbys: Standbys) -> None:
    assert read_standbys(setting) == standbys


@pytest.mark.parametrize("setting", ["ANY 1 (a", 'ANY 1 ("a)', "a b", "ANY 1 ((a))"])
def test_what_no_server_accepts_is_an_error(setting: str) -> None:
    with pytest.raises(ValueError, match="list of"):
        read_standbys(setting)


@given(
    st.integers(1, 9),
    st.lists(st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True), min_size=1, max_size=9, unique=True),
)
def test_names_survive_quoting_and_order(count: int, names: list[str]) -> None:
    listed = ", ".join(f'"{name}"' for name in names)
    assert read_standbys(f"ANY {count} ({listed})") == Standbys(count, tuple(names))


def test_a_server_that_waits_for_one_of_two_keeps_a_quorum_of_two() -> None:
    assert shortcoming(STRONG, 2) is None


def test_a_quorum_of_one_asks_nothing_of_standbys() -> None:
    assert shortcoming(ServerSays("", ("off",), "off", sees_standbys=False), 1) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"standby_names": ""}, "synchronous_standby_names is empty"),
        ({"standby_names": "ANY 1 (*)"}, "name the standbys"),
        ({"standby_names": "ANY 3 (r2, r3)"}, "no commit can ever be confirmed"),
        ({"levels": ("on", "remote_write")}, "'remote_write'"),
        ({"levels": ("local",)}, "'local'"),
        ({"levels": ("on", "off")}, "'off'"),
        ({"fsync": "off"}, "fsync"),
        ({"sees_standbys": False}, "GRANT pg_monitor"),
    ],
)
def test_a_weaker_server_is_told_what_to_change(change: dict[str, object], words: str) -> None:
    found = shortcoming(dataclasses.replace(STRONG, **change), 2)  # type: ignore[arg-type]  # one field of several types
    assert found is not None
    assert words in found


def test_a_quorum_of_three_needs_two_standbys_at_each_commit() -> None:
    found = shortcoming(STRONG, 3)
    assert found is not None
    assert "needs 2" in found
    assert shortcoming(dataclasses.replace(STRONG, standby_names="ANY 2 (r2, r3)"), 3) is None


def test_a_commit_that_standbys_have_applied_is_on_their_disks_too() -> None:
    assert shortcoming(dataclasses.replace(STRONG, levels=("remote_apply", "on")), 2) is None
