"""Claims about the names by which a certificate can be a source's (C155)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.certificate import (
    LONGEST_SUBJECT,
    Alternatives,
    InvalidSubject,
    fingerprint_of,
    names_of,
    read_subject,
)


@pytest.mark.parametrize(
    ("alternatives", "common_names", "expected"),
    [
        (Alternatives(["a.example.com", "b.example.com"]), [], ("a.example.com", "b.example.com")),
        (Alternatives(["A.Example.com"]), [], ("a.example.com",)),
        (Alternatives(["a.example.com", "A.EXAMPLE.COM"]), [], ("a.example.com",)),
        (Alternatives(uris=["spiffe://Mesh/Billing"], emails=["Ops@Example.com"]), [],
         ("spiffe://Mesh/Billing", "Ops@Example.com")),
        # where there are alternatives the common name is nothing, not even beside an empty list of them
        (Alternatives(["a.example.com"]), ["b.example.com"], ("a.example.com",)),
        (Alternatives(), ["b.example.com"], ()),
        (None, ["Warehouse 7"], ("Warehouse 7",)),
        (None, ["Billing"], ("billing",)),
        (None, ["one", "two"], ()),
        (None, [], ()),
        # what names more than one host, or one in a form of its own
        (Alternatives(["*.example.com", "a.example.com"]), [], ("a.example.com",)),
        (Alternatives(["a.example.com."]), [], ()),
        (Alternatives(["a..example.com", "-a.example.com", "a b", ""]), [], ()),
        # what was meant to deceive: then nothing of it counts
        (Alternatives(["a.example.com\0.evil.example", "b.example.com"]), [], ()),
        (Alternatives(["b.example.com"], uris=["spiffe://mesh/\0"]), [], ()),
        (Alternatives(["b.example.com"], emails=[" ops@example.com"]), [], ()),
        (None, ["billing\0"], ()),
        # a fingerprint is what a certificate has by itself, and no authority can sign one
        (Alternatives(uris=["sha256:" + "ab" * 32, "SHA256:" + "ab" * 32]), [], ()),
        (None, ["sha256:" + "ab" * 32], ()),
    ],
)  # fmt: skip
def test_the_names_of_a_certificate_that_count(
    alternatives: Alternatives | None, common_names: list[str], expected: tuple[str, ...]
) -> None:
    assert names_of(alternatives, common_names) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Billing.Example.COM", "billing.example.com"),
        ("Warehouse 7", "Warehouse 7"),
        ("spiffe://Mesh/Billing", "spiffe://Mesh/Billing"),
        ("sha256:" + "AB" * 32, "sha256:" + "ab" * 32),
        ("SHA256:" + ":".join(["AB"] * 32), "sha256:" + "ab" * 32),
        ("Ä" * LONGEST_SUBJECT, "Ä" * LONGEST_SUBJECT),
    ],
)
def test_a_subject_is_kept_as_it_is_compared(text: str, expected: str) -> None:
    assert read_subject(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "x" * (LONGEST_SUBJECT + 1), "billing\0", " billing", "billing ", "a\nb", "*.example.com", "a.*", "a.b.",
     "sha256:", "sha256:" + "ab" * 31, "sha256:" + "xy" * 32],
)  # fmt: skip
def test_what_no_certificate_can_show_is_no_subject(text: str) -> None:
    with pytest.raises(InvalidSubject):
        read_subject(text)


@given(st.text(max_size=40))
def test_reading_a_subject_again_changes_nothing(text: str) -> None:
    try:
        read = read_subject(text)
    except InvalidSubject:
        return
    assert read_subject(read) == read


@given(st.lists(st.text(max_size=30), max_size=4), st.lists(st.text(max_size=30), max_size=4), st.booleans())
def test_whatever_a_certificate_says_no_name_of_it_is_a_fingerprint(
    hosts: list[str], others: list[str], are_alternatives: bool
) -> None:
    names = names_of(Alternatives(hosts, others, others) if are_alternatives else None, hosts)
    assert not any(name.startswith("sha256:") for name in names)
    assert all(read_subject(name) == name for name in names)


def test_the_fingerprint_of_a_certificate_is_a_subject() -> None:
    assert read_subject(fingerprint_of(bytes(32))) == "sha256:" + "0" * 64
