"""A test event: one that is owed to a single endpoint, whatever its patterns, so that its owner sees it arrive.

Owns what such an event is. From there on it is an event like any other, with its receipt, retries and dead letters.
Invariant: nobody but that endpoint gets it.
"""

from __future__ import annotations

from typing import assert_never
from uuid import UUID

import msgspec

from relay.domain import ids
from relay.domain.ambient import Ambient
from relay.gateway import answers
from relay.gateway.appender import Appender
from relay.gateway.submission import UNCHECKED, Replayed, Stored
from relay.gateway.wrapping import CHANCE_BYTES, Origin, Posted, wrap
from relay.web.answers import JSON, Answer
from relay.web.credentials import Caller
from relay.web.problems import Problem, Refused

TYPE = "relay.test"

_ABOUT = "A test event, sent on demand to this endpoint alone."


class Trial:
    """The test events of one process."""

    def __init__(self, *, appender: Appender, ambient: Ambient) -> None:
        self._appender = appender
        self._ambient = ambient

    async def send(self, caller: Caller, endpoint: UUID, consumer: str) -> Answer:
        """Make a test event durable; answers as for any event. Raises `Refused`.

        For an endpoint that is removed at this very moment nothing is stored (`not_found`).
        """
        arrived = self._ambient.monotonic()
        origin = Origin(caller, self._ambient.now(), arrived, arrived, 0)
        about = {
            "type": TYPE,
            "endpoint_id": ids.write(ids.ENDPOINT, endpoint),
            "consumer": consumer,
            "message": _ABOUT,
        }
        posted = Posted(TYPE, None, None, JSON.decode(), msgspec.json.encode(about), ())
        submission = wrap(origin, posted, UNCHECKED, self._ambient.entropy(CHANCE_BYTES), self._ambient)
        submission.only = endpoint
        self._appender.take(submission)
        match await submission.outcome:
            case Stored(body) | Replayed(body):
                return answers.accepted(body)
            case Problem() as problem:
                raise Refused(problem)
            case never:
                assert_never(never)
