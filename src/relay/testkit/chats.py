"""The chat services of one receiver, and which requests are theirs.

Owns the paths: those of the services themselves, whose answers `telegram` and `discord` know, and the routes by which
they are told to misbehave. Invariant: a path that holds a token is shown with stars in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from relay.testkit import discord, telegram
from relay.testkit.chat import control
from relay.testkit.modes import Answer, problem

USAGE = f"""\
  POST /bot<token>/sendMessage     a fake of Telegram's Bot API (RELAY_TELEGRAM_URL is this server's address)
  POST /api/webhooks/<id>/<token>  a fake of Discord's webhooks (RELAY_DISCORD_URL is this server's address and /api)
  GET /telegram[/CHAT], GET /discord[/WEBHOOK]
                                   the messages that stand there
  POST /telegram/CHAT?error=NAME&times=1&retry_after=1&header=0&migrate_to=NUMBER
                                   answer that error, for good or so often; NAME is one of
                                   {", ".join(list(telegram.ERRORS)[:6])},
                                   {", ".join(list(telegram.ERRORS)[6:])}
  POST /discord/WEBHOOK?error=NAME&times=1&retry_after=0.5&header=0
                                   the same; NAME is one of
                                   {", ".join(list(discord.ERRORS)[:5])},
                                   {", ".join(list(discord.ERRORS)[5:])}
  POST /discord/WEBHOOK?limit=5&seconds=2
                                   429 past so many requests in so many seconds, 0 for none; as well for a chat
  DELETE /telegram[/CHAT], DELETE /discord[/WEBHOOK]
                                   start over
"""

_TOKEN = re.compile(r"(?<=^/bot)[^/]+|(?<=/webhooks/)([^/]+)/[^/]+")


def shown_path(path: str) -> str:
    """The path with stars for a token in it."""
    return _TOKEN.sub(lambda found: "***" if found[1] is None else f"{found[1]}/***", path)


class Chats:
    """Telegram's and Discord's chats, as far as this receiver plays them. `clock` gives Unix seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._telegram = telegram.make_service()
        self._discord = discord.make_service()

    def clear(self) -> None:
        """Start over."""
        self._telegram.forget(None)
        self._discord.forget(None)

    def told(self, method: str, segments: tuple[str, ...], options: Mapping[str, str]) -> Answer | None:
        """Answer a request to a control route; None if it is none. Raises `BadOption`."""
        if not 1 <= len(segments) <= 2 or segments[0] not in ("telegram", "discord"):
            return None
        service = self._telegram if segments[0] == "telegram" else self._discord
        place = segments[1] if len(segments) == 2 else None
        answer = control(service, method, place, options)
        return answer or problem(405, "method_not_allowed", "this path takes GET, POST, DELETE")

    def sent(self, method: str, segments: tuple[str, ...], options: Mapping[str, str], body: bytes) -> Answer | None:
        """Answer a request to one of the services; None if it is for neither."""
        webhook = discord.webhook_of(segments)
        if webhook is None and not segments[0].startswith("bot"):
            return None
        if method != "POST":
            return problem(405, "method_not_allowed", "this path takes POST")
        if webhook is None:
            return telegram.respond(self._telegram, segments, body, self._clock())
        wait = options.get("wait", "").lower() in ("true", "1")
        return discord.respond(self._discord, *webhook, wait=wait, body=body, now=self._clock())
