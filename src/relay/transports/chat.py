"""What the chat transports share: the platforms' addresses, and reading answers whose truth is in their JSON.

Owns the common steps between an answer and its facts. What a code or a sentence means is for `telegram` and `discord`.
That no detail and no snippet holds a token is `hiding`'s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from relay.domain.chat import Chat, check_token, read_chat
from relay.domain.endpoint import Destination
from relay.domain.refusal import Refusal
from relay.domain.sending import Meaning, SendFacts

LONGEST_DETAIL = 300
"""Characters of a platform's sentence that are passed on."""

LONGEST_WISH_SECONDS = 1e9
"""A longer wish counts as this; the judge caps it further."""

_decode = msgspec.json.Decoder(dict[str, object]).decode


@dataclass(frozen=True, slots=True)
class Platforms:
    """The base addresses of the platforms' APIs, without a slash at their end."""

    telegram: str = "https://api.telegram.org"
    discord: str = "https://discord.com/api"


def address_of(destination: Destination) -> Chat:
    """The chat of a destination, checked together with its token. Raises `ValueError`."""
    check_token(destination.transport, destination.secret.expose())
    chat = read_chat(destination.transport, destination.url)
    if isinstance(chat, Refusal):
        raise ValueError(chat.detail)  # noqa: TRY004 - its text is wrong, not its type
    return chat


def body_of(facts: SendFacts) -> Mapping[str, object]:
    """The answer's JSON object; empty where there is none, or where the snippet holds only a part of it."""
    try:
        return _decode(facts.snippet)
    except (msgspec.DecodeError, RecursionError):
        return {}


def wish_of(facts: SendFacts, wished: object) -> SendFacts:
    """The facts with the seconds that the body wishes as their first `Retry-After`, unless a header wishes for more.

    Fractions are rounded up: never earlier than was asked for.
    """
    if isinstance(wished, bool) or not isinstance(wished, int | float) or not wished > 0:
        return facts
    seconds = math.ceil(min(wished, LONGEST_WISH_SECONDS))
    for name, value in facts.headers:
        if name == "retry-after" and value.isascii() and value.isdigit() and int(value[:12]) >= seconds:
            return facts
    return facts._replace(headers=(("retry-after", str(seconds)), *facts.headers))


def told(facts: SendFacts, sentence: object, *, meaning: Meaning | None = None, then: str = "") -> SendFacts:
    """The facts with the platform's sentence as their detail, what they mean, and `then`, what is to be done."""
    text = sentence if isinstance(sentence, str) else ""
    text = "".join(character if character.isprintable() else " " for character in text[:LONGEST_DETAIL]).strip()
    detail = "; ".join(filter(None, (text or facts.detail, then)))
    return facts._replace(detail=detail, meaning=meaning or facts.meaning)
