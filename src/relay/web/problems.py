"""What can be wrong with a request, as RFC 9457 problem documents with a stable `code`.

Owns the one table of error codes: each with its status, its title and what it means. Who finds which fault is the
routes' business. Invariant: a code keeps its meaning and its status for ever; a document says nothing about the inside
of the system, and nothing that a client sent stands in it unless it is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

import msgspec

from relay.domain.failure import FailureReason
from relay.domain.telemetry import RejectReason
from relay.web.answers import Answer, Headers

MEDIA_TYPE = b"application/problem+json"

MOST_FAULTS = 50
"""How many faults of one body are told at once: an answer must not grow with what a client makes up."""

RETRY_AFTER_SECONDS = 1
"""What every 503 asks a client to wait; whatever lies behind it is either over by then or worth asking again."""


class ErrorCode(StrEnum):
    """The stable name of a fault, for programs."""

    MALFORMED = "malformed"
    TYPE_MISSING = "type_missing"
    BAD_CURSOR = "bad_cursor"
    BAD_FILTER = "bad_filter"
    RELAY_LOOP = "relay_loop"
    CREDENTIAL_MISSING = "credential_missing"
    CREDENTIAL_INVALID = "credential_invalid"
    SIGNATURE_INVALID = "signature_invalid"
    SCOPE_MISSING = "scope_missing"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BODY_TIMEOUT = "body_timeout"
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused"
    NOT_REDRIVABLE = "not_redrivable"
    SCHEMA_EXISTS = "schema_exists"
    FIRST_KEY = "first_key"
    LAST_KEY = "last_key"
    TENANT_IN_USE = "tenant_in_use"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    CONTENT_TYPE = "content_type"
    SCHEMA_VIOLATION = "schema_violation"
    URL_REFUSED = "url_refused"
    INVALID = "invalid"
    UNSTORABLE = "unstorable"
    INTERNAL = "internal"
    JOURNAL_QUORUM = "journal_quorum"
    DATABASE_UNAVAILABLE = "database_unavailable"
    OVERLOADED = "overloaded"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """A row of the table. `counted_as` is the label under which a refused event counts, or one that could not be taken;
    None where it is neither.
    """

    status: int
    title: str
    meaning: str
    counted_as: RejectReason | FailureReason | None = None


_R, _F = RejectReason, FailureReason

ERRORS: Mapping[ErrorCode, ErrorKind] = {
    ErrorCode.MALFORMED: ErrorKind(
        400, "Malformed request", "A header or the body cannot be read; `detail` says which and why.", _R.MALFORMED
    ),
    ErrorCode.TYPE_MISSING: ErrorKind(
        400,
        "Event type missing",
        "The event has no type: neither a top-level string `type` nor the header `Relay-Event-Type`.",
        _R.MALFORMED,
    ),
    ErrorCode.BAD_CURSOR: ErrorKind(
        400, "Bad cursor", "`cursor` is not a `next_cursor` of this list. Start again without one."
    ),
    ErrorCode.BAD_FILTER: ErrorKind(
        400,
        "Bad filter",
        "A filter or its value is not known here, in the query or in the body; `detail` names the valid ones.",
    ),
    ErrorCode.RELAY_LOOP: ErrorKind(
        400,
        "Relay loop",
        "The event went through more than eight Relays: some endpoint leads back here.",
        _R.LOOP,
    ),
    ErrorCode.CREDENTIAL_MISSING: ErrorKind(401, "Credential missing", "The call needs a credential.", _R.CREDENTIAL),
    ErrorCode.CREDENTIAL_INVALID: ErrorKind(
        401, "Credential invalid", "The credential is unknown, revoked or expired.", _R.CREDENTIAL
    ),
    ErrorCode.SIGNATURE_INVALID: ErrorKind(
        401, "Signature invalid", "The request's signature or its timestamp does not hold.", _R.SIGNATURE
    ),
    ErrorCode.SCOPE_MISSING: ErrorKind(403, "Scope missing", "The credential is not for this call.", _R.SCOPE),
    ErrorCode.NOT_FOUND: ErrorKind(404, "Not found", "There is no such path, or nothing of that id."),
    ErrorCode.METHOD_NOT_ALLOWED: ErrorKind(
        405, "Method not allowed", "The path exists, but not for this method; the header `Allow` names the others."
    ),
    ErrorCode.BODY_TIMEOUT: ErrorKind(
        408, "Body timeout", "The body did not arrive in time. Nothing was stored; send it again.", _R.MALFORMED
    ),
    ErrorCode.IDEMPOTENCY_KEY_REUSED: ErrorKind(
        409,
        "Idempotency key reused",
        "An earlier request with this `Idempotency-Key` had another type, path or body. Nothing was stored.",
        _R.IDEMPOTENCY,
    ),
    ErrorCode.NOT_REDRIVABLE: ErrorKind(
        409,
        "Not redrivable",
        "The delivery is being sent right now, its endpoint was removed, or the consumer does not subscribe to an "
        "event that had no route; `detail` says which.",
    ),
    ErrorCode.SCHEMA_EXISTS: ErrorKind(
        409,
        "Schema exists",
        "The version of that schema was written before, with other bytes. A version never changes; put a new one.",
    ),
    ErrorCode.FIRST_KEY: ErrorKind(
        409,
        "First key",
        "Nobody has a credential yet, and the first has to be a key with the scope `admin` or `operator`.",
    ),
    ErrorCode.LAST_KEY: ErrorKind(
        409, "Last key", "Without that key nobody could make another one for its tenant: make the other one first."
    ),
    ErrorCode.TENANT_IN_USE: ErrorKind(
        409, "Tenant in use", "The tenant still has endpoints, sources or keys: remove those first."
    ),
    ErrorCode.PAYLOAD_TOO_LARGE: ErrorKind(
        413,
        "Payload too large",
        "The body, or a payload in it, passes the limit that `limit_bytes` or `limit_events` names.",
        _R.SIZE,
    ),
    ErrorCode.CONTENT_TYPE: ErrorKind(
        415, "Unsupported content type", "The body's media type, charset or coding is not taken here.", _R.CONTENT_TYPE
    ),
    ErrorCode.SCHEMA_VIOLATION: ErrorKind(
        422, "Schema violation", "The payload does not fit its type's schema; `errors` has JSON Pointers.", _R.SCHEMA
    ),
    ErrorCode.URL_REFUSED: ErrorKind(
        422,
        "Url refused",
        "Relay does not send to that url; `reason` is a word for programs, `detail` says what to do.",
    ),
    ErrorCode.INVALID: ErrorKind(
        422, "Invalid", "The body is JSON but not what the call takes; `errors` has a JSON Pointer for each fault."
    ),
    ErrorCode.UNSTORABLE: ErrorKind(
        422, "Unstorable", "The database cannot hold what is in the event. Nothing was stored.", _R.MALFORMED
    ),
    ErrorCode.INTERNAL: ErrorKind(500, "Internal error", "A fault of Relay's own, written to its log.", _F.INTERNAL),
    ErrorCode.JOURNAL_QUORUM: ErrorKind(
        503,
        "Journal quorum missing",
        "Not enough copies of the journal confirmed the event in time. Try again.",
        _F.JOURNAL_QUORUM,
    ),
    ErrorCode.DATABASE_UNAVAILABLE: ErrorKind(
        503,
        "Database unavailable",
        "The database did not answer. Try again, with the same `Idempotency-Key`.",
        _F.DATABASE_UNAVAILABLE,
    ),
    ErrorCode.OVERLOADED: ErrorKind(
        503, "Overloaded", "Too much is being read, or waits here. Nothing was stored; try again.", _F.OVERLOADED
    ),
    ErrorCode.DRAINING: ErrorKind(
        503, "Draining", "This gateway is stopping. Nothing was stored; try again.", _F.DRAINING
    ),
}
"""Every code, in the order of the documentation."""


@dataclass(frozen=True, slots=True)
class FieldFault:
    """What is wrong with one part of a JSON body: where (RFC 6901 pointer, empty for the whole), and what to do."""

    pointer: str
    detail: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that went wrong. `extra` are further members of the document, `headers` further headers."""

    code: ErrorCode
    detail: str
    extra: Mapping[str, object] = field(default_factory=dict)
    headers: Headers = ()

    @property
    def kind(self) -> ErrorKind:
        """The code's row of the table."""
        return ERRORS[self.code]

    def document(self) -> dict[str, object]:
        """The members of the document."""
        kind = self.kind
        return {
            "type": f"/docs#{self.code}",
            "title": kind.title,
            "status": kind.status,
            "detail": self.detail,
            "code": str(self.code),
            **self.extra,
        }

    def answer(self) -> Answer:
        """The problem as a response."""
        headers = self.headers
        if self.code in _CHALLENGES:
            headers = (*headers, (b"www-authenticate", self._challenge()))
        if self.kind.status == 503:
            headers = (*headers, (b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
        return Answer(self.kind.status, MEDIA_TYPE, msgspec.json.encode(self.document()), headers)

    def _challenge(self) -> bytes:
        """What RFC 6750 (3) has said to a client whose credential is not there, no good, or for less."""
        error = _CHALLENGES[self.code]
        scope = f', scope="{self.extra["scope"]}"' if "scope" in self.extra else ""
        return f'Bearer realm="relay"{error}{scope}'.encode()


_CHALLENGES = {
    ErrorCode.CREDENTIAL_MISSING: "",
    ErrorCode.CREDENTIAL_INVALID: ', error="invalid_token"',
    ErrorCode.SIGNATURE_INVALID: "",
    ErrorCode.SCOPE_MISSING: ', error="insufficient_scope"',
}


class Refused(Exception):
    """A request is answered with this problem. Raised where the fault is found, turned into an answer at the edge."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.code}: {problem.detail}")
        self.problem = problem


def refuse(code: ErrorCode, detail: str, **extra: object) -> Refused:
    """The exception for a problem with these members."""
    return Refused(Problem(code, detail, extra))


def invalid(faults: Iterable[FieldFault]) -> Refused:
    """The exception for a body with these faults (at least one)."""
    listed = [{"pointer": fault.pointer, "detail": fault.detail} for fault in islice(faults, MOST_FAULTS)]
    first = listed[0]
    where = f"{first['pointer']}: " if first["pointer"] else ""
    more = f" (and {len(listed) - 1} more)" if len(listed) > 1 else ""
    return refuse(ErrorCode.INVALID, f"{where}{first['detail']}{more}", errors=listed)


def pointer(*parts: str | int) -> str:
    """A JSON Pointer (RFC 6901) to the member or item at this path."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def reference() -> str:
    """The table as Markdown, for the documentation."""
    rows = [f"| `{code}` | {kind.status} | {kind.title} | {kind.meaning} |" for code, kind in ERRORS.items()]
    return "\n".join(["| code | status | title | meaning |", "|---|---|---|---|", *rows, ""])
