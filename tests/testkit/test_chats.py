"""Claims about the fakes of chat services: they say no where the real ones do, in their words, and forget tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from relay.testkit import discord, telegram

TOKEN = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
HOOK = "aB3-_xY0aB3-_xY0"
TEXT = {"content": "x"}
ROCKET = "\U0001f680"


def say(client: httpx.Client, text: object, chat: object = 42, token: str = TOKEN) -> httpx.Response:
    return client.post(f"/bot{token}/sendMessage", json={"chat_id": chat, "text": text})


def post(
    client: httpx.Client, message: Mapping[str, object] = TEXT, webhook: str = "4711", *, wait: bool = True
) -> httpx.Response:
    path = f"/api/webhooks/{webhook}/{HOOK}"
    return client.post(path, params={"wait": "true"} if wait else {}, json=message)


def told(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["description"]


def coded(response: httpx.Response) -> tuple[int, int]:
    return response.status_code, response.json()["code"]


def messages(client: httpx.Client, path: str) -> list[Any]:
    data: list[Any] = client.get(path).json()["data"]
    return data


def test_a_telegram_message_is_answered_and_stands_in_its_chat(client: httpx.Client) -> None:
    answer = say(client, "hello")
    assert (answer.status_code, answer.json()["ok"]) == (200, True)
    assert answer.text.startswith('{"ok":true,')
    say(client, "there", "@relay_news")
    assert [(each["to"], each["text"]) for each in messages(client, "/telegram")] == [
        ("42", "hello"),
        ("@relay_news", "there"),
    ]
    assert len(messages(client, "/telegram/42")) == 1


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", (400, "Bad Request: message text is empty")),
        (" \n", (400, "Bad Request: message text is empty")),
        (None, (400, "Bad Request: message text is empty")),
        ("a" * 4097, (400, "Bad Request: message is too long")),
        (ROCKET * 2049, (400, "Bad Request: message is too long")),
        ("a" * 32_769, (400, "Bad Request: text is too long")),
    ],
)
def test_telegram_says_what_is_wrong_with_a_text(client: httpx.Client, text: object, answer: tuple[int, str]) -> None:
    assert told(say(client, text)) == answer
    assert say(client, ROCKET * 2048).status_code == 200


def test_telegram_says_what_is_wrong_with_a_request(client: httpx.Client) -> None:
    assert told(say(client, "x", chat="")) == (400, "Bad Request: chat_id is empty")
    assert told(say(client, "x", token="nonsense")) == (401, "Unauthorized")
    assert told(client.post(f"/bot{TOKEN}/sendPoem")) == (404, "Not Found")
    assert told(client.post(f"/bot{TOKEN}/sendMessage", content=b"\xff{")) == (
        400,
        "Bad Request: can't parse JSON object",
    )
    assert client.post(f"/bot{TOKEN}/getMe").json()["ok"] is True
    assert client.get(f"/bot{TOKEN}/sendMessage").status_code == 405


@pytest.mark.parametrize("error", telegram.ERRORS)
def test_a_chat_answers_the_error_that_it_is_told_to(client: httpx.Client, error: str) -> None:
    assert client.post("/telegram/42", params={"error": error, "times": 1}).status_code == 204
    status, description = telegram.ERRORS[error]
    answer = say(client, "x")
    document = answer.json()
    assert (answer.status_code, document["ok"]) == (status, False)
    assert document["error_code"] == (400 if status == 200 else status)
    assert document["description"] == description.format(1)
    assert say(client, "x").status_code == 200


def test_telegrams_wait_is_in_the_body_and_the_header_may_be_left_out(client: httpx.Client) -> None:
    client.post("/telegram/42?error=too_many&retry_after=35")
    answer = say(client, "x")
    assert (answer.json()["parameters"], answer.headers["retry-after"]) == ({"retry_after": 35}, "35")
    client.post("/telegram/42?error=too_many&retry_after=35&header=0")
    answer = say(client, "x")
    assert (answer.json()["parameters"], "retry-after" in answer.headers) == ({"retry_after": 35}, False)


def test_a_group_takes_twenty_messages_a_minute(client: httpx.Client) -> None:
    answers = [say(client, "x", -1001) for _ in range(21)]
    assert [answer.status_code for answer in answers] == [200] * 20 + [429]
    assert 50 <= answers[-1].json()["parameters"]["retry_after"] <= 60
    assert say(client, "x", 42).status_code == 200


def test_a_group_that_moved_names_its_new_number(client: httpx.Client) -> None:
    client.post("/telegram/-7?error=migrated&migrate_to=-1009")
    assert say(client, "x", -7).json()["parameters"] == {"migrate_to_chat_id": -1009}


def test_a_discord_message_is_answered_and_stands_there(client: httpx.Client) -> None:
    answer = post(client, {"content": "hello"})
    assert (answer.status_code, answer.json()["content"]) == (200, "hello")
    assert post(client, {"content": "there"}, wait=False).status_code == 204
    for path in (f"/webhooks/4711/{HOOK}", f"/api/v10/webhooks/4711/{HOOK}"):
        assert client.post(path, json={"content": "too"}).status_code == 204
    assert [each["text"] for each in messages(client, "/discord/4711")] == ["hello", "there", "too", "too"]


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ({}, (400, 50006)),
        ({"content": ""}, (400, 50006)),
        ({"content": " \n"}, (400, 50006)),
        ({"content": "a" * 2001}, (400, 50035)),
        ({"content": 7}, (400, 50035)),
        ({"embeds": [{}] * 11}, (400, 50035)),
        ({"content": "x", "username": ""}, (400, 50035)),
        ({"content": "x", "username": "Discordia"}, (400, 50035)),
    ],
)
def test_discord_says_what_is_wrong_with_a_message(
    client: httpx.Client, message: dict[str, object], answer: tuple[int, int]
) -> None:
    assert coded(post(client, message)) == answer
    assert post(client, {"content": ROCKET * 2000}).status_code == 200


def test_discord_says_what_is_wrong_with_a_request(client: httpx.Client) -> None:
    assert coded(post(client, webhook="news")) == (400, 50035)
    assert coded(client.post("/api/webhooks/4711/a%20b", json={"content": "x"})) == (401, 50027)
    assert coded(client.post(f"/api/webhooks/4711/{HOOK}", content=b"{")) == (400, 50109)
    assert client.get(f"/api/webhooks/4711/{HOOK}").status_code == 405


@pytest.mark.parametrize("error", discord.ERRORS)
def test_a_webhook_answers_the_error_that_it_is_told_to(client: httpx.Client, error: str) -> None:
    client.post("/discord/4711", params={"error": error, "times": 2})
    status, code, sentence = discord.ERRORS[error]
    for _ in range(2):
        document = post(client).json()
        assert (document["message"], document.get("code", 0)) == (sentence, code)
    assert (post(client).status_code, status) == (200, status)


def test_without_wait_a_message_that_is_not_kept_looks_like_one_that_is(client: httpx.Client) -> None:
    client.post("/discord/4711?error=not_kept")
    assert post(client, wait=False).status_code == 204
    assert post(client).status_code == 400
    assert messages(client, "/discord") == []


def test_a_webhook_takes_five_requests_in_two_seconds_unless_told_otherwise(client: httpx.Client) -> None:
    answers = [post(client) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    limited = answers[-1]
    assert 0 < limited.json()["retry_after"] <= 2
    assert limited.headers["retry-after"] in ("1", "2")
    client.post("/discord/4711?limit=0")
    assert [post(client).status_code for _ in range(9)] == [200] * 9


def test_what_a_message_does_not_forbid_would_ring(client: httpx.Client) -> None:
    text = "@everyone @here <@&12> <@34> <@!56>"
    post(client, {"content": text})
    nobody: dict[str, list[str]] = {"parse": []}
    for allowed in ({}, nobody, {"parse": ["users"]}):
        post(client, {"content": text, "allowed_mentions": allowed})
    pings = [each["pings"] for each in messages(client, "/discord")]
    assert pings == [["@everyone", "@here", "<@&12>", "<@34>", "<@!56>"], [], [], ["<@34>", "<@!56>"]]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/telegram/42?error=unknown_webhook", "unauthorized"),
        ("/discord/4711?error=unauthorized", "unknown_webhook"),
        ("/telegram/42", "an error"),
        ("/telegram?error=blocked", "name the chat"),
        ("/discord/4711?limit=many", "limit"),
        ("/discord/4711?error=forbidden&times=-1", "times"),
        ("/discord/4711?errror=forbidden", "error, times"),
        ("/telegram/42?error=migrated&migrate_to=here", "migrate_to"),
    ],
)
def test_what_cannot_be_told_is_refused_with_what_can(client: httpx.Client, path: str, names: str) -> None:
    answer = client.post(path)
    assert (answer.status_code, names in answer.json()["detail"]) == (400, True)


def test_a_chat_can_be_told_nothing_by_other_methods(client: httpx.Client) -> None:
    assert client.put("/telegram/42").status_code == 405


@pytest.mark.parametrize("path", ["/discord/4711", "/discord", "/received"])
def test_starting_over_forgets_messages_errors_and_limits(client: httpx.Client, path: str) -> None:
    post(client)
    client.post("/discord/4711?error=forbidden")
    client.post("/discord/4711?limit=1")
    assert client.delete(path).status_code == 204
    assert messages(client, "/discord") == []
    assert [post(client).status_code for _ in range(5)] == [200] * 5


def test_what_arrived_is_on_record_with_stars_for_the_tokens(client: httpx.Client) -> None:
    say(client, "x")
    say(client, "x", token="110201543:")
    post(client)
    client.post(f"/api/v10/webhooks/4711/{HOOK}/slack", json={})
    received = client.get("/received").json()["data"]
    assert [(each["path"], each["query"], each["status"]) for each in received] == [
        ("/bot***/sendMessage", "", 200),
        ("/bot***/sendMessage", "", 401),
        ("/api/webhooks/4711/***", "wait=true", 200),
    ]


def test_the_front_page_names_the_chats_and_their_errors(client: httpx.Client) -> None:
    page = client.get("/").text
    assert not [name for name in (*telegram.ERRORS, *discord.ERRORS) if name not in page]
