"""How attempts and requests look as OpenTelemetry spans, and their way to a collector over HTTP.

Owns the attributes, by the semantic conventions of HTTP, messaging and CloudEvents. A request that posts events is a
SERVER span, with a PRODUCER span for what it stored; each attempt is a CONSUMER span from its claim until its outcome
is recorded, and below it the CLIENT span of the request, whose id the endpoint gets as `traceparent`. An attempt goes
on in the trace of its event and links to the span that published it. Invariant: no attribute holds a credential: urls
are those that may be shown, what a sender wrote goes through `redaction`, and neither payloads nor headers nor the
texts of errors are in any span.

Importing this imports the OpenTelemetry SDK.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from relay.domain import ids
from relay.domain.attempt import AttemptFact
from relay.domain.outcome import OutcomeClass
from relay.domain.telemetry import AttemptsRecorded, RequestServed
from relay.domain.trace import TRACE_ENTROPY_BYTES, ServedTrace, TraceParent, continued, read_traceparent
from relay.metrics.redaction import redact
from relay.metrics.spans import Seen

SEND_SECONDS = 5.0
"""What one request to the collector may take, further tries included."""

PATH = "/v1/traces"

Value = str | int | float | bool
Attributes = dict[str, Value]

_NANO = 1_000_000_000
_DEFAULT_PORTS = {"http": 80, "https": 443}
_CLOUDEVENT = {
    "ce-id": "cloudevents.event_id",
    "ce-source": "cloudevents.event_source",
    "ce-specversion": "cloudevents.event_spec_version",
    "ce-type": "cloudevents.event_type",
    "ce-subject": "cloudevents.event_subject",
}


class _Shape(NamedTuple):
    """A span before it is one; times are nanoseconds since 1970."""

    name: str
    kind: SpanKind
    own: TraceParent
    parent: TraceParent | None
    began: int
    ended: int
    attributes: Attributes
    failed: bool = False
    links: Sequence[TraceParent] = ()
    events: Sequence[tuple[str, int]] = ()
    is_parent_remote: bool = True


class Collector:
    """A collector that takes OTLP over HTTP. What else is to be said to it (headers, a certificate) it reads from the
    SDK's own variables, `OTEL_EXPORTER_OTLP_*`."""

    def __init__(self, endpoint: str, *, process: str, version: str) -> None:
        base = endpoint.rstrip("/")
        self._exporter = OTLPSpanExporter(endpoint=base if base.endswith(PATH) else base + PATH, timeout=SEND_SECONDS)
        self._resource = Resource.create(
            {
                "service.name": f"relay-{process}",
                "service.version": version,
                "service.instance.id": str(os.getpid()),
                "process.pid": os.getpid(),
            }
        )
        self._scope = InstrumentationScope("relay", version)

    def send(self, seen: Sequence[Seen]) -> int:
        """Make spans and send them; answers how many were lost."""
        spans = [self._made(shape) for each in seen for shape in _shapes(each)]
        if not spans:
            return 0
        return 0 if self._exporter.export(spans) is SpanExportResult.SUCCESS else len(spans)

    def stop(self) -> None:
        """Give up what is under way."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # the SDK has no types there

    def _made(self, shape: _Shape) -> ReadableSpan:
        parent = shape.parent
        return ReadableSpan(
            shape.name,
            context=_context(shape.own, remote=False),
            parent=None if parent is None else _context(parent, remote=shape.is_parent_remote),
            resource=self._resource,
            attributes=shape.attributes,
            events=[Event(name, timestamp=at) for name, at in shape.events],
            links=[Link(_context(each, remote=True)) for each in shape.links],
            kind=shape.kind,
            status=Status(StatusCode.ERROR if shape.failed else StatusCode.UNSET),
            start_time=shape.began,
            end_time=shape.ended,
            instrumentation_scope=self._scope,
        )


def _shapes(seen: Seen) -> Iterator[_Shape]:
    match seen.happening:
        case AttemptsRecorded(attempts):
            for attempt in attempts:
                yield from _of_attempt(attempt, seen.ended_ns)
        case RequestServed(seconds, ServedTrace() as trace):
            yield from _of_served(trace, seen.ended_ns - _ns(seconds), seen.ended_ns)
        case RequestServed():
            return


def _of_served(trace: ServedTrace, began: int, ended: int) -> Iterator[_Shape]:
    attributes: Attributes = {
        "http.request.method": "POST",
        "http.route": trace.path,
        "url.scheme": trace.scheme,
        "url.path": trace.path,
        "http.response.status_code": trace.status,
    }
    failed = trace.status >= 500
    if failed:
        attributes["error.type"] = str(trace.status)
    name = f"POST {trace.path}"
    yield _Shape(name, SpanKind.SERVER, trace.server, trace.caller, began, ended, attributes, failed=failed)
    published = trace.published
    if published is None:
        return
    attributes = {
        "messaging.system": "relay",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "relay.tenant": published.tenant,
        "relay.source": published.source,
    }
    name = "publish"
    if published.event_type is None or published.event_id is None or published.receipt_id is None:
        attributes["messaging.batch.message_count"] = published.events
    else:
        name = f"publish {published.event_type}"
        attributes |= _of_event(published.event_type, published.event_id, published.forwarded)
        attributes["relay.receipt.id"] = ids.write(ids.RECEIPT, published.receipt_id)
    times = began + _ns(published.after_seconds), began + _ns(published.until_seconds)
    yield _Shape(name, SpanKind.PRODUCER, trace.producer, trace.server, *times, attributes, is_parent_remote=False)


def _of_attempt(attempt: AttemptFact, ended: int) -> Iterator[_Shape]:
    published = _published(attempt.forwarded)
    request = continued(published, attempt.trace_entropy or os.urandom(TRACE_ENTROPY_BYTES), roots_sampled=True)
    if not request.is_sampled:
        return
    delivery = TraceParent(request.trace_id, os.urandom(8).hex(), request.flags)
    landed = ended - _ns(attempt.persist_seconds)
    launched = landed - _ns(attempt.send_seconds)
    claimed = launched - _ns(attempt.gate_seconds)
    yield _Shape(
        f"deliver {attempt.event_type}",
        SpanKind.CONSUMER,
        delivery,
        published,
        claimed - _ns(attempt.claim_seconds),
        ended,
        _of_delivery(attempt),
        failed=attempt.outcome_class is not OutcomeClass.SUCCESS,
        links=() if published is None else (published,),
        events=(("claimed", claimed), ("sent", launched), ("answered", landed)),
    )
    if attempt.trace_entropy:
        status = attempt.status_code
        yield _Shape(
            "POST",
            SpanKind.CLIENT,
            request,
            delivery,
            launched,
            landed,
            _of_request(attempt),
            failed=status is None or status >= 400,
            is_parent_remote=False,
        )


def _of_delivery(attempt: AttemptFact) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "relay",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": attempt.consumer,
        "relay.delivery.id": str(attempt.delivery_id),
        "relay.receipt.id": ids.write(ids.RECEIPT, attempt.receipt_id),
        "relay.tenant": attempt.tenant,
        "relay.consumer": attempt.consumer,
        "relay.attempt": attempt.attempt,
        "relay.generation": attempt.generation,
        "relay.outcome": attempt.outcome_class.value,
        "relay.claim_ms": round(attempt.claim_seconds * 1000, 3),
        "relay.gate_ms": round(attempt.gate_seconds * 1000, 3),
        "relay.send_ms": round(attempt.send_seconds * 1000, 3),
        "relay.persist_ms": round(attempt.persist_seconds * 1000, 3),
        "relay.total_ms": round(attempt.total_seconds * 1000, 3),
    }
    attributes |= _of_event(attempt.event_type, attempt.event_id, attempt.forwarded)
    if attempt.outcome_class is not OutcomeClass.SUCCESS:
        attributes["error.type"] = _error_type(attempt) or attempt.outcome_class.value
    return attributes


def _of_request(attempt: AttemptFact) -> Attributes:
    url = urlsplit(attempt.display_url)
    attributes: Attributes = {
        "http.request.method": "POST",
        "server.address": url.hostname or "",
        "server.port": url.port or _DEFAULT_PORTS.get(url.scheme, 0),
        "url.full": attempt.display_url,
    }
    if attempt.attempt > 1:
        attributes["http.request.resend_count"] = attempt.attempt - 1
    if attempt.status_code is not None:
        attributes["http.response.status_code"] = attempt.status_code
    if error := _error_type(attempt):
        attributes["error.type"] = error
    return attributes


def _of_event(event_type: str, event_id: str, forwarded: Sequence[tuple[str, str]]) -> Attributes:
    attributes: Attributes = {"messaging.destination.name": event_type, "messaging.message.id": redact(event_id)}
    for name, value in forwarded:
        if name in _CLOUDEVENT:
            attributes[_CLOUDEVENT[name]] = redact(value)
    return attributes


def _error_type(attempt: AttemptFact) -> str | None:
    """Why it failed, in a word of few: the status if that is the fault, else what happened instead of one."""
    if attempt.status_code is not None:
        return str(attempt.status_code) if attempt.status_code >= 400 else None
    return None if attempt.error_class is None else attempt.error_class.value


def _published(forwarded: Sequence[tuple[str, str]]) -> TraceParent | None:
    for name, value in forwarded:
        if name == "traceparent":
            return read_traceparent(value)
    return None


def _context(of: TraceParent, *, remote: bool) -> SpanContext:
    return SpanContext(int(of.trace_id, 16), int(of.parent_id, 16), remote, TraceFlags(of.flags))


def _ns(seconds: float) -> int:
    return int(seconds * _NANO)
