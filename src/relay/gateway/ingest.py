"""`POST /v1/events`: one event, whose payload is the request's body.

Owns the order of the checks. Invariant: an event is either refused before anything is stored, or durable when its 202
leaves.
"""

from __future__ import annotations

from typing import assert_never

from relay.domain.telemetry import IdempotentReplay
from relay.gateway import answers
from relay.gateway.cloudevents import read_cloudevent, read_cloudevents_content_type, read_mode
from relay.gateway.headers import Headers, read_content_type, read_context, read_hops, read_key, read_schema
from relay.gateway.payload import read_type
from relay.gateway.route import Route
from relay.gateway.schemas import Asked
from relay.gateway.senders import named
from relay.gateway.submission import Checked, Outcome, Replayed, Stored
from relay.gateway.tracing import RequestTrace
from relay.gateway.wrapping import CHANCE_BYTES, Origin, Posted, wrap
from relay.web.answers import Answer
from relay.web.certificates import Peer
from relay.web.credentials import Caller
from relay.web.exchange import Intake
from relay.web.problems import Problem, Refused

PATH = "/v1/events"


class Ingest(Route):
    """The route of one process."""

    async def _accept(
        self, peer: Peer | None, headers: Headers, intake: Intake, arrived: float, trace: RequestTrace | None
    ) -> Answer:
        now = self._ambient.now()
        sent = await self._senders.identify(peer, headers, intake, self._bodies)
        mode = read_mode(headers)
        content_type = read_content_type(headers) if mode is None else read_cloudevents_content_type(mode, headers)
        hops = read_hops(headers)
        key = read_key(headers)
        wanted = read_schema(headers)
        payload = await self._bodies.read(intake) if sent.body is None else sent.body
        forwarded = read_context(headers) if trace is None else trace.carried(read_context(headers))
        if mode is None:
            posted = Posted(read_type(headers, payload), key, key, content_type, payload, forwarded, wanted)
        else:
            event, own = read_cloudevent(mode, headers, payload)
            # a request that its sender named bears that name; the event keeps its id
            posted = Posted(event.type, event.id, key or event.key, content_type, payload, forwarded + own, wanted)
        posted = posted._replace(key=named(sent, posted.key))
        checked = await self._check(sent.caller, posted)
        # the last of the checks, since it leaves a trace
        await self._senders.take_once(sent, PATH, posted.key, posted.type, [posted.key] if posted.key else [])
        origin = Origin(sent.caller, now, arrived, self._ambient.monotonic(), hops)
        submission = wrap(origin, posted, checked, self._ambient.entropy(CHANCE_BYTES), self._ambient)
        self._appender.take(submission)
        outcome = await submission.outcome
        if trace is not None and isinstance(outcome, Stored):
            trace.published(origin.checked - arrived, self._ambient.monotonic() - arrived, sent.caller, 1)
            stored = submission.envelope
            trace.named(stored.type, stored.event_id, stored.receipt_id, stored.forwarded)
        return self._answer(outcome)

    async def _check(self, caller: Caller, posted: Posted) -> Checked:
        """By which schema the payload may be taken. Raises `Refused`."""
        asked = Asked(caller.tenant, caller.source, posted.key, posted.type, posted.wanted, posted.payload)
        checked = await self._checks.check(asked)
        if isinstance(checked, Problem):
            await self._senders.check_again(caller)
            raise Refused(checked)
        return checked

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
