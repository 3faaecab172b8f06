"""What stands around every HTTP application: which one gets a request, and what a client sees of a bug.

Owns the dispatch between applications by path and the last line of defence. Invariant: an exception that nobody
expected is written to the log and answered as `internal`, with nothing of it in the answer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relay.web.exchange import Disconnected, Intake, send_answer
from relay.web.problems import ErrorCode, Problem, Refused

logger = logging.getLogger(__name__)

BUG = Problem(ErrorCode.INTERNAL, "the request met a fault of Relay's own, which is written to its log")


def by_path(exact: Mapping[str, ASGIApp], otherwise: ASGIApp) -> ASGIApp:
    """One application of several: requests for exactly these paths go to theirs, everything else to `otherwise`."""

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        chosen = exact.get(scope["path"], otherwise) if scope["type"] == "http" else otherwise
        await chosen(scope, receive, send)

    return dispatch


class Guard:
    """Around an application that reads bodies and answers by itself, as frameworks do.

    Turns what it raises into problem documents, and sees to the end of connections whose body was not read: the
    application finds the request's `Intake` in its scope under `INTAKE`.
    """

    INTAKE = "relay.intake"

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; other kinds of scope pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        intake = Intake.of(scope, receive)
        scope[self.INTAKE] = intake
        closing = _Closing(intake, send)
        try:
            await self._app(scope, intake.receive, closing.send)
        except Disconnected:
            return
        except Refused as refused:
            await send_answer(refused.problem.answer(), intake, send)
        except Exception:
            logger.exception("request_met_bug")
            if closing.started:
                raise
            await send_answer(BUG.answer(), intake, send)


class _Closing:
    """Lets an application's answer through, and closes the connection behind it if the body has not ended."""

    __slots__ = ("_intake", "_send", "_unread", "started")

    def __init__(self, intake: Intake, send: Send) -> None:
        self._intake = intake
        self._send = send
        self._unread = False
        self.started = False

    async def send(self, message: Message) -> None:
        """One message of the application's answer."""
        if message["type"] == "http.response.start":
            self.started = True
            self._unread = not self._intake.ended
            if self._unread:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        elif self._unread and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._intake.discard()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)
