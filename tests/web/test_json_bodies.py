"""Claims about what counts as JSON."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.web.json_bodies import content_type_fault, decode_json
from relay.web.problems import ErrorCode, Refused


@pytest.mark.parametrize(
    "value",
    [
        b"application/json",
        b"Application/JSON",
        b"application/json; charset=utf-8",
        b'application/json;charset="UTF-8"',
        b"application/json ; charset=utf8 ; profile=x",
        b"application/json;",
        b"application/vnd.github+json",
        b"application/cloudevents+json; charset=UTF-8",
    ],
)
def test_json_in_utf_8_is_taken(value: bytes) -> None:
    assert content_type_fault(value) is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"json",
        b"text/json",
        b"text/plain",
        b"application/json, application/json",
        b"application/jsonp",
        b"application/json; charset=test",
        b"application/json; charset=utf-16",
        b"application/json; charset=utf-8; charset=latin-1",
        b'application/json; charset="utf-8',
        b"multipart/form-data; boundary=zz",
        b"application/x-www-form-urlencoded",
        b"application/json\xff",
        b"application/json" + b" " * 300,
    ],
)
def test_everything_else_is_refused_with_what_to_do(value: bytes) -> None:
    assert content_type_fault(value)


@given(st.binary(max_size=300))
def test_no_content_type_raises(value: bytes) -> None:
    content_type_fault(value)


@pytest.mark.parametrize("piece", [b";   ", b" ;", b"; a=b ", b'; a="\\"', b"\t", b";;  "])
def test_no_content_type_takes_long_to_refuse(piece: bytes) -> None:
    # once a few blanks took seconds and thirty the rest of the day; the test's time limit is what would tell
    assert content_type_fault((b"application/json" + piece * 100)[:254] + b"@") is not None


def test_a_content_type_that_is_taken_is_ascii() -> None:
    assert content_type_fault(b'application/json; x="\xe9"') is not None


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b'{"a":NaN}', "no JSON"),
        (b"{'a':1}", "no JSON"),
        (b'{"a":1} x', "no JSON"),
        (b'"\xff"', "UTF-8"),
        (b'"\xed\xa0\x80"', "UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"[" * 100_000, "nested"),
    ],
)
def test_what_is_no_json_is_malformed(body: bytes, word: str) -> None:
    with pytest.raises(Refused) as refused:
        decode_json(msgspec.json.decode, body)
    assert refused.value.problem.code is ErrorCode.MALFORMED
    assert word in refused.value.problem.detail


@given(st.binary(max_size=100))
def test_whatever_the_bytes_are_they_are_read_or_refused(body: bytes) -> None:
    try:
        decode_json(msgspec.json.decode, body)
    except (Refused, msgspec.ValidationError):
        return
