"""A key reads the same quoted or bare, and a fingerprint is the same only for the same request."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.idempotency import InvalidKey, fingerprint, parse_key

KEYS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=255)


@settings(max_examples=40)
@given(KEYS)
def test_a_quoted_key_and_the_bare_one_are_the_same(key: str) -> None:
    quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert parse_key(quoted) == key
    if not key.startswith('"'):
        assert parse_key(key) == key


def test_white_space_around_the_header_is_not_part_of_the_key() -> None:
    assert parse_key(' \t"8e03978e-40d5"\t ') == parse_key("  8e03978e-40d5 ") == "8e03978e-40d5"


NO_KEYS = [
    *(
        "",
        " ",
        '""',
        '"',
        '"a',
        "a b",
        '"a b"',
        '"a"b"',
        '"a";x=1',
        '"a", "b"',
        "a, b",
        '"a\\n"',
        '"a\\',
        "k\x7f",
        "k\x00",
    ),
    *("schlüssel", '"schlüssel"', "k\ud800", "k\n", "x" * 256, '"' + "x" * 256 + '"', '"' + "\\" * 511 + '"'),
]


def test_what_is_no_key_is_refused() -> None:
    for header in NO_KEYS:
        with pytest.raises(InvalidKey):
            parse_key(header)


def test_a_key_has_up_to_255_characters() -> None:
    assert parse_key("x" * 255) == parse_key('"' + "x" * 255 + '"') == "x" * 255


def _fingerprint(event_type: str, body: bytes) -> bytes:
    return fingerprint(event_type, hashlib.sha256(body).digest())


def test_a_fingerprint_is_32_bytes_that_a_restart_does_not_change() -> None:
    expected = "500abd86e38e6c75c5110b94718c2ddb35d489c1677607048ef0f40a848a954b"
    assert _fingerprint("invoice.paid", b"{}").hex() == expected


def test_another_type_or_another_byte_of_the_body_is_another_request() -> None:
    requests = [("a", b"b"), ("ab", b""), ("a", b"b "), ("A", b"b"), ("b", b"a"), ("", b"ab"), ("a", b"")]
    assert len({_fingerprint(*request) for request in requests}) == len(requests)


def test_a_body_is_not_taken_for_its_digest() -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        fingerprint("invoice.paid", b"{}")
