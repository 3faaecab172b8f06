"""A fake of Discord's webhooks: `POST /api/webhooks/<id>/<token>` with its documented errors and limits.

Owns the reading of a request and the words of the answers, as Discord has them. Any token of the right form is taken.
It pings whatever a message does not forbid to be pinged, so that a test sees what would have rung. Invariant: without
`wait=true` a message that is not kept is answered like one that is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import msgspec

from relay.testkit.chat import Limit, Message, Script, Service, json_answer
from relay.testkit.modes import Answer

LONGEST_CONTENT = 2000
MOST_EMBEDS = 10
LONGEST_USERNAME = 80

ERRORS: Mapping[str, tuple[int, int, str]] = {
    "unknown_webhook": (404, 10015, "Unknown Webhook"),
    "invalid_token": (401, 50027, "Invalid Webhook Token"),
    "forbidden": (403, 50013, "Missing Permissions"),
    "turned_away": (403, 40333, "Cloudflare is blocking your request."),
    "invalid_form": (400, 50035, "Invalid Form Body"),
    "not_kept": (400, 240000, "Message blocked by harmful links filter"),
    "rate_limited": (429, 0, "You are being rate limited."),
    "server_error": (500, 0, "500: Internal Server Error"),
    "bad_gateway": (502, 0, "502: Bad Gateway"),
}

WEBHOOK_LIMIT = Limit(5, 2.0)
"""Requests that one webhook takes; Discord documents no number, and this one is what it has been seen to do."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_SNOWFLAKE = re.compile(r"[0-9]{1,20}")
_VERSION = re.compile(r"v[0-9]+")
_PINGS = {
    "everyone": re.compile(r"@(?:everyone|here)"),
    "roles": re.compile(r"<@&[0-9]+>"),
    "users": re.compile(r"<@!?[0-9]+>"),
}


def make_service() -> Service:
    """Webhooks by which nothing was said yet."""
    return Service(tuple(ERRORS), lambda _: WEBHOOK_LIMIT)


def webhook_of(segments: tuple[str, ...]) -> tuple[str, str] | None:
    """The id and the token in a webhook's path, None if it is none: `[/api[/v10]]/webhooks/<id>/<token>`."""
    if segments[:1] == ("api",):
        segments = segments[2:] if len(segments) > 1 and _VERSION.fullmatch(segments[1]) else segments[1:]
    if len(segments) != 3 or segments[0] != "webhooks":
        return None
    return segments[1], segments[2]


def respond(service: Service, webhook: str, token: str, *, wait: bool, body: bytes, now: float) -> Answer:
    """Answer the execution of a webhook."""
    if not _SNOWFLAKE.fullmatch(webhook):
        return _invalid("webhook_id", "NUMBER_TYPE_COERCE", "Value is not snowflake.")
    if not _TOKEN.fullmatch(token):
        return _error("invalid_token")
    script = service.script_of(webhook)
    if script is not None:
        return _scripted(script, wait=wait)
    seconds = service.wait_of(webhook, now)
    if seconds:
        return _rate_limited(seconds, header=True)
    try:
        sent = msgspec.json.decode(body, type=dict[str, object])
    except msgspec.DecodeError:
        return json_answer(400, {"message": "The request body contains invalid JSON.", "code": 50109})
    return _check(sent) or _keep(service, webhook, sent, wait=wait, now=now)


def _check(sent: Mapping[str, object]) -> Answer | None:
    """Why the message is refused, None if it is not."""
    content, embeds, username = sent.get("content"), sent.get("embeds"), sent.get("username")
    if content is not None and not isinstance(content, str):
        return _invalid("content", "STRING_TYPE_CONVERT", "Could not interpret as string.")
    if content is not None and len(content) > LONGEST_CONTENT:
        return _invalid("content", "BASE_TYPE_MAX_LENGTH", f"Must be {LONGEST_CONTENT} or fewer in length.")
    if isinstance(embeds, list) and len(embeds) > MOST_EMBEDS:
        return _invalid("embeds", "BASE_TYPE_MAX_LENGTH", f"Must be {MOST_EMBEDS} or fewer in length.")
    if isinstance(username, str) and not 0 < len(username) <= LONGEST_USERNAME:
        return _invalid("username", "BASE_TYPE_BAD_LENGTH", f"Must be between 1 and {LONGEST_USERNAME} in length.")
    if isinstance(username, str) and re.search("clyde|discord", username.lower()):
        return _invalid("username", "USERNAME_INVALID_CONTAINS", "Username cannot contain that.")
    if not (content or "").strip() and not embeds:
        return json_answer(400, {"message": "Cannot send an empty message", "code": 50006})
    return None


def _keep(service: Service, webhook: str, sent: Mapping[str, object], *, wait: bool, now: float) -> Answer:
    content = str(sent.get("content") or "")
    number = service.take(Message(webhook, content, _pings(content, sent.get("allowed_mentions")), now))
    if not wait:
        return Answer(204, ())
    return json_answer(200, {"id": str(number), "type": 0, "content": content, "webhook_id": webhook})


def _pings(content: str, allowed: object) -> tuple[str, ...]:
    """The mentions in a text that would ring."""
    parse = allowed.get("parse", []) if isinstance(allowed, dict) else list(_PINGS)
    return tuple(found for kind, pattern in _PINGS.items() if kind in parse for found in pattern.findall(content))


def _scripted(script: Script, *, wait: bool) -> Answer:
    if script.error == "rate_limited":
        return _rate_limited(script.retry_after, header=script.header)
    if script.error == "not_kept" and not wait:
        return Answer(204, ())
    return _error(script.error)


def _rate_limited(seconds: float, *, header: bool) -> Answer:
    """Seconds with a fraction in the body, rounded up in the header."""
    status, _, sentence = ERRORS["rate_limited"]
    document = {"message": sentence, "retry_after": round(seconds, 3), "global": False}
    headers = ((b"retry-after", b"%d" % math.ceil(seconds)), (b"x-ratelimit-scope", b"user"))
    return json_answer(status, document, *(headers if header else ()))


def _error(name: str) -> Answer:
    status, code, sentence = ERRORS[name]
    return json_answer(status, {"message": sentence, "code": code})


def _invalid(where: str, code: str, sentence: str) -> Answer:
    errors = {where: {"_errors": [{"code": code, "message": sentence}]}}
    status, number, message = ERRORS["invalid_form"]
    return json_answer(status, {"message": message, "code": number, "errors": errors})
