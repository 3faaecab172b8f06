"""Claims about pages and cursors."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.web.paging import page, read_cursor, write_cursor
from relay.web.problems import ErrorCode, Refused


@given(st.uuids(), st.sampled_from(["endpoints", "deliveries", "x"]))
def test_a_cursor_reads_back(place: UUID, listing: str) -> None:
    assert read_cursor(listing, write_cursor(listing, place)) == place


@given(st.text(max_size=60) | st.text(alphabet="AQGiKrCNp3DftsF2PjYtA2llbmRwb2ludHM-_=", max_size=60))
def test_no_text_but_a_cursor_is_one(text: str) -> None:
    with pytest.raises(Refused) as refused:
        read_cursor("endpoints", text)
    assert refused.value.problem.code is ErrorCode.BAD_CURSOR


@given(st.uuids())
def test_a_cursor_of_one_list_is_none_of_another(place: UUID) -> None:
    with pytest.raises(Refused):
        read_cursor("deliveries", write_cursor("endpoints", place))


def test_a_cursor_has_no_second_spelling() -> None:
    cursor = write_cursor("endpoints", UUID(int=7))
    for spelling in (cursor + "=", cursor + " ", cursor[:-1] + "t", "x" * 100_000):
        with pytest.raises(Refused):
            read_cursor("endpoints", spelling)


def test_a_page_with_more_behind_it_ends_in_a_cursor() -> None:
    rows = [UUID(int=n) for n in (3, 2, 1)]
    shown, following = page("endpoints", rows, 2, lambda row: row)
    assert list(shown) == rows[:2]
    assert following is not None
    assert read_cursor("endpoints", following) == rows[1]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_last_page_has_no_cursor(count: int) -> None:
    rows = [UUID(int=n) for n in range(count)]
    assert page("endpoints", rows, 2, lambda row: row) == (rows, None)
