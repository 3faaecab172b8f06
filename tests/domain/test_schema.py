"""Claims about the names of schemas."""

from __future__ import annotations

import pytest

from relay.domain.schema import InvalidSchemaName, SchemaName, read_name, read_number


@pytest.mark.parametrize(
    ("text", "event_type", "number"),
    [("invoice.paid/v3", "invoice.paid", 3), ("a/b/v1", "a/b", 1), ("v1/v999999999", "v1", 999_999_999)],
)
def test_a_name_is_read_and_written_back(text: str, event_type: str, number: int) -> None:
    assert read_name(text) == SchemaName(event_type, number)
    assert str(read_name(text)) == text


@pytest.mark.parametrize(
    "text", ["", "invoice.paid", "v3", "/v3", "invoice.paid/3", "invoice..paid/v3", "a/v0", "a/v03", "a/v1 ", "a/V1"]
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaName):
        read_name(text)


@pytest.mark.parametrize("text", ["", "v", "v0", "v1000000000", "v-1", "v1.0", "v\u0661"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaName, match="a version is v and a number"):
        read_number(text)
