"""The ingest routes in the description of the API. The framework does not serve them, so it cannot describe them.

Owns what the description says of `POST /v1/events` and `POST /v1/events/batch`. Invariant: each code with which the
gateway refuses an event is named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relay.api.fields import A_DELIVERY, A_RECEIPT, AN_ENDPOINT, id_form
from relay.api.problem_documentation import IDEMPOTENCY_KEY, REFERENCE, REPLAY, problems
from relay.web.problems import ErrorCode

_ACCEPTED: dict[str, Any] = {
    "type": "object",
    "title": "EventAccepted",
    "description": "The receipt of an event that is durable and owed to these endpoints.",
    "required": ["receipt_id", "event_id", "journal_pos", "received_at", "durability", "deliveries"],
    "properties": {
        "receipt_id": {"type": "string", **id_form(A_RECEIPT)},
        "event_id": {
            "type": "string",
            "description": "The Idempotency-Key, a CloudEvent's id or a batch's event_id, else an id made here.",
        },
        "journal_pos": {
            "type": "string",
            "description": "The partition and the gapless number in it.",
            "pattern": "^p[0-9]{2}:[0-9]+$",
            "examples": ["p06:18442913"],
        },
        "received_at": {"type": "string", "format": "date-time"},
        "durability": {
            "type": "object",
            "description": "How many copies of the journal this answer waited for, of how many there are.",
            "required": ["confirmed", "of"],
            "properties": {"confirmed": {"type": "integer"}, "of": {"type": "integer"}},
        },
        "deliveries": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "endpoint_id", "consumer"],
                "properties": {
                    "id": {"type": "string", **id_form(A_DELIVERY)},
                    "endpoint_id": {"type": "string", **id_form(AN_ENDPOINT)},
                    "consumer": {"type": "string"},
                },
            },
        },
    },
}

_REFUSED: dict[str, Any] = {
    "type": "object",
    "title": "EventRefused",
    "description": "What kept one event of a batch out, alone.",
    "required": ["error"],
    "properties": {"error": REFERENCE},
}

SCHEMAS = {"EventAccepted": _ACCEPTED, "EventRefused": _REFUSED}

ACCEPTED = {"$ref": "#/components/schemas/EventAccepted"}

Header = tuple[str, str]
"""What it says, and an example."""

_ONE_EVENTS_HEADERS: Mapping[str, Header] = {
    "Relay-Event-Type": ("The event's type; then the body may be of any content type.", "invoice.paid"),
    "Idempotency-Key": (IDEMPOTENCY_KEY, "invoice-4711-paid"),
    "Relay-Schema": ("The schema to check the payload against, instead of its type's newest one.", "invoice.paid/v3"),
    "ce-specversion": ("Of a CloudEvent in the binary mode: `1.0`.", "1.0"),
    "ce-id": ("The CloudEvent's id, which is the event's; with its source it names the request.", "4711"),
    "ce-source": ("The CloudEvent's source, a URI reference.", "/billing"),
    "ce-type": (
        "The CloudEvent's type, which is the event's. Other `ce-` headers are kept and sent on as well.",
        "invoice.paid",
    ),
}

_HEADERS: Mapping[str, Header] = {
    "traceparent": (
        "W3C trace context, continued on each attempt.",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ),
    "tracestate": ("W3C trace context.", "vendor=value"),
    "Relay-Hops": ("How many Relays the event went through; more than 8 are refused.", "1"),
}

_REFUSALS = (
    ErrorCode.CREDENTIAL_MISSING,
    ErrorCode.CREDENTIAL_INVALID,
    ErrorCode.SIGNATURE_INVALID,
    ErrorCode.SCOPE_MISSING,
    ErrorCode.MALFORMED,
    ErrorCode.TYPE_MISSING,
    ErrorCode.RELAY_LOOP,
    ErrorCode.BODY_TIMEOUT,
    ErrorCode.IDEMPOTENCY_KEY_REUSED,
    ErrorCode.PAYLOAD_TOO_LARGE,
    ErrorCode.CONTENT_TYPE,
    ErrorCode.SCHEMA_VIOLATION,
    ErrorCode.UNSTORABLE,
    ErrorCode.OVERLOADED,
    ErrorCode.DRAINING,
    ErrorCode.JOURNAL_QUORUM,
)

_OF_ONE_EVENT = (
    ErrorCode.TYPE_MISSING,
    ErrorCode.IDEMPOTENCY_KEY_REUSED,
    ErrorCode.SCHEMA_VIOLATION,
    ErrorCode.UNSTORABLE,
)
"""What a batch is not refused with: it stands in the result of the event concerned."""


def paths() -> dict[str, Any]:
    """The ingest routes by path."""
    return {"/v1/events": {"post": _ingest()}, "/v1/events/batch": {"post": _ingest_batch()}}


def _header_parameters(headers: Mapping[str, Header]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": about,
            "schema": {"type": "string", "examples": [example]},
        }
        for name, (about, example) in headers.items()
    ]


def _ingest() -> dict[str, Any]:
    event = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string", "examples": ["invoice.paid"]}},
        "additionalProperties": True,
    }
    cloudevent = {
        "type": "object",
        "required": ["specversion", "id", "source", "type"],
        "properties": {
            "specversion": {"type": "string", "const": "1.0"},
            "id": {"type": "string", "minLength": 1, "maxLength": 255},
            "source": {"type": "string", "format": "uri-reference", "minLength": 1},
            "type": {"type": "string", "examples": ["invoice.paid"]},
        },
        "additionalProperties": True,
    }
    return {
        "tags": ["events"],
        "summary": "Post an event",
        "operationId": "post_event",
        "description": "Takes an event, makes it durable and answers with its receipt. The body is the payload, byte "
        "for byte; its type is the top-level string `type` or the header `Relay-Event-Type`. A CloudEvent is taken "
        "as such, in the binary mode (`ce-` headers) and in the structured one.",
        "parameters": _header_parameters({**_ONE_EVENTS_HEADERS, **_HEADERS}),
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": event},
                "application/cloudevents+json": {"schema": cloudevent},
                "*/*": {"schema": {}},
            },
        },
        "responses": {
            "202": {
                "description": "The event is durable.",
                "headers": REPLAY,
                "content": {"application/json": {"schema": ACCEPTED}},
            },
            **{str(status): response for status, response in problems(*_REFUSALS).items()},
        },
    }


def _ingest_batch() -> dict[str, Any]:
    event = {
        "type": "object",
        "required": ["type", "payload"],
        "properties": {
            "type": {"type": "string", "examples": ["invoice.paid"]},
            "event_id": {
                "type": "string",
                "pattern": "^[!-~]{1,255}$",
                "description": "The event's idempotency key, and its id.",
            },
            "payload": {"description": "Any JSON value; its bytes are kept as they stand in the request."},
        },
        "additionalProperties": False,
    }
    results = {
        "type": "object",
        "required": ["data"],
        "properties": {
            "data": {
                "type": "array",
                "description": "One result for each event, in the order of the request.",
                "items": {
                    "oneOf": [
                        ACCEPTED,
                        {"$ref": "#/components/schemas/EventRefused"},
                    ]
                },
            }
        },
    }
    refusals = [code for code in _REFUSALS if code not in _OF_ONE_EVENT]
    return {
        "tags": ["events"],
        "summary": "Post up to 1,000 events",
        "operationId": "post_batch",
        "description": "Takes up to 1,000 events, makes them durable in one append and answers with a result for each: "
        "what a request of its own would have been answered, or why it was refused. One bad event spoils no other.",
        "parameters": _header_parameters(_HEADERS),
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"type": "array", "maxItems": 1000, "items": event}}},
        },
        "responses": {
            "202": {
                "description": "What became of each event.",
                "content": {"application/json": {"schema": results}},
            },
            **{str(status): response for status, response in problems(*refusals).items()},
        },
    }
