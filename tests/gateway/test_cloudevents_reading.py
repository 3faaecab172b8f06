"""Claims about how a CloudEvent is read from a request: what is taken, and what is said of what is not."""

from __future__ import annotations

import json

import pytest

from relay.domain.cloudevents import CloudEvent
from relay.gateway.cloudevents import MOST_HEADER_BYTES, Mode, Read, read_cloudevent, read_mode
from relay.gateway.headers import read_headers
from relay.web.problems import ErrorCode, Refused

LEAST = {"ce-specversion": "1.0", "ce-id": "A-1", "ce-source": "/billing", "ce-type": "invoice.paid"}
MEMBERS: dict[str, object] = {"specversion": "1.0", "id": "A-1", "source": "/billing", "type": "invoice.paid"}
EVENT = CloudEvent("A-1", "/billing", "invoice.paid")


def lines(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]


def binary(changed: dict[str, str | None]) -> Read:
    """Read one in the binary mode with these headers changed; None leaves one out."""
    headers = {name: value for name, value in {**LEAST, **changed}.items() if value is not None}
    return read_cloudevent(Mode.BINARY, read_headers(lines(headers)), b"")


def structured(body: bytes) -> CloudEvent:
    read = read_cloudevent(Mode.STRUCTURED, read_headers([]), body)
    assert read.forwarded == ()
    return read.event


def written(**members: object) -> bytes:
    return json.dumps({**MEMBERS, **members}).encode()


def mode_of(content_type: str, headers: dict[str, str]) -> Mode | None:
    return read_mode(read_headers(lines({"content-type": content_type, **headers})))


def test_the_mode_is_told_by_the_content_type_and_else_by_the_headers() -> None:
    assert mode_of("Application/CloudEvents+JSON ; charset=UTF-8", LEAST) is Mode.STRUCTURED
    assert mode_of("application/json", LEAST) is Mode.BINARY
    assert mode_of("application/json", {"ce-id": "A-1"}) is Mode.BINARY
    assert mode_of("application/json", {}) is None


@pytest.mark.parametrize(
    "content_type",
    [
        "application/cloudevents-batch+json",
        "application/CloudEvents-Batch+json; charset=utf-8",
        "application/cloudevents+avro",
        "application/cloudevents",
    ],
)
def test_formats_that_are_not_read_are_refused_with_what_to_do(content_type: str) -> None:
    with pytest.raises(Refused) as refused:
        mode_of(content_type, LEAST)
    assert refused.value.problem.code is ErrorCode.CONTENT_TYPE
    assert "/v1/events/batch" in refused.value.problem.detail
    assert mode_of(content_type, {"relay-event-type": "a"}) is None


def test_a_header_that_is_given_twice_is_refused() -> None:
    with pytest.raises(Refused, match="ce-id is given twice"):
        read_cloudevent(Mode.BINARY, read_headers([*lines(LEAST), (b"ce-id", b"A-1")]), b"")


def test_headers_travel_on_as_they_came() -> None:
    assert binary({"ce-subject": "Euro%20%e2%82%AC", "ce-ext": '"a b"'}) == Read(
        EVENT, (*LEAST.items(), ("ce-subject", "Euro%20%e2%82%AC"), ("ce-ext", '"a b"'))
    )


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"ce-specversion": None}, "specversion"),
        ({"ce-specversion": "0.3"}, "specversion"),
        ({"ce-id": None}, "id"),
        ({"ce-id": ""}, "id"),
        ({"ce-id": "x" * 256}, "id"),
        ({"ce-source": None}, "source"),
        ({"ce-source": "my service"}, "source"),
        ({"ce-type": None}, "type"),
        ({"ce-type": "com.example:made"}, "type"),
        ({"ce-datacontenttype": "text/plain"}, "datacontenttype"),
        ({"ce-subject": ""}, "subject"),
        ({"ce-subject": "%00"}, "subject"),
        ({"ce-subject": "%ff"}, "subject"),
        ({"ce-subject": "\xff"}, "subject"),
        ({"ce-time": "yesterday"}, "time"),
        ({"ce-dataschema": "/relative"}, "dataschema"),
        ({"ce-my-extension": "x"}, "my-extension"),
        ({"ce-my_extension": "x"}, "my_extension"),
        ({"ce-data": "x"}, "data"),
        ({"ce-": "x"}, "''"),
        ({"ce-long": "x" * MOST_HEADER_BYTES}, "headers"),
    ],
)
def test_what_is_wrong_with_a_binary_event_is_named(changed: dict[str, str | None], named: str) -> None:
    with pytest.raises(Refused) as refused:
        binary(changed)
    assert refused.value.problem.code is ErrorCode.MALFORMED
    assert named in refused.value.problem.detail
    assert refused.value.problem.detail.isprintable()


def test_a_code_in_a_uri_that_came_unencoded_is_its_own() -> None:
    assert binary({"ce-source": "/a%20b"}).event.source == "/a%20b"
    assert binary({"ce-source": "/a%2520b"}).event.source == "/a%20b"


@pytest.mark.parametrize(
    "members",
    [
        {"specversion": None},
        {"specversion": 1.0},
        {"specversion": "1.1"},
        {"id": 7.5},
        {"id": ""},
        {"source": ["/a"]},
        {"source": ""},
        {"type": None},
        {"type": "a b"},
        {"time": 1522949460},
        {"subject": ""},
        {"datacontenttype": "json"},
        {"dataschema": "a"},
        {"myExtension": "x"},
        {"ext": {"a": 1}},
        {"ext": 2**31},
        {"ext": 1.5},
        {"data": 1, "data_base64": "AA=="},
        {"data_base64": "A"},
        {"data_base64": "A A="},
        {"data_base64": "é"},
        {"data_base64": 7},
        {"data_base64": {}},
    ],
)
def test_what_is_no_structured_event_is_malformed(members: dict[str, object]) -> None:
    with pytest.raises(Refused) as refused:
        structured(written(**members))
    assert refused.value.problem.code is ErrorCode.MALFORMED
    assert refused.value.problem.detail.isprintable()


@pytest.mark.parametrize(
    "members",
    [
        {"data_base64": "AP8="},
        {"data_base64": None, "data": 1},
        {"data": None},
        {"ext": -(2**31)},
        {"ext": False},
        {"time": None},
        {"data": "\ud800"},
    ],
)
def test_what_the_format_allows_is_taken(members: dict[str, object]) -> None:
    assert structured(written(**members)) == EVENT


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"7", b"{", b"\xff", b"[" * 10_000, b'{"id":' + b"[" * 10_000, b'{"e":1e999}', b"{}x"]
)
def test_a_structured_body_that_is_no_event_is_malformed(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        structured(body)
    assert refused.value.problem.code is ErrorCode.MALFORMED


def test_an_attribute_too_large_for_a_number_is_refused() -> None:
    with pytest.raises(Refused, match="'e'"):
        structured(written(e=7).replace(b"7", b"1e99999"))


def test_a_half_of_a_surrogate_pair_in_data_changes_no_attribute() -> None:
    assert structured(written(data="\ud800", id="😀")).id == "😀"
    with pytest.raises(Refused, match="id has"):
        structured(written(id="\ud800"))


@pytest.mark.parametrize("first", [b"5", b"null", b'"bad type"', b"[]", b'"\\ud800"'])
def test_of_a_repeated_attribute_the_last_one_counts(first: bytes) -> None:
    body = written()
    for name in MEMBERS:
        assert structured(b'{"%b": %b, %b' % (name.encode(), first, body[1:])) == EVENT
        with pytest.raises(Refused):
            structured(b'%b, "%b": [] }' % (body[:-1], name.encode()))
