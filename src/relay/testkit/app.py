"""The receiver as an ASGI application.

Owns the way of one request: read the body, decide the reply, record, answer. Recording comes before the
answer, so whoever saw an answer finds the request in the record. Invariant: every request whose body came in
whole, to a path that is a mode, is recorded exactly once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl

from relay.domain.secret import Secret
from relay.testkit.acks import Acknowledger
from relay.testkit.answers import Message, Receive, Responder, Send, answer
from relay.testkit.arrivals import Arrival, ArrivalLog, Incoming
from relay.testkit.chats import Chats, shown_path
from relay.testkit.control import Control, Document, Question
from relay.testkit.keyring import Keyring
from relay.testkit.modes import BadOption, ModeRequest, Reply, plan, problem
from relay.testkit.verification import Refusal, verify

LARGEST_BODY = 64 * 1024 * 1024
PATHS_COUNTED = 10_000
_OPTIONS_AT_MOST = 50


class _Gone(Exception):
    """The other side left before its request was complete."""


class _TooLarge(Exception):
    """The body passes `LARGEST_BODY`."""


@dataclass(slots=True)
class _Request:
    """One complete request."""

    method: str
    path: str
    query: str
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def segments(self) -> tuple[str, ...]:
        """The parts of the path between the slashes; empty ones are left out."""
        return tuple(filter(None, self.path.split("/")))

    def options(self) -> Mapping[str, str]:
        """The last value of each option in the query. Raises `BadOption` where there are far too many."""
        if not self.query:
            return {}
        try:
            return dict(parse_qsl(self.query, keep_blank_values=True, max_num_fields=_OPTIONS_AT_MOST))
        except ValueError:
            raise BadOption(f"the query has more than {_OPTIONS_AT_MOST} options") from None


class ReceivingApp:
    """The application; make one with `create_app`. It belongs to the event loop that first calls it."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        keyring: Keyring,
        log: ArrivalLog,
        acknowledger: Acknowledger,
        keep_bodies: bool,
        on_arrival: Callable[[Arrival], None] | None,
    ) -> None:
        self._clock = clock
        self._log = log
        self.keyring = keyring
        self._acknowledger = acknowledger
        self._keep_bodies = keep_bodies
        self._on_arrival = on_arrival
        self._visits: OrderedDict[str, int] = OrderedDict()
        self._responder = Responder(acknowledger)
        self._chats = Chats(clock)
        self._control = Control(log, keyring, acknowledger, self._start_over)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI 3, only HTTP)."""
        if scope["type"] != "http":
            raise NotImplementedError(f"the receiver speaks HTTP, not {scope['type']}")
        try:
            request = await _read(scope, receive)
        except _Gone:
            self._log.note_incomplete()
            return
        except _TooLarge:
            self._log.note_incomplete()
            await answer(problem(413, "too_large", f"at most {LARGEST_BODY} bytes are taken"), send)
            return
        await self._respond(request, scope, receive, send)

    def release(self) -> None:
        """Cut the connections that are held open on purpose (`/hang`, `/trickle`, …), so that a server can
        stop.
        """
        self._responder.release()

    async def close(self) -> None:
        """Give up what runs in the background. Call it after the last request."""
        await self._acknowledger.close()

    async def _respond(self, request: _Request, scope: Message, receive: Receive, send: Send) -> None:
        segments = request.segments
        try:
            options = request.options()
            document = self._control.respond(Question(request.method, segments, options, request.body))
            document = document or self._chats.told(request.method, segments, options)
        except BadOption as bad:
            await answer(problem(400, "bad_option", str(bad)), send)
            return
        if isinstance(document, Document):
            await _send_document(document, send)
            return
        reply: Reply | None = document or self._send_message(request, segments, options)
        reply = reply or self._deliver(request, segments, options)
        if reply is None:
            reply = problem(404, "no_such_mode", "there is no such mode; GET / lists them")
        await self._responder.perform(reply, scope, receive, send)

    def _start_over(self) -> None:
        self._visits.clear()
        self._chats.clear()

    def _send_message(self, request: _Request, segments: tuple[str, ...], options: Mapping[str, str]) -> Reply | None:
        """Answer and record a message to a chat service; None where the path is none of theirs."""
        reply = self._chats.sent(request.method, segments, options, request.body)
        if reply is not None:
            shown = replace(request, path=shown_path(request.path))
            self._record(shown, options, self._clock(), reply.status, None)
        return reply

    def _deliver(self, request: _Request, segments: tuple[str, ...], options: Mapping[str, str]) -> Reply | None:
        """Decide the reply to a delivery and record it; None where the path is no mode."""
        now = self._clock()
        refused: Refusal | None = None
        headers = dict(request.headers)
        mode, rest = segments[0], segments[1:]

        def refusal() -> Refusal | None:
            nonlocal refused
            refused = verify(headers, request.body, self.keyring.secrets_for("/".join(rest)), now=now)
            return refused

        try:
            reply = plan(mode, ModeRequest(request.path, rest, options, headers, self._visit(request.path), refusal))
        except BadOption as bad:
            reply = problem(400, "bad_option", str(bad))
        if reply is not None:
            self._record(request, options, now, reply.status, refused)
        return reply

    def _visit(self, path: str) -> int:
        visit = self._visits.get(path, 0) + 1
        self._visits[path] = visit
        if len(self._visits) > PATHS_COUNTED:
            self._visits.popitem(last=False)
        return visit

    def _record(
        self,
        request: _Request,
        options: Mapping[str, str],
        now: float,
        status: int | None,
        refused: Refusal | None,
    ) -> None:
        arrival = self._log.add(
            Incoming(
                at=now,
                method=request.method,
                path=request.path,
                query=request.query,
                headers=request.headers,
                body=request.body,
                status=status,
                refusal=None if refused is None else refused.reason,
                keep_body=self._keep_bodies or options.get("body") == "1",
            )
        )
        if self._on_arrival is not None:
            self._on_arrival(arrival)


def create_app(
    *,
    clock: Callable[[], float],
    keyring: Keyring | None = None,
    relay_url: str = "http://127.0.0.1:8080",
    api_key: Secret | None = None,
    keep_bodies: bool = False,
    log: ArrivalLog | None = None,
    on_arrival: Callable[[Arrival], None] | None = None,
) -> ReceivingApp:
    """Make a receiver.

    `clock` gives Unix seconds. `keyring` has what `/verify` accepts. `relay_url` and `api_key`
    are where and as whom explicit acks are sent. `keep_bodies` keeps every body, else those of urls with
    `?body=1`. `log` takes other bounds than the default's. `on_arrival` is called on the loop after each
    recording and must not wait.
    """
    return ReceivingApp(
        clock=clock,
        keyring=Keyring() if keyring is None else keyring,
        log=ArrivalLog() if log is None else log,
        acknowledger=Acknowledger(relay_url, api_key),
        keep_bodies=keep_bodies,
        on_arrival=on_arrival,
    )


async def _read(scope: Message, receive: Receive) -> _Request:
    """Read a whole request. Raises `_Gone` or `_TooLarge`."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        chunks, size = [body], len(body)
        while message.get("more_body"):
            message = await receive()
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > LARGEST_BODY:
                raise _TooLarge
        body = b"".join(chunks)
    if message["type"] == "http.disconnect":
        raise _Gone
    return _Request(scope["method"], scope["path"], scope["query_string"].decode("latin-1"), scope["headers"], body)


async def _send_document(document: Document, send: Send) -> None:
    """Send a document piece by piece; between the pieces the loop serves others."""
    await send({"type": "http.response.start", "status": document.status, "headers": [*document.headers]})
    for piece in document.pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body"})
