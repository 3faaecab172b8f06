"""A journal position has one text form, and an envelope does not change."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.envelope import PARTITIONS, Envelope, JournalPosition


def test_a_position_is_written_with_two_digits_of_partition() -> None:
    assert str(JournalPosition(7, 18_442_913)) == "p07:18442913"


@settings(max_examples=20)
@given(st.integers(0, PARTITIONS - 1), st.integers(1, 10**19 - 1))
def test_a_position_reads_back_as_it_was_written(partition: int, number: int) -> None:
    position = JournalPosition(partition, number)
    assert JournalPosition.parse(str(position)) == position


def test_what_is_no_position_is_refused() -> None:
    for text in [
        "",
        "p7:1",
        "p16:1",
        "p99:1",
        "p07:0",
        "p07:01",
        "p07:-1",
        "P07:1",
        "p07:1\n",
        "p07",
        "p\u0660\u0667:1",
    ]:
        with pytest.raises(ValueError, match="a journal position looks like"):
            JournalPosition.parse(text)


def test_an_envelope_cannot_be_changed() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    envelope = Envelope(
        UUID(int=1), "evt", "t", None, "acct_default", "anonymous", now, "application/json", b"{}", bytes(32)
    )
    with pytest.raises(AttributeError):
        setattr(envelope, "type", "other")  # noqa: B010 - what a type checker would not let pass
