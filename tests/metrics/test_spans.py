"""Claims about spans: what a collector gets, by the conventions, and that one that is away costs nothing else."""

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from uuid import UUID

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from relay.domain import telemetry as t
from relay.domain.attempt import AttemptFact
from relay.domain.delivery import DeadReason
from relay.domain.outcome import Bury, OutcomeClass, OutcomeReason, Retry
from relay.domain.trace import PublishedTrace, ServedTrace, TraceParent, continued, read_traceparent
from relay.metrics.otlp import Collector as Way
from relay.metrics.spans import MOST, SPANS_EACH, Seen, Spans
from tests.support.collector import Collector, attributes
from tests.support.facts import DELIVERY, attempt

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
ENDED = 1_800_000_000_000_000_000
TRACED = attempt()._replace(forwarded=(("traceparent", PARENT),))
WITHIN = 20.0


def spans_to(url: str) -> Spans:
    return Spans(lambda: Way(url, process="dispatcher", version="1.2.3"), clock=lambda: ENDED)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


def sent(collector: Collector, *happenings: t.Happening) -> list[Span]:
    """What a collector gets of this."""
    spans = spans_to(collector.url)
    for happening in happenings:
        spans(happening)
    spans.close(WITHIN)
    assert spans.dropped == 0
    return collector.spans


def of_kind(spans: list[Span], kind: "Span.SpanKind.ValueType") -> Span:
    (span,) = [each for each in spans if each.kind == kind]
    return span


def told(*attempts: AttemptFact) -> t.AttemptsRecorded:
    return t.attempts_recorded(attempts, 0.01)


def test_they_come_as_otlp_over_http_and_say_who_sends_them(collector: Collector) -> None:
    sent(collector, told(TRACED))
    assert collector.requests == [("/v1/traces", "application/x-protobuf")]
    assert {k: collector.resources[0][k] for k in ("service.name", "service.version")} == {
        "service.name": "relay-dispatcher",
        "service.version": "1.2.3",
    }


def test_a_collectors_whole_address_is_taken_as_it_is() -> None:
    with Collector() as collector:
        spans = spans_to(f"{collector.url}/v1/traces/")
        spans(told(TRACED))
        spans.close(WITHIN)
        assert collector.requests[0][0] == "/v1/traces"


def test_an_attempt_goes_on_in_its_events_trace_and_links_to_what_published_it(collector: Collector) -> None:
    spans = sent(collector, told(TRACED))
    delivery, request = of_kind(spans, Span.SPAN_KIND_CONSUMER), of_kind(spans, Span.SPAN_KIND_CLIENT)
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert delivery.parent_span_id.hex() == SPAN
    assert [(link.trace_id.hex(), link.span_id.hex()) for link in delivery.links] == [(TRACE, SPAN)]
    assert request.parent_span_id == delivery.span_id


def test_the_id_of_the_requests_span_is_the_one_that_the_endpoint_gets(collector: Collector) -> None:
    request = of_kind(sent(collector, told(TRACED)), Span.SPAN_KIND_CLIENT)
    outgoing = continued(read_traceparent(PARENT), TRACED.trace_entropy)
    assert (request.trace_id.hex(), request.span_id.hex()) == (outgoing.trace_id, outgoing.parent_id)


def test_an_event_without_a_trace_has_one_of_its_own(collector: Collector) -> None:
    spans = sent(collector, told(attempt()))
    delivery = of_kind(spans, Span.SPAN_KIND_CONSUMER)
    assert (delivery.parent_span_id, list(delivery.links)) == (b"", [])
    assert {span.trace_id for span in spans} == {attempt().trace_entropy[:16]}


def test_what_its_sender_does_not_want_recorded_is_not(collector: Collector) -> None:
    unwanted = TRACED._replace(forwarded=(("traceparent", PARENT[:-2] + "00"),))
    assert sent(collector, told(unwanted)) == []


def test_a_request_is_a_client_span_by_the_conventions_of_http(collector: Collector) -> None:
    request = of_kind(sent(collector, told(TRACED)), Span.SPAN_KIND_CLIENT)
    assert (request.name, request.status.code) == ("POST", Status.STATUS_CODE_UNSET)
    assert attributes(request) == {
        "http.request.method": "POST",
        "server.address": "example.test",
        "server.port": 443,
        "url.full": "https://example.test/hook?token=***",
        "http.response.status_code": 200,
        "http.request.resend_count": 1,
    }


@pytest.mark.parametrize(("status", "error"), [(404, "404"), (503, "503"), (None, "connect_timeout")])
def test_a_request_that_failed_says_by_what(collector: Collector, status: int | None, error: str) -> None:
    failed = attempt(
        verdict=Retry(1.0, OutcomeReason.SERVER_ERROR), outcome=OutcomeClass.RETRYABLE, status=status, delivery=None
    )
    request = of_kind(sent(collector, told(failed)), Span.SPAN_KIND_CLIENT)
    assert (request.status.code, attributes(request)["error.type"]) == (Status.STATUS_CODE_ERROR, error)


def test_a_delivery_is_a_consumer_span_with_its_ids_and_how_it_ended(collector: Collector) -> None:
    dead = TRACED._replace(
        outcome_class=OutcomeClass.PERMANENT,
        verdict=Bury(DeadReason.PERMANENT_FAILURE, OutcomeReason.REDIRECTED),
        status_code=301,
    )
    delivery = of_kind(sent(collector, told(dead)), Span.SPAN_KIND_CONSUMER)
    found = attributes(delivery)
    assert (delivery.name, delivery.status.code) == ("deliver invoice.paid", Status.STATUS_CODE_ERROR)
    assert found == {
        "messaging.system": "relay",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "process",
        "messaging.destination.name": "invoice.paid",
        "messaging.message.id": "order-7",
        "messaging.consumer.group.name": "billing",
        "relay.delivery.id": str(DELIVERY),
        "relay.receipt.id": "rcp_0000000000000000000000000000000e",
        "relay.tenant": "acct_default",
        "relay.consumer": "billing",
        "relay.attempt": 2,
        "relay.generation": 1,
        "relay.outcome": "permanent",
        "error.type": "permanent",
        "relay.claim_ms": 3.1,
        "relay.gate_ms": 0.2,
        "relay.send_ms": 20.0,
        "relay.persist_ms": 5.7,
        "relay.total_ms": 30.4,
    }


def test_the_stages_of_a_delivery_lie_behind_each_other(collector: Collector) -> None:
    spans = sent(collector, told(TRACED))
    delivery, request = of_kind(spans, Span.SPAN_KIND_CONSUMER), of_kind(spans, Span.SPAN_KIND_CLIENT)
    moments = [delivery.start_time_unix_nano, *[event.time_unix_nano for event in delivery.events]]
    moments.append(delivery.end_time_unix_nano)
    stages = [round((after - before) / 1e6, 3) for before, after in itertools.pairwise(moments)]
    assert stages == [3.1, 0.2, 20.0, 5.7]
    assert [event.name for event in delivery.events] == ["claimed", "sent", "answered"]
    assert (request.start_time_unix_nano, request.end_time_unix_nano) == (moments[2], moments[3])
    assert moments[-1] == ENDED


def test_what_was_never_sent_has_no_request(collector: Collector) -> None:
    unsent = TRACED._replace(trace_entropy=b"", status_code=None)
    assert [span.kind for span in sent(collector, told(unsent))] == [Span.SPAN_KIND_CONSUMER]


def test_a_cloudevent_has_its_attributes(collector: Collector) -> None:
    event = (("traceparent", PARENT), ("ce-id", "7"), ("ce-source", "/shop"), ("ce-type", "invoice.paid"))
    found = attributes(of_kind(sent(collector, told(TRACED._replace(forwarded=event))), Span.SPAN_KIND_CONSUMER))
    assert {name: value for name, value in found.items() if name.startswith("cloudevents")} == {
        "cloudevents.event_id": "7",
        "cloudevents.event_source": "/shop",
        "cloudevents.event_type": "invoice.paid",
    }


def test_what_looks_like_a_credential_in_what_a_sender_wrote_is_stars(collector: Collector) -> None:
    event = (("traceparent", PARENT), ("ce-id", "7"), ("ce-source", "https://user:hunter2@shop.test/?token=s3cret"))
    sent(collector, told(TRACED._replace(forwarded=event, event_id="123456:AAtesttesttesttesttesttesttesttest")))
    assert not [secret for secret in (b"hunter2", b"s3cret", b"AAtest") if secret in b"".join(collector.bodies)]
    assert b"shop.test" in b"".join(collector.bodies)


def served(status: int, published: PublishedTrace | None) -> t.RequestServed:
    caller = TraceParent(TRACE, SPAN, 1)
    trace = ServedTrace(
        "https",
        "/v1/events",
        status,
        caller,
        TraceParent(TRACE, "1" * 16, 1),
        TraceParent(TRACE, "2" * 16, 1),
        published,
    )
    return t.RequestServed(0.010, trace)


def test_a_request_that_posts_an_event_is_a_server_span_around_a_producer_span(collector: Collector) -> None:
    published = PublishedTrace(0.002, 0.009, 1, "acct_default", "shop", "invoice.paid", "order-7", UUID(int=14))
    spans = sent(collector, served(202, published))
    server, producer = of_kind(spans, Span.SPAN_KIND_SERVER), of_kind(spans, Span.SPAN_KIND_PRODUCER)
    assert (server.name, server.parent_span_id.hex(), server.span_id.hex()) == ("POST /v1/events", SPAN, "1" * 16)
    assert (server.start_time_unix_nano, server.end_time_unix_nano) == (ENDED - 10_000_000, ENDED)
    assert attributes(server) == {
        "http.request.method": "POST",
        "http.route": "/v1/events",
        "url.scheme": "https",
        "url.path": "/v1/events",
        "http.response.status_code": 202,
    }
    assert (producer.name, producer.parent_span_id.hex()) == ("publish invoice.paid", "1" * 16)
    assert (producer.start_time_unix_nano, producer.end_time_unix_nano) == (ENDED - 8_000_000, ENDED - 1_000_000)
    assert attributes(producer) == {
        "messaging.system": "relay",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "invoice.paid",
        "messaging.message.id": "order-7",
        "relay.receipt.id": "rcp_0000000000000000000000000000000e",
        "relay.tenant": "acct_default",
        "relay.source": "shop",
    }


def test_a_batch_is_one_producer_span_that_says_of_how_many(collector: Collector) -> None:
    spans = sent(collector, served(202, PublishedTrace(0.0, 0.01, 7, "acct_default", "shop")))
    assert attributes(of_kind(spans, Span.SPAN_KIND_PRODUCER))["messaging.batch.message_count"] == 7


@pytest.mark.parametrize(("status", "failed"), [(422, False), (503, True)])
def test_only_a_fault_of_this_side_is_an_error_of_a_server(collector: Collector, status: int, failed: bool) -> None:
    (server,) = sent(collector, served(status, None))
    assert (server.status.code == Status.STATUS_CODE_ERROR) == failed


def test_a_collector_that_is_away_costs_spans_and_nothing_else() -> None:
    spans = spans_to("http://127.0.0.1:1")
    began = time.perf_counter()
    for _ in range(1000):
        spans(told(*[TRACED] * 20))
    assert time.perf_counter() - began < 5
    assert spans.dropped >= (20_000 - MOST) * SPANS_EACH
    spans.close(0.5)
    assert spans.dropped == 20_000 * SPANS_EACH
    assert time.perf_counter() - began < 10


def test_a_collector_that_refuses_has_its_spans_counted() -> None:
    with Collector(status=400) as collector:
        spans = spans_to(collector.url)
        spans(told(TRACED))
        spans.close(WITHIN)
        assert (collector.spans, spans.dropped) == ([], 2)


def test_the_end_does_not_wait_for_a_collector_that_says_nothing() -> None:
    with Collector(silent=True) as collector:
        spans = spans_to(collector.url)
        spans(told(TRACED))
        collector.until_asked()
        began = time.perf_counter()
        spans.close(0.3)
        assert time.perf_counter() - began < 3
        assert spans.dropped == 2


class Slow:
    """A way that loses everything, once it is let."""

    def __init__(self) -> None:
        self.asked, self.let = threading.Event(), threading.Event()
        self.by: threading.Thread | None = None

    def send(self, seen: Sequence[Seen]) -> int:
        """Wait, and lose what came."""
        self.by = threading.current_thread()
        self.asked.set()
        self.let.wait(WITHIN)
        return len(seen) * SPANS_EACH

    def stop(self) -> None:
        """Stop nothing."""


def test_what_the_end_gave_up_is_counted_once_though_its_sending_ends_later() -> None:
    way = Slow()
    spans = Spans(lambda: way)
    spans(told(TRACED))
    assert way.asked.wait(WITHIN)
    spans.close(0.0)
    way.let.set()
    assert way.by is not None
    way.by.join(WITHIN)
    assert spans.dropped == 2


def test_what_comes_after_the_end_is_counted_too(collector: Collector) -> None:
    spans = spans_to(collector.url)
    spans.close(WITHIN)
    spans(told(TRACED))
    assert spans.dropped == 2


def test_what_happens_otherwise_makes_no_span(collector: Collector) -> None:
    assert sent(collector, t.RequestServed(0.1), t.LeasesReaped(1), t.attempts_recorded([], 0.0)) == []


def test_nothing_of_opentelemetry_is_imported_where_there_is_no_collector() -> None:
    program = (
        "import sys, relay.app.gateway, relay.app.dispatcher, relay.cli.main;"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter',"
        " 'google.protobuf', 'requests', 'relay.metrics.otlp'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
