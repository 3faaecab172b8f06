"""What a person or a test asks the receiver itself: what arrived, which secrets count, what modes there are.

Owns the routes beside the modes and the JSON of `/received`. Invariant: nothing here changes how a delivery
is answered, but for `/secret` and for `DELETE /received`, which starts the modes over; a long record is
rendered in pieces, so that deliveries are answered meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice

import msgspec

from relay.domain.secret import Secret
from relay.testkit.acks import Acknowledger
from relay.testkit.arrivals import Arrival, ArrivalLog
from relay.testkit.chats import USAGE
from relay.testkit.keyring import EVERYONE, Keyring
from relay.testkit.modes import MODES, Answer, BadOption, HeaderLines, problem

PIECE = 50
"""How many arrivals are rendered without a pause."""

_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_FIRST_INSTANT = 1e9
_FIRST_INSTANT_MS = 1e12
_JSON: HeaderLines = ((b"content-type", b"application/json"),)
_BYTES: HeaderLines = (
    (b"content-type", b"application/octet-stream"),
    (b"x-content-type-options", b"nosniff"),
)
_SECRET_TEXT = re.compile(r"[\x21-\x7e]{1,512}")
_FRONT_PAGE = """\
A receiver for Relay. Any path below a mode will do, so endpoints can be told apart: /ok/ledger-writer.
With ?body=1 the body is kept.

{modes}

  POST /secret[/NAME]              accept the secret in the body on /verify, or on /verify/NAME alone
  DELETE /secret[/NAME]            forget every secret, or those of that name
  GET /received                    what arrived; narrowed by ?since=NUMBER, ?since=INSTANT, ?path=,
                                   ?delivery_id=, ?limit=, ?headers=0
  GET /received/counts             how often each delivery id arrived
  GET /received/DELIVERY_ID/body   the bytes of its last arrival
  DELETE /received                 start over

{chats}"""
_TRUTHS = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON response in pieces."""

    pieces: Iterator[bytes]
    status: int = 200
    headers: HeaderLines = _JSON


@dataclass(frozen=True, slots=True)
class Question:
    """A request to the receiver itself: `segments` is the path, split; `query` has the last value of an option."""

    method: str
    segments: tuple[str, ...]
    query: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Selection:
    """Which arrivals are wanted, and how much of each."""

    is_wanted: Callable[[Arrival], bool]
    limit: int | None
    with_headers: bool


class Control:
    """The receiver's own routes. `start_over` is called when the record is cleared."""

    def __init__(
        self, log: ArrivalLog, keyring: Keyring, acknowledger: Acknowledger, start_over: Callable[[], None]
    ) -> None:
        self._log = log
        self._keyring = keyring
        self._acknowledger = acknowledger
        self._start_over = start_over

    def respond(self, question: Question) -> Answer | Document | None:
        """Answer a question; None where the path is none of the receiver's own. Raises `BadOption`."""
        match question.segments:
            case ():
                routes: Mapping[str, Callable[[], Answer | Document]] = {"GET": _front_page}
            case ("received",):
                routes = {"GET": lambda: self._received(question.query), "DELETE": self._clear}
            case ("received", "counts"):
                routes = {"GET": self._counts}
            case ("received", delivery_id, "body"):
                routes = {"GET": lambda: self._body(delivery_id)}
            case ("secret", *name):
                routes = {
                    "POST": lambda: self._trust("/".join(name), question.body),
                    "DELETE": lambda: self._distrust("/".join(name)),
                }
            case _:
                return None
        respond = routes.get("GET" if question.method == "HEAD" else question.method)
        return _method_not_allowed(routes) if respond is None else respond()

    def _received(self, query: Mapping[str, str]) -> Document:
        selection = _selection(query)
        chosen = filter(selection.is_wanted, self._log.kept())
        arrivals = list(islice(chosen, selection.limit))
        head = {
            "total": self._log.total,
            "dropped": self._log.dropped,
            "incomplete": self._log.incomplete,
            "acks": asdict(self._acknowledger.counts()),
            "next_since": arrivals[-1].number if arrivals else None,
        }
        ids = dict.fromkeys(arrival.delivery_id for arrival in arrivals if arrival.delivery_id is not None)
        counts = {delivery_id: self._log.count(delivery_id) for delivery_id in ids}
        return Document(_pieces(head, arrivals, counts, with_headers=selection.with_headers))

    def _counts(self) -> Document:
        counts = self._log.counts()
        head = {
            "total": self._log.total,
            "distinct": len(counts),
            "forgotten": self._log.forgotten_ids,
            "duplicates": sum(counts.values()) - len(counts),
        }
        return Document(_count_pieces(head, counts))

    def _body(self, delivery_id: str) -> Answer:
        arrival = self._log.latest(delivery_id)
        if arrival is None:
            return problem(404, "not_found", "no arrival with this delivery id is kept")
        if arrival.body is None:
            return problem(404, "body_not_kept", "bodies are kept where the endpoint's url has ?body=1")
        return Answer(200, _BYTES, arrival.body)

    def _clear(self) -> Answer:
        self._log.clear()
        self._start_over()
        return Answer(204, ())

    def _trust(self, name: str, body: bytes) -> Answer:
        text = body.decode("ascii", "replace").strip()
        if not _SECRET_TEXT.fullmatch(text):
            raise BadOption("the body is the secret as text: 1 to 512 visible ASCII characters")
        return _kept(lambda: self._keyring.add(Secret(text), name))

    def _distrust(self, name: str) -> Answer:
        return _kept(lambda: self._keyring.forget(None if name == EVERYONE else name))


def _kept(change: Callable[[], None]) -> Answer:
    """Change the keyring; that it holds only until the receiver stops is worth an error."""
    try:
        change()
    except OSError as fault:
        return problem(500, "not_kept", f"it holds, but only until the receiver stops: {fault.strerror}")
    return Answer(204, ())


def _front_page() -> Answer:
    modes = "\n".join(f"  {mode.usage:<32} {mode.summary}" for mode in MODES.values())
    return Answer(200, body=_FRONT_PAGE.format(modes=modes, chats=USAGE).encode())


def _method_not_allowed(methods: Iterable[str]) -> Answer:
    allowed = ", ".join(methods)
    refusal = problem(405, "method_not_allowed", f"this path takes {allowed}")
    return Answer(405, (*refusal.headers, (b"allow", allowed.encode())), refusal.body)


def _pieces(
    head: Mapping[str, object], arrivals: Sequence[Arrival], counts: Mapping[str, int], *, with_headers: bool
) -> Iterator[bytes]:
    """The document of `/received`, `PIECE` arrivals at a time."""
    yield msgspec.json.encode(head)[:-1] + b',"data":['
    for start in range(0, len(arrivals), PIECE):
        rendered = [_render(arrival, with_headers=with_headers) for arrival in arrivals[start : start + PIECE]]
        yield (b"," if start else b"") + msgspec.json.encode(rendered)[1:-1]
    yield from _count_pieces(None, counts)


def _count_pieces(head: Mapping[str, object] | None, counts: Mapping[str, int]) -> Iterator[bytes]:
    """The end of a document: its `counts`. It is a document of its own where there is a `head`."""
    yield (b"]" if head is None else msgspec.json.encode(head)[:-1]) + b',"counts":{'
    remaining, separator = iter(counts.items()), b""
    while piece := dict(islice(remaining, 10 * PIECE)):
        yield separator + msgspec.json.encode(piece)[1:-1]
        separator = b","
    yield b"}}"


def _render(arrival: Arrival, *, with_headers: bool) -> dict[str, object]:
    """One arrival as JSON. A header that came more than once is joined by commas and named in
    `repeated_headers`.
    """
    rendered: dict[str, object] = {
        "number": arrival.number,
        "at": datetime.fromtimestamp(arrival.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "method": arrival.method,
        "path": arrival.path,
        "query": arrival.query,
        "delivery_id": arrival.delivery_id,
        "receipt_id": arrival.header("relay-receipt-id"),
        "event_id": arrival.header("relay-event-id"),
        "count": arrival.count,
        "size": arrival.size,
        "sha256": arrival.sha256,
        "status": arrival.status,
        "refusal": arrival.refusal,
    }
    if with_headers:
        values: dict[str, list[str]] = {}
        for name, value in arrival.headers:
            values.setdefault(name, []).append(value)
        rendered["headers"] = {name: ", ".join(lines) for name, lines in values.items()}
        rendered["repeated_headers"] = [name for name, lines in values.items() if len(lines) > 1]
    return rendered


def _selection(query: Mapping[str, str]) -> _Selection:
    """Read the options of `/received`. Raises `BadOption` for an unknown one, naming those that there are."""
    known = ("since", "path", "delivery_id", "limit", "headers")
    for name in query:
        if name not in known:
            raise BadOption(f"there is no option {name[:40]!r}; there are {', '.join(known)}")
    limit = query.get("limit")
    if limit is not None and not re.fullmatch(r"[0-9]{1,9}", limit):
        raise BadOption("limit has to be a whole number")
    headers = _TRUTHS.get(query.get("headers", "1"))
    if headers is None:
        raise BadOption("headers is 1 or 0")
    return _Selection(_filter(query), None if limit is None else int(limit), headers)


def _filter(query: Mapping[str, str]) -> Callable[[Arrival], bool]:
    is_since = _since(query["since"]) if "since" in query else _always
    path, delivery_id = query.get("path"), query.get("delivery_id")
    return lambda arrival: (
        (path is None or arrival.path == path)
        and (delivery_id is None or arrival.delivery_id == delivery_id)
        and is_since(arrival)
    )


def _since(text: str) -> Callable[[Arrival], bool]:
    """Read `since`: a small number is an arrival's (those after it are meant), else it is an instant (from it
    on).

    Instants are RFC 3339, or Unix seconds or milliseconds.
    """
    if not _NUMBER.fullmatch(text):
        return _since_instant(text)
    number = float(text)
    if number < _FIRST_INSTANT:
        return lambda arrival: arrival.number > number
    instant = number / 1000 if number >= _FIRST_INSTANT_MS else number
    return lambda arrival: arrival.at >= instant


def _since_instant(text: str) -> Callable[[Arrival], bool]:
    try:
        # A plus sign that was not escaped in the query arrives as a space.
        moment = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        raise BadOption("since is the number of an arrival, an RFC 3339 time or Unix seconds") from None
    instant = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return lambda arrival: arrival.at >= instant


def _always(_: Arrival) -> bool:
    return True
