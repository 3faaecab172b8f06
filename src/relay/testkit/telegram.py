"""A fake of Telegram's Bot API: `POST /bot<token>/sendMessage` with its documented errors and limits.

Owns the reading of a request and the words of the answers, as the Bot API has them. Any token of the right form is
taken. Where its documentation and its servers count differently, the stricter counts: 4,096 UTF-16 units. Invariant:
every answer is the Bot API's JSON, with the status that its `error_code` says, but for `not_ok`, which lies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import msgspec

from relay.testkit.chat import Limit, Message, Script, Service, json_answer
from relay.testkit.modes import Answer

LONGEST_TEXT_BYTES = 32_768
LONGEST_TEXT = 4096

ERRORS: Mapping[str, tuple[int, str]] = {
    "unauthorized": (401, "Unauthorized"),
    "not_found": (404, "Not Found"),
    "blocked": (403, "Forbidden: bot was blocked by the user"),
    "kicked": (403, "Forbidden: bot was kicked from the supergroup chat"),
    "chat_not_found": (400, "Bad Request: chat not found"),
    "cannot_parse": (400, "Bad Request: can't parse entities: Can't find end of the entity starting at byte offset 7"),
    "migrated": (400, "Bad Request: group chat was upgraded to a supergroup chat"),
    "too_many": (429, "Too Many Requests: retry after {}"),
    "server_error": (500, "Internal Server Error"),
    "bad_gateway": (502, "Bad Gateway"),
    "not_ok": (200, "Bad Request: chat not found"),
}

GROUP_LIMIT = Limit(20, 60.0)
"""Messages that the bot may send to one group or channel (https://core.telegram.org/bots/faq)."""

_BOT = re.compile(r"bot[0-9]+:[A-Za-z0-9_-]+")
_PRIVATE = re.compile(r"[0-9]+")


def _limit_of(chat: str) -> Limit:
    return Limit(0, 1.0) if _PRIVATE.fullmatch(chat) else GROUP_LIMIT


def make_service() -> Service:
    """Chats in which nothing was said yet."""
    return Service(tuple(ERRORS), _limit_of)


def respond(service: Service, segments: tuple[str, ...], body: bytes, now: float) -> Answer:
    """Answer a request to `/bot<token>/<method>`."""
    if len(segments) != 2 or segments[1].lower() not in ("sendmessage", "getme"):
        return _error(404, "Not Found")
    if not _BOT.fullmatch(segments[0]):
        return _error(401, "Unauthorized")
    if segments[1].lower() == "getme":
        return json_answer(200, {"ok": True, "result": {"id": 1, "is_bot": True, "first_name": "Fake"}})
    try:
        sent = msgspec.json.decode(body, type=dict[str, object])
    except msgspec.DecodeError:
        return _error(400, "Bad Request: can't parse JSON object")
    chat = str(sent.get("chat_id") or "")
    if not chat:
        return _error(400, "Bad Request: chat_id is empty")
    script = service.script_of(chat)
    if script is not None:
        return _scripted(script)
    wait = service.wait_of(chat, now)
    return _too_many(wait, header=True) if wait else _send(service, chat, sent.get("text"), now)


def _send(service: Service, chat: str, text: object, now: float) -> Answer:
    if not isinstance(text, str) or not text.strip():
        return _error(400, "Bad Request: message text is empty")
    if len(text.encode()) > LONGEST_TEXT_BYTES:
        return _error(400, "Bad Request: text is too long")
    if len(text.encode("utf-16-le")) // 2 > LONGEST_TEXT:
        return _error(400, "Bad Request: message is too long")
    number = service.take(Message(chat, text, (), now))
    kept = {"message_id": number, "date": int(now), "chat": {"id": chat, "type": "supergroup"}, "text": text}
    return json_answer(200, {"ok": True, "result": kept})


def _scripted(script: Script) -> Answer:
    status, description = ERRORS[script.error]
    if script.error == "too_many":
        return _too_many(script.retry_after, header=script.header)
    if script.error == "migrated":
        return _error(status, description, {"migrate_to_chat_id": script.migrate_to})
    return _error(status, description)


def _too_many(wait: float, *, header: bool) -> Answer:
    seconds = math.ceil(wait)
    status, description = ERRORS["too_many"]
    answer = _error(status, description.format(seconds), {"retry_after": seconds})
    if not header:
        return answer
    return Answer(status, (*answer.headers, (b"retry-after", b"%d" % seconds)), answer.body)


def _error(status: int, description: str, parameters: Mapping[str, int] | None = None) -> Answer:
    code = 400 if status == 200 else status
    document = {"ok": False, "error_code": code, "description": description}
    return json_answer(status, document if parameters is None else {**document, "parameters": parameters})
