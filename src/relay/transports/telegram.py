"""The `telegram` transport: an event as a message of a bot, by `sendMessage` of Telegram's Bot API.

Owns the message and what the Bot API's answers mean. The text has no markup (`parse_mode` is not set), so whatever an
event holds shows as it was written. Telegram counts characters after the markup is gone; its servers count code points
and its documentation UTF-16 units, so the text is cut by the unit that is safe under both. Success is 200 and
`"ok": true`, which stands first in the answer. Invariant: the token is in the request's url and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

from relay.domain.chat import secret_part
from relay.domain.delivery import ClaimedDelivery
from relay.domain.endpoint import Destination
from relay.domain.sending import Meaning, OutboundRequest, SendFacts
from relay.transports.chat import Platforms, address_of, body_of, told, wish_of
from relay.transports.hiding import STARS, Hidden
from relay.transports.text import Unit, fitted, readable

LONGEST_TEXT = 4096
"""UTF-16 units of a message."""

_OK = re.compile(rb'\s*\{\s*"ok"\s*:\s*true\b')
_STATUSES = range(300, 600)

_GONE = {
    401: "the bot's token is not taken: give the endpoint a good one (rotate-secret), then resume it",
    403: "the bot may not write to this chat: let it in again, then resume the endpoint",
    404: "the bot's token is not taken: give the endpoint a good one (rotate-secret), then resume it",
}


_CHAT_IS_GONE = re.compile(
    r"chat not found|user not found|peer_id_invalid|group chat was deactivated"
    r"|(?:not enough|have no) rights to send|need administrator rights|chat_write_forbidden",
    re.IGNORECASE,
)
"""Sentences of a 400 that are about the chat and so hold for every message; the others are about this one."""

_NO_SUCH_CHAT = (
    "the bot cannot write to this chat: correct the endpoint's url, or let the bot into the chat (in a channel as an"
    " administrator), then resume the endpoint and redrive"
)


@dataclass(frozen=True, slots=True)
class TelegramDestination:
    """A chat made ready to be written to. `hidden` is what must be seen nowhere."""

    url: str = field(repr=False)
    display_url: str
    chat: int | str
    hidden: Hidden = field(repr=False)
    headers: tuple[tuple[str, str], ...]
    timeout_seconds: float
    silence_seconds: float

    def request(self, claimed: ClaimedDelivery, *, timestamp: int, entropy: bytes) -> OutboundRequest:  # noqa: ARG002 - what signed transports need
        """The request of one attempt; see `Prepared`."""
        message = {
            "chat_id": self.chat,
            "text": message_text(claimed),
            "link_preview_options": {"is_disabled": True},
        }
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
) -> TelegramDestination:
    """Make a chat ready. Raises `ValueError` if its url or its token has not the form of one."""
    chat = address_of(destination)
    base, token = platforms.telegram, destination.secret
    return TelegramDestination(
        url=f"{base}/bot{token.expose()}/sendMessage",
        display_url=display_url(platforms),
        chat=chat.place if chat.place.startswith("@") else int(chat.place),
        hidden=Hidden([secret_part(destination.transport, token)]),
        headers=(("Content-Type", "application/json"), ("User-Agent", user_agent)),
        timeout_seconds=timeout_seconds if destination.timeout_seconds is None else destination.timeout_seconds,
        silence_seconds=destination.timeout_seconds or 0.0,
    )


def display_url(platforms: Platforms) -> str:
    """The url that is requested, as it may be shown."""
    return f"{platforms.telegram}/bot{STARS}/sendMessage"


def message_text(claimed: ClaimedDelivery) -> str:
    """What stands in the chat."""
    payload = readable(claimed.payload, claimed.content_type)
    return fitted(f"{claimed.type}\n\n{payload.text}", LONGEST_TEXT, Unit.UTF16, is_whole=payload.is_whole)


def _read(facts: SendFacts) -> SendFacts:
    status = facts.status_code
    if status == 200 and _OK.match(facts.snippet):
        return facts
    body = body_of(facts)
    if status is not None and 200 <= status < 300:
        code = body.get("error_code")
        if not isinstance(code, int) or code not in _STATUSES:
            return told(facts, "", meaning=Meaning.UNPROVEN, then='the answer is no 200 that says "ok": true')
        # the Bot API's status is its error code; whatever stands between made it another
        facts, status = facts._replace(status_code=code), code
    parameters = body.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    facts = wish_of(facts, parameters.get("retry_after"))
    moved_to = parameters.get("migrate_to_chat_id")
    if isinstance(moved_to, int):
        then = f"the group is now telegram://{moved_to}: change the endpoint's url to that, resume it, then redrive"
        return told(facts, body.get("description"), meaning=Meaning.GONE, then=then)
    sentence = body.get("description")
    then = _GONE.get(status or 0, "")
    if status == 400 and isinstance(sentence, str) and _CHAT_IS_GONE.search(sentence):
        then = _NO_SUCH_CHAT
    return told(facts, sentence, meaning=Meaning.GONE if then else None, then=then)
