"""Problem documents in the description of the API: their shape, and which of them a route answers with.

Owns the examples of problems. Invariant: each is what a gateway really says, in the shape that is described.
"""

from __future__ import annotations

from typing import Any

from relay.web.problems import ERRORS, MEDIA_TYPE, ErrorCode, Problem

Responses = dict[int | str, dict[str, Any]]

REFERENCE = {"$ref": "#/components/schemas/Problem"}

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
        "scope": {"type": "string", "description": "With `scope_missing`: the scope that is needed."},
        "limit_bytes": {"type": "integer", "description": "With `payload_too_large`."},
        "limit_events": {"type": "integer", "description": "With `payload_too_large`, for a batch of too many events."},
    },
}

IDEMPOTENCY_KEY = "Names the request: 1 to 255 visible ASCII characters, bare or as a quoted string."

REPLAY = {
    "Relay-Idempotent-Replay": {
        "description": "`true` where an earlier request of the same name is answered again.",
        "schema": {"type": "string", "const": "true"},
    }
}

RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}}

_CHALLENGE = {"WWW-Authenticate": {"description": "What to bring instead (RFC 6750, 3).", "schema": {"type": "string"}}}

_HEADERS = {401: _CHALLENGE, 403: _CHALLENGE, 503: RETRY_AFTER}

_EVERYWHERE = (
    ErrorCode.DATABASE_UNAVAILABLE,
    ErrorCode.CREDENTIAL_MISSING,
    ErrorCode.CREDENTIAL_INVALID,
    ErrorCode.SIGNATURE_INVALID,
    ErrorCode.SCOPE_MISSING,
)

_SAID: dict[ErrorCode, tuple[str, dict[str, Any]]] = {
    ErrorCode.MALFORMED: ("the body is no JSON: trailing characters (byte 17)", {}),
    ErrorCode.BAD_CURSOR: ("the cursor is not from this list; start again without one", {}),
    ErrorCode.BAD_FILTER: ("state: Input should be 'open' or 'closed'", {}),
    ErrorCode.SCOPE_MISSING: ("the credential lacks the scope admin", {"scope": "admin"}),
    ErrorCode.NOT_FOUND: ("there is no receipt of that id", {}),
    ErrorCode.INVALID: (
        "/burst: Input should be greater than or equal to 1",
        {"errors": [{"pointer": "/burst", "detail": "Input should be greater than or equal to 1"}]},
    ),
    ErrorCode.SCHEMA_VIOLATION: (
        'the payload does not fit invoice.paid/v3: "amount" is a required property',
        {"errors": [{"pointer": "", "detail": '"amount" is a required property'}]},
    ),
    ErrorCode.URL_REFUSED: ("127.0.0.1 is a loopback address", {"reason": "loopback"}),
    ErrorCode.PAYLOAD_TOO_LARGE: ("the body may have at most 1048576 bytes", {"limit_bytes": 1_048_576}),
    ErrorCode.DATABASE_UNAVAILABLE: ("the database did not answer; try again in a moment", {}),
}


def problems(*codes: ErrorCode) -> Responses:
    """The responses of a route that refuses with these codes, beside those that every route under `/v1` may give."""
    return problems_at_root(*codes, *_EVERYWHERE)


def problems_at_root(*codes: ErrorCode) -> Responses:
    """The responses of a route at the root, which refuses with these codes and needs no credential."""
    by_status: dict[int, list[ErrorCode]] = {}
    for code in codes:
        same = by_status.setdefault(ERRORS[code].status, [])
        if code not in same:
            same.append(code)
    return {
        status: {
            "description": "; ".join(f"`{code}`: {ERRORS[code].title}" for code in same),
            "content": {MEDIA_TYPE.decode(): {"schema": REFERENCE, "examples": {str(c): _example(c) for c in same}}},
            **({"headers": _HEADERS[status]} if status in _HEADERS else {}),
        }
        for status, same in by_status.items()
    }


LISTED = (ErrorCode.BAD_FILTER, ErrorCode.BAD_CURSOR)
"""What every list refuses with."""


def _example(code: ErrorCode) -> dict[str, Any]:
    detail, extra = _SAID.get(code, (ERRORS[code].meaning, {}))
    return {"summary": ERRORS[code].title, "value": Problem(code, detail, extra).document()}
