"""Messages on the wire, and answers of servers of every version, read."""

from __future__ import annotations

import pytest

from relay.broker.broker import Message
from relay.broker.entries import FIELD, Entries, read_claimed, read_new, written
from tests.broker.grounds import ids

WRITTEN = (FIELD, written(ids(2)))
MESSAGE = Message("5-1", tuple(ids(2)))


def test_a_delivery_is_sixteen_bytes_and_nothing_else() -> None:
    assert written(ids(50)) == b"".join(number.to_bytes(16, "big") for number in range(1, 51))


def test_no_answer_in_time_is_no_entry() -> None:
    assert read_new(None) == read_new([]) == Entries()


def test_a_read_gives_what_was_written() -> None:
    assert read_new([(b"relay.deliveries", [(b"5-1", WRITTEN)])]) == Entries((MESSAGE,))


@pytest.mark.parametrize(
    "fields",
    [
        None,  # deleted and still pending
        (),
        (b"ids",),
        (b"payload", WRITTEN[1]),
        (b"ids", b""),
        (b"ids", WRITTEN[1][:-1]),
        (b"ids", WRITTEN[1] * 26),
        (*WRITTEN, b"more", b""),
    ],
    ids=["nil", "none", "half", "other", "empty", "torn", "long", "two"],
)
def test_what_relay_did_not_write_is_told_apart(fields: tuple[bytes, ...] | None) -> None:
    assert read_new([(b"s", [(b"5-0", fields), (b"5-1", WRITTEN)])]) == Entries((MESSAGE,), ("5-0",))


def test_a_claim_of_two_elements_is_read() -> None:
    """Before 7.0, deleted entries stand among the others as nil."""
    assert read_claimed((b"0-0", [None, (b"5-1", WRITTEN)])) == (b"0-0", Entries((MESSAGE,)))


def test_a_claim_of_three_elements_is_read() -> None:
    """From 7.0 on the third names deleted entries."""
    assert read_claimed((b"9-0", [(b"5-1", WRITTEN)], [b"5-0"])) == (b"9-0", Entries((MESSAGE,)))
