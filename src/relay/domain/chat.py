"""Chat endpoints: how they are addressed, what their tokens look like, and which of them share one credential.

Owns the forms. A chat's url names the chat and nothing else, like `telegram://-1001234567890` or `discord://4711`; the
token is the endpoint's secret, and the platform's own address is a setting. Both become parts of a path, so both are
taken in a form that needs no escaping, or refused. Invariant: reading a chat's url gives that same url again, and
neither a chat nor a token that was accepted can end the part of the path that it stands in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from relay.domain.endpoint import Transport
from relay.domain.refusal import Refusal, RefusalReason
from relay.domain.secret import Secret
from relay.domain.signing import InvalidSecret

CHAT_TRANSPORTS = frozenset({Transport.TELEGRAM, Transport.DISCORD})

LONGEST_TOKEN = 256

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_NUMBER = re.compile(r"-?[1-9][0-9]{0,19}")
_CHANNEL = re.compile(r"@[A-Za-z][A-Za-z0-9_]{3,31}")
_HIGHEST_CHAT = 2**63 - 1
_HIGHEST_SNOWFLAKE = 2**64 - 1

_HOW_TO_WRITE = {
    Transport.TELEGRAM: "write telegram:// and the chat's number or a channel's @name, like telegram://-1001234567890",
    Transport.DISCORD: "write discord:// and the webhook's number, like discord://1234567890123456789",
}


@dataclass(frozen=True, slots=True)
class Chat:
    """Where a chat endpoint's messages go. `place` is the chat's or the webhook's number, or a channel's @name."""

    transport: Transport
    place: str

    @property
    def url(self) -> str:
        """The normal form, which is stored and shown."""
        return f"{self.transport}://{self.place}"


@dataclass(frozen=True, slots=True)
class _TokenForm:
    """How a platform writes its tokens; `secret_part` is the group that nobody may see."""

    pattern: re.Pattern[str]
    secret_part: int
    sentence: str


_TOKENS = {
    Transport.TELEGRAM: _TokenForm(
        re.compile(r"[0-9]+:([A-Za-z0-9_-]+)"),
        1,
        "the secret of a telegram endpoint is the bot's token, as its maker shows it: digits, a colon, then letters,"
        " digits, _ and -",
    ),
    Transport.DISCORD: _TokenForm(
        re.compile(r"[A-Za-z0-9_-]+"),
        0,
        "the secret of a discord endpoint is the webhook's token, the last part of its url: letters, digits, _ and -",
    ),
}


def transport_of(url: str) -> Transport:
    """The transport that a url's scheme asks for: `http` for every scheme that is no chat's."""
    scheme = _SCHEME.match(url)
    name = scheme[1].lower() if scheme else ""
    return Transport(name) if name in CHAT_TRANSPORTS else Transport.HTTP


def read_chat(transport: Transport, url: str) -> Chat | Refusal:
    """Read the url of an endpoint of that chat transport. Never raises, whatever the text."""
    scheme = _SCHEME.match(url)
    if scheme is None or scheme[1].lower() != transport:
        return Refusal(RefusalReason.SCHEME, _HOW_TO_WRITE[transport])
    place = url[scheme.end() :]
    if not (_is_chat(place) if transport is Transport.TELEGRAM else _is_snowflake(place)):
        return Refusal(RefusalReason.HOST, _HOW_TO_WRITE[transport])
    return Chat(transport, place)


def _is_chat(place: str) -> bool:
    if _CHANNEL.fullmatch(place):
        return True
    return _NUMBER.fullmatch(place) is not None and -_HIGHEST_CHAT - 1 <= int(place) <= _HIGHEST_CHAT


def _is_snowflake(place: str) -> bool:
    return _NUMBER.fullmatch(place) is not None and 0 < int(place) <= _HIGHEST_SNOWFLAKE


def check_token(transport: Transport, text: str) -> Secret:
    """The token of a chat endpoint. Raises `InvalidSecret`, whose message holds nothing of the text."""
    form = _TOKENS[transport]
    if len(text) > LONGEST_TOKEN or not form.pattern.fullmatch(text):
        raise InvalidSecret(f"{form.sentence}; at most {LONGEST_TOKEN} characters")
    return Secret(text)


def secret_part(transport: Transport, token: Secret) -> str:
    """What of a token must not be seen anywhere; what stands before it is the bot's public number."""
    form = _TOKENS[transport]
    found = form.pattern.fullmatch(token.expose())
    return token.expose() if found is None else found[form.secret_part]


def credential_of(transport: Transport, secret: Secret) -> bytes | None:
    """What tells that two endpoints use one token, so that a platform's 429 to one of them is meant for both.

    A digest, from which nobody gets back to the token. None for `http`, where each endpoint stands alone.
    """
    if transport not in CHAT_TRANSPORTS:
        return None
    return sha256(f"{transport}:{secret.expose()}".encode()).digest()
