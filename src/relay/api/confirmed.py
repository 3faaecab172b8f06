"""A change is answered with yes only once it is on the quorum.

Owns that rule for every call of the API at once. How the quorum is waited for is the store's. Invariant: no 2xx of a
call that may change something leaves before a look at the standbys of the server that changed it has proved it, and
while the quorum is missing nothing is changed.

A server that stood still while another was promoted goes on as a primary for a moment, and an idle connection may lead
to it: what it changes is lost, whatever the new one's standbys have.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relay.store.barrier import Barrier
from relay.store.timelines import noted
from relay.web.problems import ErrorCode, Problem, Refused

READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

MISSING = Problem(
    ErrorCode.JOURNAL_QUORUM, "the journal has no quorum at present, so nothing is changed; try again in a moment"
)
UNPROVEN = Problem(
    ErrorCode.JOURNAL_QUORUM,
    "the change was made, but not enough copies of the journal confirmed it in time, so it may be lost;"
    " look whether it is there, and repeat it if not",
)


class Confirmed:
    """Around the API's routes. Raises `Refused` in place of an answer that would promise too much."""

    def __init__(self, app: ASGIApp, barrier: Barrier) -> None:
        self._app = app
        self._barrier = barrier

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] in READING or not self._barrier.standbys_needed:
            await self._app(scope, receive, send)
            return
        if self._barrier.missing is not None:
            raise Refused(MISSING)
        timeline = self._barrier.timeline

        async def send_if_confirmed(message: Message) -> None:
            promises = message["type"] == "http.response.start" and 200 <= message["status"] < 300
            if promises and not await self._confirmed(timeline, changed_on):
                raise Refused(UNPROVEN)
            await send(message)

        with noted() as changed_on:
            await self._app(scope, receive, send_if_confirmed)

    async def _confirmed(self, timeline: int, changed_on: Collection[int]) -> bool:
        """Whether the quorum has it; of work on two servers, nobody knows on which the change was made."""
        if len(changed_on) > 1:
            return False
        return await self._barrier.confirmed(next(iter(changed_on), timeline))
