"""The API's description of itself: OpenAPI 3.1, with the ingest routes and the problem documents in it.

Owns what the framework cannot know: the routes that it does not serve, and that every error is a problem document. For
the rest the description is made from the routes themselves. Invariant: each error code that a route names is a row of
the one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from relay.web.problems import ERRORS, MEDIA_TYPE, ErrorCode

Responses = dict[int | str, dict[str, Any]]

_PROBLEM = {"$ref": "#/components/schemas/Problem"}
_FRAMEWORKS_OWN = ("HTTPValidationError", "ValidationError")

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457. `code` is stable and for programs, `detail` is for people.",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "enum": [str(code) for code in ERRORS]},
        "errors": {
            "type": "array",
            "description": "With `invalid` and `schema_violation`: what is wrong, and where.",
            "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "properties": {
                    "pointer": {"type": "string", "format": "json-pointer"},
                    "detail": {"type": "string"},
                },
            },
        },
        "reason": {"type": "string", "description": "With `url_refused`: one word for programs."},
        "limit_bytes": {"type": "integer", "description": "With `payload_too_large`."},
        "limit_events": {"type": "integer", "description": "With `payload_too_large`, for a batch of too many events."},
    },
}

_EVERYWHERE = (ErrorCode.DATABASE_UNAVAILABLE,)


def problems(*codes: ErrorCode) -> Responses:
    """The responses of a route that refuses with these codes, beside those that every route may give."""
    by_status: dict[int, list[ErrorCode]] = {}
    for code in (*codes, *_EVERYWHERE):
        by_status.setdefault(ERRORS[code].status, []).append(code)
    return {
        status: {
            "description": "; ".join(f"`{code}`: {ERRORS[code].title}" for code in same),
            "content": {MEDIA_TYPE.decode(): {"schema": _PROBLEM}},
        }
        for status, same in by_status.items()
    }


def describe(app: FastAPI) -> dict[str, Any]:
    """The description of everything under `/v1` and beside it."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, openapi_version="3.1.0"
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in _FRAMEWORKS_OWN:
        schemas.pop(name, None)
    schemas["Problem"] = PROBLEM_SCHEMA
    schemas["EventAccepted"] = ACCEPTED_SCHEMA
    schemas["EventRefused"] = REFUSED_SCHEMA
    for path in document["paths"].values():
        for operation in path.values():
            _drop_frameworks_errors(operation["responses"])
    ingest = {"/v1/events": {"post": _ingest()}, "/v1/events/batch": {"post": _ingest_batch()}}
    document["paths"] = {**ingest, **document["paths"]}
    return document


def _drop_frameworks_errors(responses: dict[str, Any]) -> None:
    """A fault of a query is a 400 here, one of a body has its problem document: the framework's own 422 is neither."""
    schema = responses.get("422", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if schema.get("$ref", "").endswith(_FRAMEWORKS_OWN[0]):
        del responses["422"]["content"]["application/json"]
        if not responses["422"]["content"]:
            del responses["422"]


ACCEPTED_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "EventAccepted",
    "description": "The receipt of an event that is durable and owed to these endpoints.",
    "required": ["receipt_id", "event_id", "journal_pos", "received_at", "durability", "deliveries"],
    "properties": {
        "receipt_id": {"type": "string", "examples": ["rcp_0197c0de5f0a7b3c9d1e2f3a4b5c6d7e"]},
        "event_id": {
            "type": "string",
            "description": "The Idempotency-Key, a CloudEvent's id or a batch's event_id, else an id made here.",
        },
        "journal_pos": {"type": "string", "examples": ["p06:18442913"]},
        "received_at": {"type": "string", "format": "date-time"},
        "durability": {
            "type": "object",
            "required": ["confirmed", "of"],
            "properties": {"confirmed": {"type": "integer"}, "of": {"type": "integer"}},
        },
        "deliveries": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "endpoint_id", "consumer"],
                "properties": {
                    "id": {"type": "string", "format": "uuid"},
                    "endpoint_id": {"type": "string"},
                    "consumer": {"type": "string"},
                },
            },
        },
    },
}

REFUSED_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "EventRefused",
    "description": "What kept one event of a batch out, alone.",
    "required": ["error"],
    "properties": {"error": _PROBLEM},
}

_ONE_EVENTS_HEADERS = {
    "Relay-Event-Type": "The event's type; then the body may be of any content type.",
    "Idempotency-Key": "Names the request: 1 to 255 visible ASCII characters, bare or as a quoted string.",
    "ce-specversion": "Of a CloudEvent in the binary mode: `1.0`.",
    "ce-id": "The CloudEvent's id, which is the event's; with its source it names the request.",
    "ce-source": "The CloudEvent's source, a URI reference.",
    "ce-type": "The CloudEvent's type, which is the event's. Other `ce-` headers are kept and sent on as well.",
}

_HEADERS = {
    "traceparent": "W3C trace context, continued on each attempt.",
    "tracestate": "W3C trace context.",
    "Relay-Hops": "How many Relays the event went through; more than 8 are refused.",
}

_REFUSALS = (
    ErrorCode.MALFORMED,
    ErrorCode.TYPE_MISSING,
    ErrorCode.RELAY_LOOP,
    ErrorCode.BODY_TIMEOUT,
    ErrorCode.IDEMPOTENCY_KEY_REUSED,
    ErrorCode.PAYLOAD_TOO_LARGE,
    ErrorCode.CONTENT_TYPE,
    ErrorCode.UNSTORABLE,
    ErrorCode.OVERLOADED,
    ErrorCode.DRAINING,
)

_OF_ONE_EVENT = (ErrorCode.TYPE_MISSING, ErrorCode.IDEMPOTENCY_KEY_REUSED, ErrorCode.UNSTORABLE)
"""What a batch is not refused with: it stands in the result of the event concerned."""


def _header_parameters(headers: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": about, "schema": {"type": "string"}}
        for name, about in headers.items()
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
        "summary": "Post Event",
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
                "headers": {
                    "Relay-Idempotent-Replay": {
                        "description": "`true` where an earlier request of the same name is answered again.",
                        "schema": {"type": "string", "const": "true"},
                    }
                },
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/EventAccepted"}}},
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
                        {"$ref": "#/components/schemas/EventAccepted"},
                        {"$ref": "#/components/schemas/EventRefused"},
                    ]
                },
            }
        },
    }
    refusals = [code for code in _REFUSALS if code not in _OF_ONE_EVENT]
    return {
        "tags": ["events"],
        "summary": "Post Batch",
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
