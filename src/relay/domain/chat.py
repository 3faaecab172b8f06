"""Chat endpoints: how they are addressed, what their tokens look like, and which of them share one credential.

Owns the forms. A chat's url names the chat and nothing else, like `telegram://-1001234567890` or `discord://4711`; the
token is the endpoint's secret, and the platform's own address is a setting. The url that a platform shows has the token
inside, where it would be seen: such a one is told from any other, and refused. Both become parts of a path, so both are
taken in a form that needs no escaping, or refused. Invariant: reading a chat's url gives that same url again, and
neither a chat nor a token that was accepted can end the part of the path that it stands in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import unquote

from relay.domain.endpoint import Transport
from relay.domain.refusal import Refusal, RefusalReason
from relay.domain.secret import Secret
from relay.domain.signing import InvalidSecret
from relay.domain.target import Target, read_target

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


_PUBLIC_BASES = {
    Transport.TELEGRAM: ("https://api.telegram.org",),
    Transport.DISCORD: ("https://discord.com/api", "https://discordapp.com/api"),
}
"""Where the platforms are for everybody, names below included (`ptb.discord.com`, say)."""

_WITH_A_TOKEN = {
    Transport.TELEGRAM: re.compile(r"/+(?:file/+)?bot(?P<place>)[^/]+"),
    Transport.DISCORD: re.compile(r"/+(?:v[0-9]+/+)?webhooks/+(?P<place>[^/]+)/+[^/]+", re.IGNORECASE),
}
"""What stands after the base address in a url that holds a token."""

_HOW_TO_GIVE = {
    Transport.TELEGRAM: "this is a Telegram bot's url, and whoever sees it has the bot's token: write"
    " telegram:// and the chat's number or a channel's @name, and give the token as `secret` (--secret-file)",
    Transport.DISCORD: "this is a Discord webhook's url, and whoever sees it has the token at its end: write {},"
    " and give the token as `secret` (--secret-file)",
}


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


def refuse_token_in_url(target: Target, bases: Mapping[Transport, str]) -> Refusal | None:
    """The refusal of an http url that is a chat platform's with a token inside; it holds nothing of the token.

    `bases` are the addresses at which the installation has its platforms.
    """
    path = unquote(target.path.partition("?")[0])
    for transport, pattern in _WITH_A_TOKEN.items():
        for base_path in _base_paths(target, (*_PUBLIC_BASES[transport], bases[transport])):
            if path.startswith(base_path) and (found := pattern.match(path, len(base_path))):
                chat = f"discord://{found['place']}" if _is_snowflake(found["place"]) else "discord://ID"
                return Refusal(RefusalReason.CREDENTIAL, _HOW_TO_GIVE[transport].format(chat))
    return None


def _base_paths(target: Target, bases: tuple[str, ...]) -> Iterator[str]:
    """The paths of those bases that are on the target's host."""
    for base in map(read_target, bases):
        if isinstance(base, Target) and (target.host == base.host or target.host.endswith(f".{base.host}")):
            yield base.path.rstrip("/")


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
