"""One trace from a sender through Relay to a receiver, by real processes and a real collector."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.collector import Collector, attributes
from tests.support.installation import Installation, Service, add_endpoint, api, eventually, metrics, post
from tests.support.receiver import Receiver

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
WITHIN = 60.0
KINDS = {
    "server": Span.SPAN_KIND_SERVER,
    "producer": Span.SPAN_KIND_PRODUCER,
    "consumer": Span.SPAN_KIND_CONSUMER,
    "client": Span.SPAN_KIND_CLIENT,
}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture
def services(installation: Installation, collector: Collector) -> tuple[Service, Service]:
    installation.environment["RELAY_OTLP_ENDPOINT"] = collector.url
    return installation.gateway(), installation.dispatcher()


def by_kind(spans: list[Span]) -> dict[str, Span]:
    """One span of each kind."""
    found = {name: [span for span in spans if span.kind == kind] for name, kind in KINDS.items()}
    assert {name: len(each) for name, each in found.items()} == dict.fromkeys(KINDS, 1)
    return {name: each[0] for name, each in found.items()}


async def test_a_senders_trace_goes_through_relay_to_the_receiver(
    services: tuple[Service, Service], receiver: Receiver, collector: Collector
) -> None:
    gateway, dispatcher = services
    add_endpoint(gateway, receiver.url("/ok"), name="ledger")
    receipt = post(gateway, b'{"type": "invoice.paid"}', traceparent=f"00-{TRACE}-{SPAN}-01").json()
    (arrival,) = await receiver.arrive(1, WITHIN)
    assert gateway.stop() == dispatcher.stop() == 0

    spans = by_kind(collector.until(4))
    assert {span.trace_id.hex() for span in spans.values()} == {TRACE}
    assert [spans[name].parent_span_id.hex() for name in ("server", "producer", "consumer", "client")] == [
        SPAN,
        spans["server"].span_id.hex(),
        spans["producer"].span_id.hex(),
        spans["consumer"].span_id.hex(),
    ]
    assert [link.span_id for link in spans["consumer"].links] == [spans["producer"].span_id]
    carried = dict(arrival.headers)["traceparent"]
    assert carried == f"00-{TRACE}-{spans['client'].span_id.hex()}-01"
    assert attributes(spans["consumer"])["relay.delivery.id"] == receipt["deliveries"][0]["id"]
    assert attributes(spans["producer"])["relay.receipt.id"] == receipt["receipt_id"]
    assert {resource["service.name"] for resource in collector.resources} == {"relay-gateway", "relay-dispatcher"}
    lines = [json.loads(line) for line in dispatcher.log.read_text().splitlines()]
    (ended,) = [line for line in lines if line["event"] == "delivery_acked"]
    assert (ended["trace_id"], ended["delivery_id"]) == (TRACE, receipt["deliveries"][0]["id"])


async def test_what_no_sender_traces_is_traced_from_here_on(
    services: tuple[Service, Service], receiver: Receiver, collector: Collector
) -> None:
    gateway, _ = services
    add_endpoint(gateway, receiver.url("/ok"), name="ledger")
    with api(gateway) as client:
        answer = client.post("/v1/events/batch", json=[{"type": "a", "payload": 1}, {"type": "b", "payload": 2}])
    assert answer.status_code == 202
    arrivals = await receiver.arrive(2, WITHIN)
    spans = collector.until(6)
    (producer,) = [span for span in spans if span.kind == Span.SPAN_KIND_PRODUCER]
    assert attributes(producer)["messaging.batch.message_count"] == 2
    assert {span.trace_id for span in spans} == {producer.trace_id}
    links = [link.span_id for span in spans if span.kind == Span.SPAN_KIND_CONSUMER for link in span.links]
    assert links == [producer.span_id] * 2
    requests = {span.span_id.hex() for span in spans if span.kind == Span.SPAN_KIND_CLIENT}
    assert {dict(each.headers)["traceparent"].split("-")[2] for each in arrivals} == requests


async def test_a_refused_request_has_a_span_and_publishes_nothing(
    services: tuple[Service, Service], collector: Collector
) -> None:
    gateway, _ = services
    assert post(gateway, b"no json").status_code == 400
    (span,) = collector.until(1)
    assert (span.kind, attributes(span)["http.response.status_code"]) == (Span.SPAN_KIND_SERVER, 400)


async def test_a_collector_that_is_away_delays_neither_deliveries_nor_the_end_and_is_told(
    installation: Installation, receiver: Receiver
) -> None:
    installation.environment["RELAY_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
    gateway, dispatcher = installation.gateway(), installation.dispatcher()
    add_endpoint(gateway, receiver.url("/ok"), name="ledger")
    assert post(gateway, b'{"type": "invoice.paid"}').status_code == 202
    await receiver.arrive(1, WITHIN)

    async def counted() -> bool:
        return metrics(dispatcher)["relay_spans_dropped_total"] == 2

    await eventually(counted, WITHIN, "the spans of the attempt are counted")
    assert gateway.stop() == dispatcher.stop() == 0
    assert '"event":"spans_dropped"' in dispatcher.log.read_text()
