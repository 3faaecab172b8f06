"""`POST /v1/events/batch`: up to a thousand events in one request, and a result for each.

Owns the order of the checks and the answer's shape. Invariant: each event is refused, stored or answered again as it
would be in a request of its own, in the order of the array, and what becomes of one changes nothing for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from relay.domain.ambient import Ambient
from relay.domain.telemetry import IdempotentReplay, Listener
from relay.gateway.appender import Appender
from relay.gateway.elements import Element, read_elements
from relay.gateway.headers import (
    CLOUDEVENT,
    CONTENT_TYPE,
    EVENT_TYPE,
    IDEMPOTENCY_KEY,
    SCHEMA,
    Headers,
    read_context,
    read_hops,
    read_json_content_type,
)
from relay.gateway.route import Route
from relay.gateway.schemas import Asked, Checks
from relay.gateway.senders import Senders, named
from relay.gateway.submission import Checked, Outcome, Replayed, Stored, Submission
from relay.gateway.tracing import RequestTrace
from relay.gateway.wrapping import CHANCE_BYTES, Forwarded, Origin, Posted, wrap
from relay.web.answers import JSON, Answer
from relay.web.certificates import Peer
from relay.web.credentials import Caller
from relay.web.exchange import Intake
from relay.web.judging import OVERLOADED
from relay.web.problems import ErrorCode, Problem, Refused, refuse
from relay.web.proving import Proven

PATH = "/v1/events/batch"

_PAYLOAD_TYPE = "application/json"

CHECKING_SECONDS = 10.0
"""How long the events of one batch are checked against their schemas; those that are left then are to come again."""

_OF_ONE_EVENT = {
    IDEMPOTENCY_KEY: "a batch has no Idempotency-Key: give each event of it an event_id",
    EVENT_TYPE: "a batch has no Relay-Event-Type: each event of it has its own type",
    SCHEMA: "a batch has no Relay-Schema: each event of it is checked against its type's newest schema",
    CLOUDEVENT: "a batch has no ce- headers: post each CloudEvent to /v1/events",
}


class Batch(Route):
    """The route of one process."""

    def __init__(
        self,
        *,
        appender: Appender,
        senders: Senders,
        checks: Checks,
        ambient: Ambient,
        emit: Listener,
        max_body_bytes: int,
        max_payload_bytes: int,
        traces: bool,
    ) -> None:
        super().__init__(
            appender=appender,
            senders=senders,
            checks=checks,
            ambient=ambient,
            emit=emit,
            max_body_bytes=max_body_bytes,
            traces=traces,
        )
        self._max_payload_bytes = max_payload_bytes

    async def _accept(
        self, peer: Peer | None, headers: Headers, intake: Intake, arrived: float, trace: RequestTrace | None
    ) -> Answer:
        now = self._ambient.now()
        sent = await self._senders.identify(peer, headers, intake, self._bodies)
        _check_headers(headers)
        hops = read_hops(headers)
        body = await self._bodies.read(intake) if sent.body is None else sent.body
        elements = read_elements(body, self._max_payload_bytes)
        del body
        context = read_context(headers) if trace is None else trace.carried(read_context(headers))
        posted = _posted(sent, elements, context)
        checked = await self._check(sent.caller, posted)
        origin = Origin(sent.caller, now, arrived, self._ambient.monotonic(), hops)
        taken = self._wrap(origin, posted, checked)
        submissions = [each for each in taken if isinstance(each, Submission)]
        if submissions:
            # the last of the checks, since it leaves a trace
            await self._senders.take_once(
                sent, PATH, None, None, [each.key for each in submissions if each.key is not None]
            )
        else:
            await self._senders.check_again(sent.caller)
        self._appender.take_batch(submissions)
        outcomes = [await each.outcome if isinstance(each, Submission) else each for each in taken]
        stored = sum(isinstance(each, Stored) for each in outcomes)
        if trace is not None and stored:
            trace.published(origin.checked - arrived, self._ambient.monotonic() - arrived, sent.caller, stored)
        return self._answer(outcomes)

    async def _check(self, sender: Caller, posted: Sequence[Posted | Problem]) -> list[Checked | Problem]:
        """What the schemas say of each event, or what was wrong with it before."""
        ends = self._ambient.monotonic() + CHECKING_SECONDS
        checked: list[Checked | Problem] = []
        for each in posted:
            if isinstance(each, Problem):
                checked.append(each)
            elif self._ambient.monotonic() > ends:
                checked.append(OVERLOADED)
            else:
                asked = Asked(sender.tenant, sender.source, each.key, each.type, each.wanted, each.payload)
                checked.append(await self._checks.check(asked))
        return checked

    def _wrap(
        self, origin: Origin, posted: Sequence[Posted | Problem], checked: Sequence[Checked | Problem]
    ) -> list[Submission | Problem]:
        chance = self._ambient.entropy(CHANCE_BYTES * len(posted))
        taken: list[Submission | Problem] = []
        for place, (event, verdict) in enumerate(zip(posted, checked, strict=True)):
            if isinstance(verdict, Problem):
                taken.append(verdict)
                continue
            assert isinstance(event, Posted), "what was wrong with an event before is its verdict"
            its_chance = chance[place * CHANCE_BYTES : (place + 1) * CHANCE_BYTES]
            taken.append(wrap(origin, event, verdict, its_chance, self._ambient))
        return taken

    def _answer(self, outcomes: Sequence[Outcome]) -> Answer:
        """One result for each event; or, where the same fault of Relay's kept every one out, that fault for the whole.

        Such a fault is over in a moment, and a sender that looks at nothing but the status must not miss it. Nor is
        there a result for whose credential has ended meanwhile, where nothing was taken by it before.
        """
        if not any(isinstance(each, Stored | Replayed) for each in outcomes):
            for each in outcomes:
                if isinstance(each, Problem) and each.kind.status == 401:
                    raise Refused(each)
        first = outcomes[0] if outcomes else None
        if isinstance(first, Problem) and first.kind.status >= 500 and all(each is first for each in outcomes):
            raise Refused(first)
        return Answer(202, JSON, b'{"data":[%b]}' % b",".join([self._result(each) for each in outcomes]))

    def _result(self, outcome: Outcome) -> bytes:
        match outcome:
            case Stored(body):
                return body
            case Replayed(body):
                self._emit(IdempotentReplay())
                return body
            case Problem():
                self._count(outcome)
                return b'{"error":%b}' % msgspec.json.encode(outcome.document())
            case _:
                assert_never(outcome)


def _posted(sent: Proven, elements: Sequence[Element | Problem], forwarded: Forwarded) -> list[Posted | Problem]:
    return [
        element
        if isinstance(element, Problem)
        else Posted(
            element.type,
            element.event_id,
            named(sent, element.event_id, place),
            _PAYLOAD_TYPE,
            element.payload,
            forwarded,
        )
        for place, element in enumerate(elements)
    ]


def _check_headers(headers: Headers) -> None:
    """Raises `Refused` (`content_type`, `malformed`) where a header is not for a batch."""
    read_json_content_type(headers)
    if b"cloudevents" in headers[CONTENT_TYPE].lower():
        raise refuse(ErrorCode.CONTENT_TYPE, "a batch is application/json; post each CloudEvent to /v1/events")
    for header, instead in _OF_ONE_EVENT.items():
        if header in headers:
            raise refuse(ErrorCode.MALFORMED, instead)
