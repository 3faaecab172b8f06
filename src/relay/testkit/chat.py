"""Fakes of two chat services: what both share, and the requests by which a test or a person has them misbehave.

Owns what the chats remember: their messages, how many requests each may take in a while, and what it is told to answer
next. How a service reads a request and words an answer is in `telegram` and `discord`. Invariant: no token is
remembered, and what is remembered is bounded.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

import msgspec

from relay.testkit.modes import Answer, BadOption, HeaderLines

KEEP_MESSAGES = 10_000
PLACES_KEPT = 10_000
MOST_TIMES = 1_000_000
LONGEST_WAIT_SECONDS = 86_400.0

JSON: HeaderLines = ((b"content-type", b"application/json"),)

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_CHAT = re.compile(r"-?[0-9]{1,19}")
_OPTIONS = ("error", "times", "retry_after", "header", "migrate_to", "limit", "seconds")


@dataclass(frozen=True, slots=True)
class Limit:
    """So many requests in so many seconds; a `number` of 0 is no limit."""

    number: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Script:
    """What to answer instead: an error by its name, with what it says of a wait or of a new place."""

    error: str
    retry_after: float = 1.0
    header: bool = True
    migrate_to: int = -1001


@dataclass(frozen=True, slots=True)
class Message:
    """A message that stands in a chat; `pings` are the mentions in it that would have rung somebody."""

    to: str
    text: str
    pings: tuple[str, ...]
    at: float


@dataclass(slots=True)
class _Place:
    """A chat or a webhook: when it took requests, and what it is to answer. `left` None is for good."""

    limit: Limit
    taken: deque[float] = field(default_factory=deque)
    script: Script | None = None
    left: int | None = None


class Service:
    """The chats of one service. `default_limit` says what a chat takes that nobody set a limit for."""

    def __init__(self, errors: tuple[str, ...], default_limit: Callable[[str], Limit]) -> None:
        self.errors = errors
        self._default_limit = default_limit
        self.forget(None)

    def forget(self, place: str | None) -> None:
        """Start over, or do so for one chat."""
        if place is None:
            self._places: dict[str, _Place] = {}
            self._messages: deque[Message] = deque(maxlen=KEEP_MESSAGES)
        else:
            self._places.pop(place, None)
            self._messages = deque((each for each in self._messages if each.to != place), maxlen=KEEP_MESSAGES)

    def messages(self, place: str | None) -> list[Message]:
        """What stands in the chats, or in one, oldest first."""
        return [each for each in self._messages if place is None or each.to == place]

    def take(self, message: Message) -> int:
        """A message stands in its chat from now on; answers its number."""
        self._messages.append(message)
        return len(self._messages)

    def script_of(self, place: str) -> Script | None:
        """What the chat is to answer to this request, which counts."""
        chat = self._place(place)
        if chat.script is None or chat.left is None:
            return chat.script
        script, chat.left = chat.script, chat.left - 1
        if not chat.left:
            chat.script = chat.left = None
        return script

    def wait_of(self, place: str, now: float) -> float:
        """For how many seconds the chat takes no request; 0 if it takes this one, which counts."""
        chat = self._place(place)
        while chat.taken and chat.taken[0] <= now - chat.limit.seconds:
            chat.taken.popleft()
        if not chat.limit.number:
            return 0.0
        if len(chat.taken) >= chat.limit.number:
            return chat.taken[0] + chat.limit.seconds - now
        chat.taken.append(now)
        return 0.0

    def tell(self, place: str, options: Mapping[str, str]) -> None:
        """Set a limit or what is answered next. Raises `BadOption`."""
        for name in options:
            if name not in _OPTIONS:
                raise BadOption(f"there is no option {name[:40]!r}; there are {', '.join(_OPTIONS)}")
        if not {"error", "limit"} & set(options):
            raise BadOption("give an error to answer with, or a limit")
        error = options.get("error")
        if error is not None and error not in self.errors:
            raise BadOption(f"there is no error {error[:40]!r}; there are {', '.join(self.errors)}")
        chat = self._place(place)
        if "limit" in options:
            chat.limit = Limit(int(_number(options, "limit", 0, MOST_TIMES)), _number(options, "seconds", 2.0))
        if error is not None:
            migrate_to = options.get("migrate_to", "-1001")
            if not _CHAT.fullmatch(migrate_to):
                raise BadOption("migrate_to is the number of a chat")
            chat.script = Script(
                error, _number(options, "retry_after", 1.0), options.get("header", "1") != "0", int(migrate_to)
            )
            chat.left = int(_number(options, "times", 1, MOST_TIMES)) if "times" in options else None

    def _place(self, place: str) -> _Place:
        chat = self._places.get(place)
        if chat is None:
            if len(self._places) >= PLACES_KEPT:
                self._places.clear()
            chat = self._places[place] = _Place(self._default_limit(place))
        return chat


def control(service: Service, method: str, place: str | None, options: Mapping[str, str]) -> Answer | None:
    """Answer a request to a service's control route; None for a method that it does not know. Raises `BadOption`."""
    if method == "GET":
        return json_answer(200, {"data": [asdict(each) for each in service.messages(place)]})
    if method == "POST":
        if place is None:
            raise BadOption("name the chat: /telegram/{chat} or /discord/{webhook}")
        service.tell(place, options)
        return Answer(204, ())
    if method == "DELETE":
        service.forget(place)
        return Answer(204, ())
    return None


def json_answer(status: int, value: object, *headers: tuple[bytes, bytes]) -> Answer:
    """An answer whose body is JSON."""
    return Answer(status, (*JSON, *headers), msgspec.json.encode(value))


def _number(options: Mapping[str, str], name: str, default: float, most: float = LONGEST_WAIT_SECONDS) -> float:
    text = options.get(name)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text) or float(text) > most:
        raise BadOption(f"{name} has to be a number from 0 to {most:g}")
    return float(text)
