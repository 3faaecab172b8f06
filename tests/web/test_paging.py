"""Claims about pages and cursors."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.web.paging import BY_ID, Listing
from relay.web.problems import ErrorCode, Refused

ENDPOINTS = Listing("endpoints", BY_ID)

filters = st.lists(st.none() | st.text(max_size=5), max_size=3)


@given(st.uuids(), st.sampled_from(["endpoints", "deliveries", "x"]), filters)
def test_a_cursor_reads_back(place: UUID, name: str, wanted: list[str | None]) -> None:
    assert Listing(name, BY_ID, wanted).read_cursor(Listing(name, BY_ID, wanted).write_cursor(place)) == place


@given(st.text(max_size=60) | st.text(alphabet="AQGiKrCNp3DftsF2PjYtA2llbmRwb2ludHM-_=", max_size=60))
def test_no_text_but_a_cursor_is_one(text: str) -> None:
    with pytest.raises(Refused) as refused:
        ENDPOINTS.read_cursor(text)
    assert refused.value.problem.code is ErrorCode.BAD_CURSOR


@given(st.uuids())
def test_a_cursor_of_one_list_is_none_of_another(place: UUID) -> None:
    with pytest.raises(Refused):
        Listing("deliveries", BY_ID).read_cursor(ENDPOINTS.write_cursor(place))


@given(st.uuids(), filters, filters)
def test_a_cursor_is_for_the_filter_that_it_was_given_for(
    place: UUID, wanted: list[str | None], other: list[str | None]
) -> None:
    cursor = Listing("receipts", BY_ID, wanted).write_cursor(place)
    if wanted != other:
        with pytest.raises(Refused):
            Listing("receipts", BY_ID, other).read_cursor(cursor)


def test_a_cursor_has_no_second_spelling() -> None:
    cursor = ENDPOINTS.write_cursor(UUID(int=7))
    for spelling in (cursor + "=", cursor + " ", cursor[:-1], cursor + "A", cursor + "AAAA", "x" * 100_000):
        with pytest.raises(Refused):
            ENDPOINTS.read_cursor(spelling)


def test_a_page_with_more_behind_it_ends_in_a_cursor() -> None:
    rows = [UUID(int=n) for n in (3, 2, 1)]
    shown, following = ENDPOINTS.page(rows, 2, lambda row: row)
    assert list(shown) == rows[:2]
    assert following is not None
    assert ENDPOINTS.read_cursor(following) == rows[1]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_last_page_has_no_cursor(count: int) -> None:
    rows = [UUID(int=n) for n in range(count)]
    assert ENDPOINTS.page(rows, 2, lambda row: row) == (rows, None)
