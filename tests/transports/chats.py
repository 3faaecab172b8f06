"""A Telegram chat and a Discord webhook made ready, events for them, and what becomes of their answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from relay.domain.delivery import ClaimedDelivery
from relay.domain.endpoint import Destination, SignatureProfile, Transport
from relay.domain.secret import Secret
from relay.domain.sending import SendFacts
from relay.transports.chat import Platforms
from relay.transports.prepared import Prepared, prepare
from tests.transports.samples import AT, CLAIMED, DESTINATION, ENTROPY

BOT_SECRET = "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
BOT = f"110201543:{BOT_SECRET}"
HOOK = "aB3-_xY0aB3-_xY0aB3-_xY0"
PLATFORMS = Platforms(telegram="https://telegram.example", discord="https://discord.example/api")

_CHAT = {"signature": SignatureProfile.NONE, "headers": (), "previous_secret": None}
TELEGRAM = replace(
    DESTINATION,
    transport=Transport.TELEGRAM,
    url="telegram://-1001234567890",
    secret=Secret(BOT),
    **_CHAT,  # type: ignore[arg-type]  # fields of different types in one mapping
)
DISCORD = replace(
    DESTINATION,
    transport=Transport.DISCORD,
    url="discord://4711",
    secret=Secret(HOOK),
    **_CHAT,  # type: ignore[arg-type]  # fields of different types in one mapping
)


def ready(destination: Destination) -> Prepared:
    """The destination as the dispatcher keeps it."""
    return prepare(destination, user_agent="Relay/1.2.3", timeout_seconds=10.0, platforms=PLATFORMS)


def event(payload: bytes | str, content_type: str = "text/plain", **changes: Any) -> ClaimedDelivery:
    """A claimed delivery of that payload."""
    body = payload.encode() if isinstance(payload, str) else payload
    return CLAIMED._replace(payload=body, content_type=content_type, **changes)


def message(destination: Destination, claimed: ClaimedDelivery) -> dict[str, Any]:
    """The JSON that is sent for it."""
    request = ready(destination).request(claimed, timestamp=AT, entropy=ENTROPY)
    sent: dict[str, Any] = json.loads(request.body)
    return sent


def shown(destination: Destination, claimed: ClaimedDelivery) -> str:
    """The text that stands in the chat."""
    sent = message(destination, claimed)
    text: str = sent["text" if destination.transport is Transport.TELEGRAM else "content"]
    return text


def read(destination: Destination, status: int, body: object, *headers: tuple[str, str]) -> SendFacts:
    """What the transport makes of an answer."""
    snippet = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return ready(destination).read(SendFacts(status, headers=headers, snippet=snippet))
