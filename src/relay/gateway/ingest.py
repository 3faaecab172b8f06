"""`POST /v1/events`, as a bare ASGI application: the busiest route takes no framework's detour.

Owns the order of the checks and the envelope. Invariant: an event is either refused before anything is stored, or
durable when its 202 leaves.
"""

from __future__ import annotations

import hashlib
import logging
from typing import assert_never

from starlette.types import Receive, Scope, Send

from relay.domain import ids
from relay.domain.ambient import Ambient
from relay.domain.envelope import Envelope
from relay.domain.idempotency import fingerprint
from relay.domain.telemetry import IdempotentReplay, Listener, RequestRefused, RequestServed
from relay.gateway import answers
from relay.gateway.appender import Appender
from relay.gateway.headers import (
    CONTENT_LENGTH,
    TRANSFER_ENCODING,
    Headers,
    read_content_type,
    read_context,
    read_headers,
    read_hops,
    read_key,
)
from relay.gateway.payload import read_type
from relay.gateway.senders import identify
from relay.gateway.submission import Outcome, Replayed, Stored, Submission
from relay.web.answers import Answer
from relay.web.exchange import BodyReader, Disconnected, Intake, send_answer
from relay.web.problems import ErrorCode, Problem, Refused
from relay.web.serving import BUG

PATH = "/v1/events"

_NOT_POST = Problem(ErrorCode.METHOD_NOT_ALLOWED, "events are posted here", headers=((b"allow", b"POST"),))

logger = logging.getLogger(__name__)


class Ingest:
    """The route of one process."""

    def __init__(self, *, appender: Appender, ambient: Ambient, emit: Listener, max_payload_bytes: int) -> None:
        self._appender = appender
        self._ambient = ambient
        self._emit = emit
        self._bodies = BodyReader(max_payload_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        arrived = self._ambient.monotonic()
        headers = read_headers(scope["headers"])
        intake = Intake(receive, declared=headers.get(CONTENT_LENGTH), chunked=TRANSFER_ENCODING in headers)
        try:
            answer = await self._accept(scope, headers, intake, arrived)
        except Refused as refused:
            answer = self._refuse(refused.problem)
        except Disconnected:
            return
        except Exception:
            logger.exception("an event met a bug")
            answer = BUG.answer()
        await send_answer(answer, intake, send)
        self._emit(RequestServed(self._ambient.monotonic() - arrived))

    async def _accept(self, scope: Scope, headers: Headers, intake: Intake, arrived: float) -> Answer:
        """The checks in their order, the envelope, the append. Raises `Refused` and `Disconnected`."""
        now = self._ambient.now()
        if scope["method"] != "POST":
            raise Refused(_NOT_POST)
        sender = identify(headers)
        content_type = read_content_type(headers)
        hops = read_hops(headers)
        key = read_key(headers)
        payload = await self._bodies.read(intake)
        event_type = read_type(headers, payload)
        checked = self._ambient.monotonic()

        made_ms = int(now.timestamp()) * 1000 + now.microsecond // 1000
        chance = self._ambient.entropy(2 * ids.ENTROPY_BYTES)
        receipt_id = ids.uuid7(made_ms, chance[: ids.ENTROPY_BYTES])
        sha256 = hashlib.sha256(payload).digest()
        assigned = self._ambient.monotonic()
        envelope = Envelope(
            receipt_id=receipt_id,
            event_id=key or ids.write_new(ids.EVENT, made_ms, chance[ids.ENTROPY_BYTES :]),
            type=event_type,
            schema=None,
            tenant=sender.tenant,
            source=sender.source,
            received_at=now,
            content_type=content_type,
            payload=payload,
            payload_sha256=sha256,
            forwarded=read_context(headers),
            hops=hops,
            checked_us=_microseconds(checked - arrived),
            assigned_us=_microseconds(assigned - arrived),
        )
        named = fingerprint(event_type, sha256) if key is not None else None
        submission = Submission(envelope, key, named, assigned)
        self._appender.take(submission)
        return self._answer(await submission.outcome)

    def _answer(self, outcome: Outcome) -> Answer:
        match outcome:
            case Stored(body):
                return answers.accepted(body)
            case Replayed(body):
                self._emit(IdempotentReplay())
                return answers.replayed(body)
            case Problem():
                raise Refused(outcome)
            case _:
                assert_never(outcome)

    def _refuse(self, problem: Problem) -> Answer:
        if problem.kind.counted_as is not None:
            self._emit(RequestRefused(problem.kind.counted_as))
        return problem.answer()


def _microseconds(seconds: float) -> int:
    # the column is an integer, and no request that took longer has anything to tell
    return min(int(seconds * 1e6), 2**31 - 1)
