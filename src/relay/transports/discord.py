"""The `discord` transport: an event as a message of a webhook, by Discord's "execute webhook".

Owns the message and what Discord's answers mean. The payload stands in a code block, where Discord changes nothing of
it, and `allowed_mentions` is empty on every request, so that no text of an event can ping anybody. `wait=true` is what
makes Discord say whether the message is there; without it even a message that it drops is a 204. Invariant: the token
is in the request's url and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

from relay.domain.chat import Chat, secret_part
from relay.domain.delivery import ClaimedDelivery
from relay.domain.endpoint import Destination
from relay.domain.sending import Meaning, OutboundRequest, SendFacts
from relay.transports.chat import Platforms, address_of, body_of, told, wish_of
from relay.transports.hiding import STARS, Hidden
from relay.transports.text import Unit, fitted, readable

LONGEST_CONTENT = 2000
"""Code points of a message."""

SUPPRESS_EMBEDS = 1 << 2
"""The flag of a message whose links bring no previews."""

BLOCKED_SECONDS = 600
"""How long nothing is sent by a webhook after Discord's front has turned this machine away: the time over which it
counts invalid requests."""

_FENCE = "```"
_FENCES = re.compile("`{3,}")
_BLOCKED_CODE = 40333

_GONE = {
    401: "the webhook's token is not taken: give the endpoint a good one (rotate-secret), then resume it",
    403: "the webhook may not write to its channel: allow it again, then resume the endpoint",
    404: "there is no such webhook: give the endpoint another url and token, then resume it",
}

_FORUM_CODES = frozenset({220001, 220003})
"""Of a 400: the webhook's channel takes threads and no messages, whatever they say."""
_FORUM = "the webhook's channel takes no plain messages: give the endpoint a text channel's webhook, then resume it"


@dataclass(frozen=True, slots=True)
class DiscordDestination:
    """A webhook made ready to be written to. `hidden` is what must be seen nowhere."""

    url: str = field(repr=False)
    display_url: str
    hidden: Hidden = field(repr=False)
    headers: tuple[tuple[str, str], ...]
    timeout_seconds: float
    silence_seconds: float

    def request(self, claimed: ClaimedDelivery, *, timestamp: int, entropy: bytes) -> OutboundRequest:  # noqa: ARG002 - what signed transports need
        """The request of one attempt; see `Prepared`."""
        message = {"content": content(claimed), "allowed_mentions": {"parse": []}, "flags": SUPPRESS_EMBEDS}
        return OutboundRequest(
            url=self.url,
            display_url=self.display_url,
            headers=self.headers,
            body=msgspec.json.encode(message),
            timeout_seconds=self.timeout_seconds,
            silence_seconds=self.silence_seconds,
        )

    def read(self, facts: SendFacts) -> SendFacts:
        """What the answer means; see `Prepared`."""
        return facts if facts.status_code is None else self.hidden.taken_out_of(_read(facts))


def prepare(
    destination: Destination, *, user_agent: str, timeout_seconds: float, platforms: Platforms
) -> DiscordDestination:
    """Make a webhook ready. Raises `ValueError` if its url or its token has not the form of one."""
    webhook = address_of(destination)
    return DiscordDestination(
        url=_url(platforms, webhook, destination.secret.expose()),
        display_url=display_url(platforms, webhook),
        hidden=Hidden([secret_part(destination.transport, destination.secret)]),
        headers=(("Content-Type", "application/json"), ("User-Agent", user_agent)),
        timeout_seconds=timeout_seconds if destination.timeout_seconds is None else destination.timeout_seconds,
        silence_seconds=destination.timeout_seconds or 0.0,
    )


def display_url(platforms: Platforms, webhook: Chat) -> str:
    """The url that is requested, as it may be shown."""
    return _url(platforms, webhook, STARS)


def _url(platforms: Platforms, webhook: Chat, token: str) -> str:
    return f"{platforms.discord}/webhooks/{webhook.place}/{token}?wait=true"


def content(claimed: ClaimedDelivery) -> str:
    """What stands in the channel."""
    payload = readable(claimed.payload, claimed.content_type)
    lead = _literal(claimed.type)
    if payload.is_note:
        return fitted(f"{lead}\n{payload.text}", LONGEST_CONTENT, Unit.CODE_POINTS)
    before, after = f"{lead}\n{_FENCE}{'json' if payload.is_json else ''}\n", f"\n{_FENCE}"
    # a fence inside would end the block: a space without width keeps its backticks apart
    text = _FENCES.sub(lambda found: "\N{ZERO WIDTH SPACE}".join(found[0]), payload.text)
    room = LONGEST_CONTENT - len(before) - len(after)
    return before + fitted(text, room, Unit.CODE_POINTS, is_whole=payload.is_whole) + after


def _literal(event_type: str) -> str:
    """The type as Discord shows it unchanged: an underscore at the edge of a word would slant or underline it."""
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", event_type)


def _read(facts: SendFacts) -> SendFacts:
    status = facts.status_code
    if status in (200, 204):
        return facts
    if status is not None and 200 <= status < 300:
        return told(facts, "", meaning=Meaning.UNPROVEN, then="Discord answers a message that is there with 200 or 204")
    body = body_of(facts)
    code, sentence = body.get("code"), body.get("message")
    if isinstance(code, int) and code and isinstance(sentence, str):
        sentence = f"{sentence} ({code})"
    facts = wish_of(facts, body.get("retry_after"))
    if status == 403 and (code == _BLOCKED_CODE or _is_page(facts)):
        then = "Discord turns away this machine, not this webhook"
        return told(wish_of(facts, BLOCKED_SECONDS), sentence, meaning=Meaning.THROTTLED, then=then)
    then = _FORUM if status == 400 and code in _FORUM_CODES else _GONE.get(status or 0, "")
    return told(facts, sentence, meaning=Meaning.GONE if then else None, then=then)


def _is_page(facts: SendFacts) -> bool:
    """Whether a page for people answered in the API's place, as the front before it has them."""
    return any(name == "content-type" and value.startswith("text/html") for name, value in facts.headers)
