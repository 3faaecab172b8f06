"""CloudEvents with the SDK of PyPI on both sides of Relay: what it emits is taken, what Relay delivers it reads back.

And the trace that an event came with, as a receiver sees it on each attempt.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings import http
from cloudevents.core.bindings.http import HTTPMessage
from cloudevents.core.v1.event import CloudEvent

from relay.domain.trace import read_traceparent
from relay.testkit.arrivals import Arrival
from tests.support.gate import Gate
from tests.support.installation import Installation, Service, add_endpoint, api
from tests.support.receiver import Receiver

DELIVERED_SECONDS = 30.0

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"

ATTRIBUTES: dict[str, Any] = {
    "type": "com.example.invoice.paid",
    "source": "https://example.com/a%20b?x=1#y",
    "id": 'Euro "€" 100% 😀',
    "subject": "caf\u00e9 / %41",
    "time": datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC),
    "dataschema": "https://example.com/schema.json",
    "myextension": "a, b; c",
}
EVENTS = {
    "json": CloudEvent({**ATTRIBUTES, "datacontenttype": "application/json"}, {"amount": 1.0, "text": "é\u2028"}),
    "text": CloudEvent({**ATTRIBUTES, "datacontenttype": "text/plain; charset=utf-8"}, "Grüße"),
    "bytes": CloudEvent({**ATTRIBUTES, "datacontenttype": "application/octet-stream"}, bytes(range(256))),
    "no more than is required": CloudEvent(
        {"type": "a", "source": "/a", "id": "1", "datacontenttype": "application/json"}, {}
    ),
}
EMITTERS = {"binary": http.to_binary_event, "structured": http.to_structured_event}


def post(service: Service, message: HTTPMessage, **headers: str) -> dict[str, Any]:
    with api(service) as client:
        reply = client.post("/v1/events", content=message.body, headers={**message.headers, **headers})
    assert reply.status_code == 202, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def as_received(arrival: Arrival) -> CloudEvent:
    """What the SDK makes of a delivery, by the mode that its content type names."""
    assert arrival.body is not None
    message = HTTPMessage(dict(arrival.headers), arrival.body)
    is_structured = (arrival.header("content-type") or "").startswith("application/cloudevents")
    read = (http.from_structured_event if is_structured else http.from_binary_event)(message)
    assert isinstance(read, CloudEvent)
    return read


@pytest.mark.usefixtures("patient")
async def test_what_the_sdk_emits_in_both_modes_it_reads_from_the_delivery_as_it_was(
    installation: Installation, receiver: Receiver
) -> None:
    gateway = installation.gateway()
    installation.dispatcher()
    add_endpoint(gateway, receiver.url())
    sent: dict[str, tuple[CloudEvent, HTTPMessage]] = {}
    for number, (event, emit) in enumerate((event, emit) for event in EVENTS.values() for emit in EMITTERS.values()):
        # the same source and id in another mode would be the same request with another body
        attributes = {**event.get_attributes(), "id": f"{event.get_id()} {number}"}
        distinct = CloudEvent(attributes, event.get_data())
        message = emit(distinct)
        answer = post(gateway, message)
        assert answer["event_id"] == distinct.get_id()
        sent[answer["receipt_id"]] = (distinct, message)
        again = post(gateway, message)
        assert again == answer

    await installation.all_closed(len(sent), DELIVERED_SECONDS)
    arrived = receiver.received()
    assert len(arrived) == len(sent)
    for arrival in arrived:
        event, message = sent[arrival.header("relay-receipt-id") or ""]
        assert arrival.body == message.body
        assert arrival.header("relay-event-type") == event.get_type()
        read = as_received(arrival)
        assert read.get_attributes() == event.get_attributes()
        assert read.get_data() == event.get_data()
        came = {name: value for name, value in arrival.headers if name.startswith("ce-")}
        assert came == {name: value for name, value in message.headers.items() if name.startswith("ce-")}


@pytest.mark.usefixtures("patient")
async def test_a_trace_goes_on_in_each_attempt_with_a_parent_of_its_own(installation: Installation) -> None:
    async with Gate() as gate:
        gateway = installation.gateway()
        installation.dispatcher()
        add_endpoint(gateway, gate.url)
        post(gateway, http.to_binary_event(EVENTS["json"]), traceparent=PARENT, tracestate=STATE)
        first = await gate.visit(DELIVERED_SECONDS)
        first.answer(500)
        second = await gate.visit(DELIVERED_SECONDS)
        second.answer(200)
        await installation.all_closed(1, DELIVERED_SECONDS)

    parents = [read_traceparent(visit.headers["traceparent"]) for visit in (first, second)]
    assert [(parent.trace_id, parent.flags) for parent in parents if parent] == [(TRACE_ID, 1)] * 2
    assert len({"00f067aa0ba902b7", *(parent.parent_id for parent in parents if parent)}) == 3
    assert [visit.headers["tracestate"] for visit in (first, second)] == [STATE] * 2


@pytest.mark.usefixtures("patient")
async def test_events_of_a_batch_go_on_in_the_trace_of_their_request(
    installation: Installation, receiver: Receiver
) -> None:
    gateway = installation.gateway()
    installation.dispatcher()
    add_endpoint(gateway, receiver.url())
    payloads = [b'{ "n":1.0 }', b'"\\ud800"', b"[1e400]"]
    elements = b",".join(b'{"type":"a","event_id":"e%d","payload":%b}' % each for each in enumerate(payloads))
    headers = {"content-type": "application/json", "traceparent": PARENT, "tracestate": STATE}
    with api(gateway) as client:
        reply = client.post("/v1/events/batch", content=b"[%b]" % elements, headers=headers)
    assert reply.status_code == 202

    await installation.all_closed(3, DELIVERED_SECONDS)
    arrived = sorted(receiver.received(), key=lambda arrival: arrival.header("relay-event-id") or "")
    assert [arrival.body for arrival in arrived] == payloads
    assert {arrival.header("content-type") for arrival in arrived} == {"application/json"}
    parents = [read_traceparent(arrival.header("traceparent") or "") for arrival in arrived]
    assert {(parent.trace_id, parent.flags) for parent in parents if parent} == {(TRACE_ID, 1)}
    assert len({parent.parent_id for parent in parents if parent}) == 3
    assert {arrival.header("tracestate") for arrival in arrived} == {STATE}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("traceparent", ["00-0-0-00", f"00-{'0' * 32}-00f067aa0ba902b7-01", "ff" + PARENT[2:]])
async def test_an_invalid_trace_is_not_continued(
    installation: Installation, receiver: Receiver, traceparent: str
) -> None:
    gateway = installation.gateway()
    installation.dispatcher()
    add_endpoint(gateway, receiver.url())
    post(gateway, http.to_binary_event(EVENTS["json"]), traceparent=traceparent, tracestate=STATE)
    await installation.all_closed(1, DELIVERED_SECONDS)
    (arrival,) = receiver.received()
    parent = read_traceparent(arrival.header("traceparent") or "")
    assert parent is not None
    assert parent.trace_id not in ("0" * 32, TRACE_ID)
    assert arrival.header("tracestate") is None
