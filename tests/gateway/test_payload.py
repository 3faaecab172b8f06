"""Claims about how an event's type is found in its payload."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay.gateway.payload import read_type
from relay.web.json_bodies import without_halves
from relay.web.problems import ErrorCode, Refused

TAKEN = {
    "a number beyond every float": b'{"type":"a","x":1e400}',
    "an exponent of twenty digits": b'{"type":"a","x":1e99999999999999999999}',
    "an integer of 5,000 digits": b'{"type":"a","x":' + b"9" * 5000 + b"}",
    "minus zero": b'{"type":"a","x":-0.0}',
    "half of a surrogate pair": b'{"type":"a","x":"\\ud800"}',
    "the other half": b'{"type":"a","x":"\\udc00abc"}',
    "halves in the wrong order": b'{"type":"a","x":"\\udc00\\ud800"}',
    "a half before another escape": b'{"type":"a","x":"\\ud83d\\u0041"}',
    "a half as a name": b'{"\\ud800":1,"type":"a"}',
    "a half behind a backslash": b'{"x":"\\\\\\ud800","type":"a"}',
    "a whole pair": b'{"x":"\\ud83d\\ude00","type":"a"}',
    "what only looks like a half": b'{"x":"\\\\ud800","type":"a"}',
    "a name twice": b'{"type":"a","x":1,"x":2}',
    "an escaped zero": b'{"type":"a","x":"\\u0000"}',
    "an escaped name": b'{"\\u0074ype":"a"}',
    "line separators": '{"type":"a","x":"\u2028\u2029"}'.encode(),
    "the delete character": b'{"type":"a","x":"\x7f"}',
    "nesting of some depth": b'{"type":"a","x":' + b"[" * 500 + b"]" * 500 + b"}",
    "white space around": b' \t\r\n{"type":"a"}\n ',
}

MALFORMED = {
    "nothing": b"",
    "white space": b"  ",
    "an array": b"[]",
    "a string": b'"type"',
    "two values": b'{"type":"a"} {}',
    "a form feed": b'{"type":"a"}\x0c',
    "a zero byte": b'{"type":"a"}\x00',
    "a trailing comma": b'{"type":"a",}',
    "a comment": b'{"type":"a"/* no */}',
    "not a number": b'{"type":"a","x":NaN}',
    "infinity": b'{"type":"a","x":Infinity}',
    "a leading zero": b'{"type":"a","x":01}',
    "a bare point": b'{"type":"a","x":1.}',
    "an unknown escape": b'{"type":"a","x":"\\x"}',
    "a raw control character": b'{"type":"a","x":"\x01"}',
    "half an escape": b'{"type":"a","x":"\\ud8',
    "a half and then nonsense": b'{"type":"a","x":"\\ud800"]',
    "no end": b'{"type":"a"',
    "single quotes": b"{'type':'a'}",
    "a bad byte in what is skipped": b'{"type":"a","x":"\xff"}',
    "a bad byte in a name": b'{"type":"a","\xff":1}',
    "an encoded surrogate": b'{"type":"a","x":"\xed\xa0\x80"}',
    "an overlong form": b'{"type":"a","x":"\xc0\x80"}',
    "utf-16": '{"type":"a"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"type":"a"}',
    "endless nesting": b'{"type":"a","x":' + b"[" * 1_000_000,
    "deep nesting": b'{"type":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep nesting of objects": b'{"type":"a","x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "a type with a space": b'{"type":"a b"}',
    "a type with a zero": b'{"type":"a\\u0000"}',
    "a type of half a pair": b'{"type":"\\ud800"}',
    "a type beyond ascii": '{"type":"rechnung.bezählt"}'.encode(),
    "a type that is too long": b'{"type":"' + b"a" * 129 + b'"}',
    "a type with an empty segment": b'{"type":"a..b"}',
}

WITHOUT_A_TYPE = {
    "no members": b"{}",
    "none at the top": b'{"x":{"type":"a"}}',
    "a number": b'{"type":1}',
    "null": b'{"type":null}',
    "an object": b'{"type":{"a":"b"}}',
    "an empty one": b'{"type":""}',
}


def code_of(refused: pytest.ExceptionInfo[Refused]) -> ErrorCode:
    return refused.value.problem.code


@pytest.mark.parametrize("payload", TAKEN.values(), ids=TAKEN)
def test_json_that_readers_stumble_over_is_taken(payload: bytes) -> None:
    assert read_type({}, payload) == "a"


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_event_is_malformed(payload: bytes) -> None:
    with pytest.raises(Refused) as refused:
        read_type({}, payload)
    assert code_of(refused) is ErrorCode.MALFORMED
    assert refused.value.problem.detail.isprintable()


@pytest.mark.parametrize("payload", WITHOUT_A_TYPE.values(), ids=WITHOUT_A_TYPE)
def test_an_event_without_a_type_says_how_to_give_it_one(payload: bytes) -> None:
    with pytest.raises(Refused) as refused:
        read_type({}, payload)
    assert code_of(refused) is ErrorCode.TYPE_MISSING
    assert "Relay-Event-Type" in refused.value.problem.detail


types = st.lists(
    st.tuples(
        st.sampled_from([b"type", b"\\u0074ype", b"x"]),
        st.sampled_from(
            [b'"a"', b'"b"', b'"c d"', b'""', b"5", b"9" * 5000, b"null", b'{"type":"a"}', b'["a"]', b'"\\ud800"']
        ),
    ),
    max_size=4,
)


@example([(b"type", b"5"), (b"type", b'"b"')])
@example([(b"type", b'"a"'), (b"type", b"5")])
@example([(b"type", b'"bad type"'), (b"type", b'"b"')])
@given(types)
def test_of_a_repeated_type_the_last_one_counts_as_for_most_readers(members: list[tuple[bytes, bytes]]) -> None:
    """Whatever stood there before: Python's own reader says which one it is."""
    payload = b"{%b}" % b",".join(b'"%b": %b' % each for each in members)
    last = json.loads(payload, parse_int=str_of_no_type).get("type")
    if last in ("a", "b"):
        assert read_type({}, payload) == last
        return
    with pytest.raises(Refused) as refused:
        read_type({}, payload)
    is_text = isinstance(last, str) and last != ""
    assert code_of(refused) is (ErrorCode.MALFORMED if is_text else ErrorCode.TYPE_MISSING)


def str_of_no_type(_: str) -> int:
    """Numbers of thousands of digits are none that Python converts, and none of them is a type."""
    return 0


def test_what_follows_a_type_that_is_no_text_is_still_judged() -> None:
    with pytest.raises(Refused) as refused:
        read_type({}, b'{"type":5,"x":NaN}')
    assert code_of(refused) is ErrorCode.MALFORMED


@pytest.mark.parametrize("payload", [b"", b"\x00\xff", b"{", b'{"type":"b"}'])
def test_the_headers_type_counts_whatever_the_payload_is(payload: bytes) -> None:
    assert read_type({b"relay-event-type": b"a"}, payload) == "a"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"", ErrorCode.TYPE_MISSING),
        (b"a b", ErrorCode.MALFORMED),
        (b"a, b", ErrorCode.MALFORMED),
        (b"\xe9", ErrorCode.MALFORMED),
    ],
)
def test_a_bad_type_in_the_header_is_refused(value: bytes, code: ErrorCode) -> None:
    with pytest.raises(Refused) as refused:
        read_type({b"relay-event-type": value}, b"{}")
    assert code_of(refused) is code


def test_a_megabyte_of_backslashes_is_read_in_no_time() -> None:
    payload = b'{"type":"a","x":"' + b"\\\\" * 500_000 + b'\\ud800"}'
    assert read_type({}, payload) == "a"


any_text = st.text(st.characters(exclude_categories=()))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(any_text, json_values, max_size=5))
def test_every_object_with_a_type_is_an_event(members: dict[str, object]) -> None:
    assert read_type({}, json.dumps({**members, "type": "a.b"}).encode()) == "a.b"


@given(st.dictionaries(st.text(), st.text(), max_size=5))
def test_characters_need_no_escape(members: dict[str, str]) -> None:
    assert read_type({}, json.dumps({**members, "type": "a.b"}, ensure_ascii=False).encode()) == "a.b"


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: b'{"type":"a","x":"' + tail))
def test_whatever_the_bytes_are_they_have_a_type_or_are_refused(payload: bytes) -> None:
    with contextlib.suppress(Refused):
        read_type({}, payload)


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: b'{"type":"a","x":"' + tail + b'"}'))
def test_what_is_accepted_other_readers_accept_too(payload: bytes) -> None:
    try:
        read_type({}, payload)
    except Refused:
        return
    assert isinstance(json.loads(payload.decode()), dict)


pieces = st.sampled_from(["\\ud800", "\\uDBff", "\\udc00", "\\uDFFF", "\\\\", "a", "\\n", "\\u0041", "ud800", "é"])


@given(st.lists(pieces, max_size=8).map("".join))
def test_only_halves_that_stand_alone_are_replaced_and_every_byte_keeps_its_place(text: str) -> None:
    shown = without_halves(f'"{text}"'.encode())
    assert len(shown) == len(f'"{text}"'.encode())
    meant = json.loads(f'"{text}"')
    assert json.loads(shown) == "".join("\uffff" if "\ud800" <= each <= "\udfff" else each for each in meant)
