"""Ids sort by age, read back as they were written, and keep a receipt's deliveries together."""

import os
from datetime import UTC, date, datetime, timedelta
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain import ids

MILLISECONDS = st.integers(0, 2**48 - 1)
ENTROPY = st.binary(min_size=ids.ENTROPY_BYTES, max_size=ids.ENTROPY_BYTES)
SIBLING = st.binary(min_size=ids.SIBLING_BYTES, max_size=ids.SIBLING_BYTES)


@settings(max_examples=25)
@given(MILLISECONDS, ENTROPY)
def test_a_made_id_is_a_version_7_uuid_that_knows_its_millisecond(unix_ms: int, entropy: bytes) -> None:
    made = ids.uuid7(unix_ms, entropy)
    assert (made.version, made.variant, ids.unix_ms(made)) == (7, RFC_4122, unix_ms)


def test_all_74_random_bits_reach_the_id() -> None:
    ones = ids.uuid7(0, b"\xff" * ids.ENTROPY_BYTES)
    zeros = ids.uuid7(0, bytes(ids.ENTROPY_BYTES))
    assert (ones.int ^ zeros.int).bit_count() == 74


@settings(max_examples=25)
@given(MILLISECONDS, MILLISECONDS, ENTROPY, ENTROPY)
def test_an_id_of_a_later_millisecond_sorts_later_in_every_form(a: int, b: int, one: bytes, two: bytes) -> None:
    first, second = ids.uuid7(a, one), ids.uuid7(b, two)
    if a < b:
        assert first < second
        assert str(first) < str(second)
        assert ids.write(ids.RECEIPT, first) < ids.write(ids.RECEIPT, second)


@settings(max_examples=25)
@given(MILLISECONDS, ENTROPY, SIBLING)
def test_a_delivery_lies_in_its_receipts_range_and_is_a_version_7_uuid(
    unix_ms: int, entropy: bytes, drawn: bytes
) -> None:
    receipt = ids.uuid7(unix_ms, entropy)
    first, last = ids.delivery_range(receipt)
    delivery = ids.delivery_id(receipt, drawn)
    assert first <= delivery <= last
    assert (delivery.version, ids.unix_ms(delivery)) == (7, unix_ms)


def test_the_ranges_of_two_receipts_do_not_touch() -> None:
    receipt = ids.uuid7(1, bytes(10))
    next_one = UUID(int=receipt.int + 2**32)
    assert ids.delivery_range(receipt)[1].int + 1 == ids.delivery_range(next_one)[0].int


def test_siblings_differ_by_their_drawn_bytes_alone() -> None:
    receipt = ids.uuid7(1, b"\xaa" * 10)
    assert ids.delivery_id(receipt, b"\x00\x00\x00\x01").int + 1 == ids.delivery_id(receipt, b"\x00\x00\x00\x02").int


def test_the_journal_day_is_the_utc_day_of_the_receipt() -> None:
    last_ms_of_the_day = 1_764_547_199_999
    days = [ids.day_of(ids.uuid7(ms, bytes(10))) for ms in (last_ms_of_the_day, last_ms_of_the_day + 1)]
    assert days == [date(2025, 11, 30), date(2025, 12, 1)]


@settings(max_examples=25)
@given(st.sampled_from([ids.RECEIPT, ids.EVENT, ids.ENDPOINT]), st.uuids())
def test_an_id_reads_back_as_it_was_written(prefix: str, uuid: UUID) -> None:
    assert ids.parse(prefix, ids.write(prefix, uuid)) == uuid


WRITTEN = "rcp_0197c0de00007000800000000000002a"


NO_RECEIPT_IDS = [
    *("", "rcp_", WRITTEN[4:], WRITTEN.upper(), WRITTEN[:-1], WRITTEN + "0", WRITTEN + "\n", " " + WRITTEN),
    *(
        "evt_" + WRITTEN[4:],
        "rcp_rcp_" + WRITTEN[8:],
        "rcp_0197c0de-0000-7000-8000-00000000002a",
        "rcp_" + "\uff10" * 32,
    ),
]


def test_what_is_not_exactly_an_id_of_that_kind_is_refused() -> None:
    for text in NO_RECEIPT_IDS:
        with pytest.raises(ids.InvalidId):
            ids.parse(ids.RECEIPT, text)


MOMENT = datetime(2026, 9, 14, 9, 41, 7, 214_000, tzinfo=UTC)


@settings(max_examples=25)
@given(st.integers(-3_000, 3_000), ENTROPY)
def test_an_id_is_past_the_first_of_an_instant_if_its_millisecond_is_not_before_it(
    microseconds: int, entropy: bytes
) -> None:
    made = ids.uuid7(int(MOMENT.timestamp() * 1000), entropy)
    instant = MOMENT + timedelta(microseconds=microseconds)
    assert (made >= ids.first_at(instant)) == (instant <= MOMENT)


def test_the_first_ids_of_instants_that_no_id_has_are_the_outermost() -> None:
    assert ids.first_at(datetime.min.replace(tzinfo=UTC)) == UUID(int=0)
    assert ids.unix_ms(ids.first_at(datetime.max.replace(tzinfo=UTC))) == 253_402_300_800_000


def test_delivery_ids_of_a_receipt_differ_even_where_chance_repeats_itself() -> None:
    drawn = iter([b"aaaa" * 3, b"aaaa" + b"bbbb", b"cccc"])
    receipt = UUID(int=7 << 96)
    made = ids.delivery_ids(receipt, 3, lambda _: next(drawn))
    first, last = ids.delivery_range(receipt)
    assert len(set(made)) == 3
    assert all(first <= delivery <= last for delivery in made)


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_as_many_delivery_ids_are_drawn_as_are_wanted(count: int) -> None:
    assert len(ids.delivery_ids(UUID(int=7 << 96), count, os.urandom)) == count


@given(st.dates(min_value=date(1970, 1, 1), max_value=date(9999, 12, 30)))
def test_the_ids_of_a_day_are_those_from_its_first_to_its_last(day: date) -> None:
    first, last = ids.first_of(day), ids.last_of(day)
    assert ids.day_of(first) == ids.day_of(last) == day
    assert ids.first_of(day + timedelta(days=1)).int == last.int + 1


def test_every_id_that_no_calendar_reaches_is_of_the_last_day() -> None:
    last = UUID(int=(1 << 128) - 1)
    assert ids.day_of(last) == date.max
    assert ids.last_of(date.max) == last


def test_before_1970_there_are_no_ids_but_the_first_of_all() -> None:
    assert ids.first_of(date.min) == ids.last_of(date.min) == UUID(int=0)
