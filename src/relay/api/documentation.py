"""The API's description of itself: OpenAPI 3.1, with the ingest route and the problem documents in it.

Owns what the framework cannot know: the route that it does not serve, and that every error is a problem document. For
the rest the description is made from the routes themselves. Invariant: each error code that a route names is a row of
the one table.
"""

from __future__ import annotations

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
    for path in document["paths"].values():
        for operation in path.values():
            _drop_frameworks_errors(operation["responses"])
    document["paths"] = {"/v1/events": {"post": _ingest()}, **document["paths"]}
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
        "event_id": {"type": "string", "description": "The Idempotency-Key, else an id made here."},
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

_HEADERS = {
    "Relay-Event-Type": "The event's type; then the body may be of any content type.",
    "Idempotency-Key": "Names the request: 1 to 255 visible ASCII characters, bare or as a quoted string.",
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


def _ingest() -> dict[str, Any]:
    event = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string", "examples": ["invoice.paid"]}},
        "additionalProperties": True,
    }
    return {
        "tags": ["events"],
        "summary": "Post Event",
        "operationId": "post_event",
        "description": "Takes an event, makes it durable and answers with its receipt. The body is the payload, byte "
        "for byte; its type is the top-level string `type` or the header `Relay-Event-Type`.",
        "parameters": [
            {"name": name, "in": "header", "required": False, "description": about, "schema": {"type": "string"}}
            for name, about in _HEADERS.items()
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": event}, "*/*": {"schema": {}}},
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
