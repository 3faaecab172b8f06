"""Claims about the spans of requests, as they are told, and about what events carry on."""

from __future__ import annotations

import pytest

from relay.domain.telemetry import RequestServed
from relay.domain.trace import ServedTrace, read_traceparent
from relay.gateway.headers import TRACEPARENT
from relay.gateway.tracing import ENTROPY_BYTES, RequestTrace
from tests.gateway.world import World

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SENT = f"00-{TRACE}-{SPAN}-01"
ENTROPY = bytes(range(1, ENTROPY_BYTES + 1))
TAIL = ("tracestate", "vendor=1")


def trace_of(field: str | None) -> RequestTrace:
    return RequestTrace({} if field is None else {TRACEPARENT: field.encode()}, ENTROPY)


def served(trace: RequestTrace) -> ServedTrace:
    return trace.served("http", "/v1/events", 202)


def test_events_carry_on_the_span_that_published_them_in_the_senders_trace() -> None:
    trace = trace_of(SENT)
    ((name, carried), *others) = trace.carried((("traceparent", SENT), TAIL))
    assert (name, read_traceparent(carried), others) == ("traceparent", served(trace).producer, [TAIL])
    assert served(trace).producer.trace_id == TRACE


def test_the_spans_of_a_request_are_told_apart() -> None:
    told = served(trace_of(SENT))
    assert told.caller is not None
    assert len({told.caller.parent_id, told.server.parent_id, told.producer.parent_id}) == 3


@pytest.mark.parametrize("field", [None, "nonsense", f"00-{'0' * 32}-{SPAN}-01"])
def test_a_request_without_a_trace_begins_one_that_is_sampled(field: str | None) -> None:
    told = served(trace_of(field))
    assert (told.caller, told.server.is_sampled, told.producer.is_sampled) == (None, True, True)
    assert told.server.trace_id == told.producer.trace_id


def test_what_its_sender_does_not_want_recorded_is_carried_on_as_such() -> None:
    told = served(trace_of(SENT[:-2] + "00"))
    assert not told.server.is_sampled
    assert not told.producer.is_sampled


async def test_without_tracing_nothing_is_told_of_spans(world: World) -> None:
    await world.post(b'{"type": "invoice.paid"}', ("traceparent", SENT))
    assert [each.trace for each in world.ear.of(RequestServed)] == [None]
