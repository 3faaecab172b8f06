"""Claims about the headers of an event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.gateway.headers import (
    OPAQUE,
    read_content_type,
    read_context,
    read_headers,
    read_hops,
    read_key,
)
from relay.web.problems import ErrorCode, Refused

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def headers(**given_: str) -> dict[bytes, bytes]:
    return {name.replace("_", "-").encode(): value.encode("latin-1") for name, value in given_.items()}


def code_of(refused: pytest.ExceptionInfo[Refused]) -> ErrorCode:
    return refused.value.problem.code


def test_a_repeated_header_is_read_as_one_list() -> None:
    raw = [(b"idempotency-key", b"a"), (b"x-other", b"1"), (b"idempotency-key", b"b")]
    assert read_headers(raw) == {b"idempotency-key": b"a, b"}


@pytest.mark.parametrize(("value", "hops"), [("0", 0), ("1", 1), ("8", 8), ("008", 8), ("000", 0)])
def test_up_to_eight_hops_are_taken(value: str, hops: int) -> None:
    assert read_hops(headers(relay_hops=value)) == hops


@pytest.mark.parametrize("value", ["9", "10", "0009", "99999999999999999999999999"])
def test_more_hops_are_a_loop(value: str) -> None:
    with pytest.raises(Refused) as refused:
        read_hops(headers(relay_hops=value))
    assert code_of(refused) is ErrorCode.RELAY_LOOP


@pytest.mark.parametrize("value", ["", "-1", "1.0", "one", "1, 2", "٣".encode().decode("latin-1"), "²"])
def test_hops_that_are_no_number_are_malformed(value: str) -> None:
    with pytest.raises(Refused) as refused:
        read_hops(headers(relay_hops=value))
    assert code_of(refused) is ErrorCode.MALFORMED


@pytest.mark.parametrize(("value", "key"), [("k1", "k1"), ('"k1"', "k1"), ('"a\\"b"', 'a"b'), ("x" * 255, "x" * 255)])
def test_a_key_is_read_bare_or_quoted(value: str, key: str) -> None:
    assert read_key(headers(idempotency_key=value)) == key


@pytest.mark.parametrize("value", ["", " ", "a b", '"a', '"a";x=1', "x" * 256, "é", "a, b", '"a", "b"'])
def test_what_is_no_key_is_malformed(value: str) -> None:
    with pytest.raises(Refused) as refused:
        read_key(headers(idempotency_key=value))
    assert code_of(refused) is ErrorCode.MALFORMED


@pytest.mark.parametrize("value", ["application/json", "text/csv; charset=iso-8859-1", "nonsense", "image/png"])
def test_with_the_type_in_a_header_any_content_type_is_taken(value: str) -> None:
    assert read_content_type(headers(relay_event_type="a", content_type=value)) == value


def test_bytes_without_a_content_type_are_just_bytes() -> None:
    assert read_content_type(headers(relay_event_type="a")) == OPAQUE


@pytest.mark.parametrize("value", ["é", "a\x0bb", "x" * 256])
def test_a_content_type_that_could_not_be_sent_on_is_refused(value: str) -> None:
    with pytest.raises(Refused) as refused:
        read_content_type(headers(relay_event_type="a", content_type=value))
    assert code_of(refused) is ErrorCode.CONTENT_TYPE


def test_a_content_coding_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        read_content_type(headers(content_type="application/json", content_encoding="gzip"))
    assert code_of(refused) is ErrorCode.CONTENT_TYPE
    assert (
        read_content_type(headers(content_type="application/json", content_encoding="identity")) == "application/json"
    )


def test_a_valid_trace_is_kept_with_its_state() -> None:
    kept = read_context(headers(traceparent=TRACE, tracestate="a=1 , b@x=2,,"))
    assert kept == (("traceparent", TRACE), ("tracestate", "a=1,b@x=2"))


@pytest.mark.parametrize("value", ["", TRACE.upper(), TRACE[:-1], "ff" + TRACE[2:], f"{TRACE}, {TRACE}", "é"])
def test_an_invalid_trace_is_left_out_with_its_state(value: str) -> None:
    assert read_context(headers(traceparent=value, tracestate="a=1")) == ()


def test_a_trace_of_a_later_version_is_kept_in_the_version_that_is_spoken() -> None:
    assert read_context(headers(traceparent="01" + TRACE[2:-2] + "03-what-comes")) == (
        ("traceparent", TRACE[:-2] + "03"),
    )


@pytest.mark.parametrize("value", ["A=1", "a", "a=", "a=é", "a=1;=", ",".join(f"k{n}=1" for n in range(33))])
def test_an_invalid_state_is_left_out_alone(value: str) -> None:
    assert read_context(headers(traceparent=TRACE, tracestate=value)) == (("traceparent", TRACE),)


def test_a_long_state_loses_its_long_members_first_and_then_the_last_ones() -> None:
    long, short = "z=" + "1" * 200, [f"k{n}=" + "1" * 60 for n in range(10)]
    (_, (_, state)) = read_context(headers(traceparent=TRACE, tracestate=",".join([long, *short])))
    assert state.split(",") == short[:8]
    assert len(state) <= 512


@given(st.binary(max_size=120), st.binary(max_size=700))
def test_no_trace_raises(parent: bytes, state: bytes) -> None:
    read_context({b"traceparent": parent, b"tracestate": state})
    read_context({b"traceparent": TRACE.encode(), b"tracestate": state})
