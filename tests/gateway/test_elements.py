"""Claims about how the elements of a batch are read, and which bytes their payloads are."""

from __future__ import annotations

import contextlib
import json
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay.gateway.elements import MOST_EVENTS, Element, read_elements
from relay.web.problems import ErrorCode, Problem, Refused
from tests.gateway.test_payload import any_text, json_values, str_of_no_type

LIMIT = 1000

TraceFunction = Callable[[FrameType, str, Any], Any]

PAYLOADS = {
    "an object with names in no order": b'{"b":1,"a":2}',
    "names that repeat": b'{"d":1,"d":2}',
    "odd spacing": b'{ "a" :\t1 ,\r\n "b":[ ] }',
    "numbers beyond every float": b"[1.0, 1e400, -0.0, 1234567890123456789012345]",
    "escapes": b'"\\u0000\\/\\u00e9\\ud83d\\ude00"',
    "halves of surrogate pairs": b'{"a":"\\ud800","\\uDC00":"\\uDFFF\\ud800x"}',
    "a half behind backslashes": b'"\\\\\\\\\\ud800\\\\ud800"',
    "brackets and quotes inside of text": b'"]},\\"payload\\":[{"',
    "text beyond ASCII": '"é😀\u2028"'.encode(),
    "null": b"null",
    "a number": b"7",
    "nothing in it": b"{}",
}


def element(payload: bytes, *, before: bytes = b"", after: bytes = b"") -> bytes:
    return b'{"type":"a"%b,"payload": %b %b}' % (before, payload, after)


def payloads(elements: list[Element | Problem]) -> list[bytes]:
    return [each.payload if isinstance(each, Element) else str(each.code).encode() for each in elements]


def code_of(body: bytes, limit: int = LIMIT) -> ErrorCode | None:
    (only,) = read_elements(b"[%b]" % body, limit)
    return only.code if isinstance(only, Problem) else None


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_a_payload_is_the_exact_bytes_of_its_slice(payload: bytes) -> None:
    assert payloads(read_elements(b"[%b]" % element(payload), LIMIT)) == [payload]


def test_all_payloads_of_one_array_are_their_slices() -> None:
    several = list(PAYLOADS.values())
    body = b" [\n" + b" ,\t".join(map(element, several)) + b"\r] "
    assert payloads(read_elements(body, LIMIT)) == several


def test_a_slice_is_found_whatever_stands_around_it() -> None:
    half = b'"\\ud800"'
    misleading = b',"event_id":"payload","\\u0070ayload":[{"payload":1}, "\\ud800"],"payload":7'
    body = b"[%b,%b]" % (element(half, before=misleading), element(half, after=b',"payl\\u006fad":{"x":\\ud8ab}'))
    with pytest.raises(Refused):
        read_elements(body, LIMIT)
    body = b"[%b,%b]" % (element(half, before=misleading), element(half, after=b',"payl\\u006fad":{"x":"\\ud8ab"}'))
    assert payloads(read_elements(body, LIMIT)) == [half, b'{"x":"\\ud8ab"}']


def test_a_half_in_one_element_changes_nothing_of_the_others() -> None:
    body = b'[7,{"type":"\\ud800"},%b,%b]' % (element(b'"\\ud83d\\ude00"'), element(b'"\\ud800"'))
    assert payloads(read_elements(body, LIMIT)) == [b"malformed", b"malformed", b'"\\ud83d\\ude00"', b'"\\ud800"']


def test_an_integer_of_thousands_of_digits_beside_a_half_is_kept() -> None:
    payload = b'["\\ud800",%b]' % (b"9" * 6000)
    assert payloads(read_elements(b"[%b]" % element(payload), 10_000)) == [payload]


def test_an_element_says_type_name_and_payload() -> None:
    read = read_elements(b'[{"payload":{"type":"b"},"event_id":"order-17","type":"a"}]', LIMIT)
    assert read == [Element("a", "order-17", b'{"type":"b"}')]
    assert read_elements(b'[{"type":"a","payload":1}]', LIMIT) == [Element("a", None, b"1")]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"7", "malformed"),
        (b"null", "malformed"),
        (b"[]", "malformed"),
        (b"{}", "type_missing"),
        (b'{"payload":{"type":"a"}}', "type_missing"),
        (b'{"type":7,"payload":1}', "type_missing"),
        (b'{"type":null,"payload":1}', "type_missing"),
        (b'{"type":"","payload":1}', "type_missing"),
        (b'{"type":"a b","payload":1}', "malformed"),
        (b'{"type":"a"}', "malformed"),
        (b'{"type":"a","payload":1,"id":"x"}', "malformed"),
        (b'{"type":"a","payload":1,"Event_id":"x"}', "malformed"),
        (b'{"type":"a","payload":1,"event_id":7}', "malformed"),
        (b'{"type":"a","payload":1,"event_id":null}', "malformed"),
        (b'{"type":"a","payload":1,"event_id":""}', "malformed"),
        (b'{"type":"a","payload":1,"event_id":"a b"}', "malformed"),
        (b'{"type":"a","payload":1,"event_id":"\xc3\xa9"}', "malformed"),
        (b'{"type":"a","payload":1,"event_id":"\\ud800"}', "malformed"),
        (b'{"type":"a","payload":1,"event_id":"%b"}' % (b"x" * 256), "malformed"),
        (b'{"type":"a","payload":"%b"}' % (b"x" * (LIMIT - 1)), "payload_too_large"),
    ],
)
def test_what_is_wrong_with_an_element_is_said_of_that_one(body: bytes, code: str) -> None:
    first, bad, last = read_elements(b"[%b,%b,%b]" % (element(b"1"), body, element(b"2")), LIMIT)
    assert isinstance(bad, Problem)
    assert bad.code == code
    assert bad.detail.isprintable()
    assert payloads([first, last]) == [b"1", b"2"]


def test_an_unknown_member_is_named() -> None:
    (bad,) = read_elements(b'[{"type":"a","payload":1,"idempotency_key":"x"}]', LIMIT)
    assert isinstance(bad, Problem)
    assert "'idempotency_key'" in bad.detail


def test_names_and_payloads_of_exactly_the_limits_are_taken() -> None:
    assert code_of(b'{"type":"a","payload":1,"event_id":"%b"}' % (b"x" * 255)) is None
    assert code_of(b'{"type":"a","payload":"%b"}' % (b"x" * (LIMIT - 2))) is None


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"type":"a"}', b"7", b"null", b"[", b"[,]", b"[1 2]", b"[1]x", b'["\xff"]', b"[" * 100_000]
)
def test_what_is_no_array_is_no_batch(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        read_elements(body, LIMIT)
    assert refused.value.problem.code is ErrorCode.MALFORMED


def test_more_than_a_thousand_are_too_many_and_a_thousand_are_not() -> None:
    assert len(read_elements(b"[%b]" % b",".join([element(b"1")] * MOST_EVENTS), LIMIT)) == MOST_EVENTS
    with pytest.raises(Refused) as refused:
        read_elements(b"[%b]" % b",".join([b"1"] * (MOST_EVENTS + 1)), LIMIT)
    assert refused.value.problem.code is ErrorCode.PAYLOAD_TOO_LARGE
    assert refused.value.problem.extra == {"limit_events": MOST_EVENTS}


def test_far_too_many_elements_are_refused_without_an_object_for_each() -> None:
    body = b"[%b1]" % (b"1," * 500_000)
    tracemalloc.start()
    try:
        with pytest.raises(Refused) as refused:
            read_elements(body, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.problem.code is ErrorCode.PAYLOAD_TOO_LARGE
    assert peak < 1_000_000


BLANKS = b" " * 100_000


@pytest.mark.parametrize(
    "body",
    [
        b"[%b%b]" % (BLANKS, element(b'"\\ud800"')),
        b"[%b]" % element(b'"\\ud800"', before=BLANKS),
        b"[%b,%b%b]" % (element(b'"\\ud83d\\ude00"'), BLANKS, element(b"1")),
    ],
    ids=["between elements", "inside of one", "beside a whole pair"],
)
def test_white_space_is_passed_as_a_run_and_not_byte_by_byte(body: bytes) -> None:
    lines = 0

    def count(_: FrameType, event: str, __: object) -> TraceFunction:
        nonlocal lines
        lines += event == "line"
        return count

    traced = sys.gettrace()
    sys.settrace(count)
    try:
        elements = read_elements(body, LIMIT)
    finally:
        sys.settrace(traced)
    assert 0 < lines < len(BLANKS) // 10
    assert [each for each in elements if isinstance(each, Problem)] == []


def test_an_empty_array_has_no_elements() -> None:
    assert read_elements(b" [ ] ", LIMIT) == []


@given(st.lists(st.tuples(json_values, st.booleans()), max_size=5))
def test_every_value_is_kept_as_it_was_written(values: list[tuple[object, bool]]) -> None:
    written = [json.dumps(value, indent=2 if wide else None).encode() for value, wide in values]
    body = b"[%b]" % b",".join(map(element, written))
    assert payloads(read_elements(body, 10_000)) == written


@given(st.lists(st.dictionaries(any_text | st.sampled_from(["type", "event_id", "payload"]), json_values, max_size=4)))
def test_whatever_the_elements_are_each_is_an_event_or_a_problem(objects: list[dict[str, object]]) -> None:
    assert len(read_elements(json.dumps(objects).encode(), LIMIT)) == len(objects)


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: b'[{"type":"a","payload":"\\ud800' + tail))
def test_whatever_the_bytes_are_they_are_a_batch_or_refused(body: bytes) -> None:
    with contextlib.suppress(Refused):
        read_elements(body, LIMIT)


values = st.sampled_from([b"12", b"1", b"null", b'"a"', b'"\\ud800"', b'"\\ud801"', b'["\\ud800"]', b'[["\\ud800"],1]'])
members = st.lists(st.tuples(st.sampled_from([b"payload", b"payl\\u006fad"]), values), min_size=1, max_size=4)


@given(st.lists(members, min_size=1, max_size=3), st.booleans())
def test_of_payloads_that_repeat_the_last_one_is_the_payload(
    repeated: list[list[tuple[bytes, bytes]]], last: bool
) -> None:
    def written(several: list[tuple[bytes, bytes]]) -> bytes:
        parts = [b'"%b" : %b' % each for each in several]
        return b"{%b}" % b" ,".join([*parts, b'"type":"a"'] if last else [b'"type":"a"', *parts])

    body = b"[%b]" % b",".join(map(written, repeated))
    assert payloads(read_elements(body, LIMIT)) == [several[-1][1] for several in repeated]


names = st.sampled_from([b"type", b"t\\u0079pe", b"event_id"])
texts = st.sampled_from([b'"a"', b'"b"', b'"c d"', b'""', b"5", b"9" * 5000, b"null", b'["a"]', b'"\\ud800"'])


@example([(b"type", b"5"), (b"type", b'"b"')])
@example([(b"type", b'"a"'), (b"type", b"5")])
@example([(b"type", b'"a"'), (b"event_id", b"5"), (b"event_id", b'"b"')])
@given(st.lists(st.tuples(names, texts), max_size=5))
def test_of_every_member_that_repeats_the_last_one_counts(members: list[tuple[bytes, bytes]]) -> None:
    """A type and a name, as Python's own reader finds them, whatever stood there before."""
    body = b"{%b}" % b",".join(b'"%b": %b' % each for each in [*members, (b"payload", b"{}")])
    read = json.loads(body, parse_int=str_of_no_type)
    (found,) = read_elements(b"[%b]" % body, LIMIT)
    if read.get("type") in ("a", "b") and read.get("event_id", "a") in ("a", "b"):
        assert found == Element(read["type"], read.get("event_id"), b"{}")
    else:
        assert isinstance(found, Problem)
        is_missing = not isinstance(read.get("type"), str) or read["type"] == ""
        assert (found.code is ErrorCode.TYPE_MISSING) is is_missing
