"""Claims about chat endpoints in the API: what they need, what they cannot have, and that their tokens stay inside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from relay.api.deps import ApiDeps
from relay.domain.backoff import FOR_A_DAY
from relay.domain.endpoint import Destination
from relay.domain.ids import ENDPOINT, parse
from relay.transports.chat import Platforms
from tests.api.world import ENDPOINTS, JSON, URL, World
from tests.support.asgi import Reply, call

BOT = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
NEW_BOT = "110201543:BBBdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
HOOK = "aB3-_xY0aB3-_xY0aB3-_xY0"
CHATS = [("telegram://-1001234567890", BOT), ("telegram://@relay_news", BOT), ("discord://4711", HOOK)]
TELEGRAM = {"url": "telegram://42", "secret": BOT}
DISCORD = {"url": "discord://4711", "secret": HOOK}


async def destination(world: World, endpoint: Any) -> Destination:
    """The endpoint as the dispatcher reads it."""
    key = parse(ENDPOINT, endpoint["id"])
    read = (await world.destinations.read([key]))[key]
    assert isinstance(read, Destination)
    return read


def pointers(reply: Reply) -> list[str]:
    assert (reply.status, reply.code) == (422, "invalid"), reply
    return [fault["pointer"] for fault in reply.json()["errors"]]


@pytest.mark.parametrize(("url", "token"), CHATS)
@pytest.mark.parametrize("named", [True, False])
async def test_a_chat_endpoint_needs_a_url_and_a_token(shared_world: World, url: str, token: str, named: bool) -> None:
    transport = url.partition(":")[0]
    made = await shared_world.create(url=url, secret=token, **({"transport": transport} if named else {}))
    assert (made["url"], made["transport"], made["signature"], made["secret"]) == (url, transport, "none", token)
    assert (made["headers"], made["max_in_flight"]) == ({}, 1)
    assert made["name"].startswith(f"{transport}-")
    known = await destination(shared_world, made)
    assert (known.transport, known.url, known.secret.expose()) == (transport, url, token)


async def test_a_chat_is_written_to_slowly_and_for_long_unless_otherwise_wanted(shared_world: World) -> None:
    pace = {"max_in_flight": 1, "rate_per_second": 2.0, "burst": 3, "retry": dict(FOR_A_DAY)}
    made = await shared_world.create(**TELEGRAM)
    assert {name: made[name] for name in pace} == pace
    wanted = {"max_in_flight": 7, "rate_per_second": 10.0, "burst": 20, "retry": None}
    made = await shared_world.create(**DISCORD, **wanted)
    assert {name: made[name] for name in wanted} == wanted


async def test_a_chats_token_is_shown_at_its_creation_and_never_again(world: World) -> None:
    """And it is in no row of the database but for its ciphertext."""
    for fields in (TELEGRAM, DISCORD):
        made = await world.create(**fields)
        path = f"{ENDPOINTS}/{made['id']}"
        replies = [await world.get(path), await world.get(ENDPOINTS), await world.send("PATCH", path, {"burst": 3})]
        hidden = str(fields["secret"]).rpartition(":")[2]
        assert not [reply for reply in replies if hidden.encode() in reply.body]
        for table in ("endpoints", "endpoint_state", "secrets"):
            rows = await world.sql(f"select t::text as row from {table} t")  # noqa: S608 - of the names above
            assert not [row for row in rows if hidden in row["row"]]


@pytest.mark.parametrize("fields", [TELEGRAM, DISCORD])
async def test_what_only_signed_requests_have_is_refused(shared_world: World, fields: dict[str, object]) -> None:
    wanted = {**fields, "signature": "stripe", "headers": {"X-Key": "1"}, "ack": "explicit"}
    assert pointers(await shared_world.send("POST", ENDPOINTS, wanted)) == ["/signature", "/headers", "/ack"]
    made = await shared_world.create(**fields, signature="none", headers={}, ack="response")
    change = {"signature": "relay", "headers": {"X-Key": "1"}}
    refused = await shared_world.send("PATCH", f"{ENDPOINTS}/{made['id']}", change)
    assert pointers(refused) == ["/signature", "/headers"]
    kept = await shared_world.send("PATCH", f"{ENDPOINTS}/{made['id']}", {"signature": "none", "headers": {}})
    assert kept.status == 200


@pytest.mark.parametrize("token", [None, "", "whsec_AAAA=", "110201543:a/../../getMe", "1:a?b", "x" * 257, "1:a\n"])
@pytest.mark.parametrize("url", ["telegram://42", "discord://4711"])
async def test_a_token_that_is_none_is_refused_unquoted(shared_world: World, url: str, token: str | None) -> None:
    wanted = {"url": url, **({} if token is None else {"secret": token})}
    reply = await shared_world.send("POST", ENDPOINTS, wanted)
    assert pointers(reply) == ["/secret"]
    assert not token or token.encode() not in reply.body


@pytest.mark.parametrize(
    ("url", "transport", "reason"),
    [
        ("telegram://", None, "host"),
        ("telegram://general", None, "host"),
        ("discord://x", None, "host"),
        ("discord://4711/token", None, "host"),
        ("discord://4711", "telegram", "scheme"),
        (URL, "telegram", "scheme"),
        (URL, "discord", "scheme"),
        ("telegram://42", "http", "scheme"),
    ],
)
async def test_a_url_that_is_no_chat_of_its_transport_is_refused(
    shared_world: World, url: str, transport: str | None, reason: str
) -> None:
    is_bot = (transport or url).startswith("telegram")
    wanted = {"url": url, "secret": BOT if is_bot else HOOK}
    reply = await shared_world.send("POST", ENDPOINTS, {**wanted, **({"transport": transport} if transport else {})})
    assert (reply.status, reply.code, reply.json()["reason"]) == (422, "url_refused", reason)


PASTED = [
    (f"https://discord.com/api/webhooks/4711/{HOOK}", HOOK, "discord://4711,"),
    (f"https://discordapp.com/api/v10/webhooks/4711/{HOOK}?wait=true", HOOK, "discord://4711,"),
    (f"https://ptb.discord.com/api/webhooks/4711/{HOOK}/slack", HOOK, "discord://4711,"),
    (f"https://canary.discord.com/api//webhooks/4711/{HOOK}", HOOK, "discord://4711,"),
    (f"https://discord.com/api/%77ebhooks/4711/{HOOK}", HOOK, "discord://4711,"),
    (f"https://discord.com/api/Webhooks/x/{HOOK}", HOOK, "discord://ID,"),
    (f"https://api.telegram.org/bot{BOT}/sendMessage?chat_id=42", BOT, "telegram://"),
    (f"https://api.telegram.org/bot{BOT.replace(':', '%3A')}/sendMessage", BOT, "telegram://"),
    (f"https://chats.example.com/telegram/bot{BOT}/sendMessage", BOT, "telegram://"),
    (f"https://chats.example.com/discord/webhooks/4711/{HOOK}", HOOK, "discord://4711,"),
]
"""Urls as the platforms show them, at their own addresses and at the configured ones, with the token and the advice."""


@pytest.fixture
async def world_with_platforms(world: World) -> AsyncIterator[World]:
    """A world whose platforms are at an address of its own."""
    deps: ApiDeps = world.api.state.deps
    base = "https://chats.example.com"
    world.api.state.deps = replace(deps, platforms=Platforms(telegram=f"{base}/telegram", discord=f"{base}/discord"))
    yield world
    world.api.state.deps = deps


@pytest.mark.parametrize(("url", "token", "advice"), PASTED)
async def test_a_platforms_url_with_its_token_is_refused_unquoted_with_how_to_write_it(
    world_with_platforms: World, url: str, token: str, advice: str
) -> None:
    path = f"{ENDPOINTS}/{(await world_with_platforms.create())['id']}"
    for method, where in (("POST", ENDPOINTS), ("PATCH", path)):
        reply = await world_with_platforms.send(method, where, {"url": url})
        assert (reply.status, reply.code, reply.json()["reason"]) == (422, "url_refused", "credential")
        assert advice in reply.json()["detail"]
        assert "--secret-file" in reply.json()["detail"]
        assert token.rpartition(":")[2].encode() not in reply.body


@pytest.mark.parametrize(
    "url",
    [
        f"https://example.com/api/webhooks/4711/{HOOK}",
        "https://discord.com/api/webhooks/4711",
        "https://discord.com/hooks",
        "https://notdiscord.com/api/webhooks/4711/x",
        "https://api.telegram.org/",
    ],
)
async def test_what_only_looks_like_a_platforms_url_is_an_endpoint(world_with_platforms: World, url: str) -> None:
    assert (await world_with_platforms.create(url=url))["url"] == url


async def test_a_group_that_moved_is_followed_and_a_chat_stays_one(shared_world: World) -> None:
    path = f"{ENDPOINTS}/{(await shared_world.create(**TELEGRAM))['id']}"
    moved = await shared_world.send("PATCH", path, {"url": "telegram://-1009876543210"})
    assert (moved.status, moved.json()["url"]) == (200, "telegram://-1009876543210")
    elsewhere = await shared_world.send("PATCH", path, {"url": URL})
    assert (elsewhere.code, elsewhere.json()["reason"]) == ("url_refused", "scheme")


@pytest.mark.parametrize(("fields", "token"), [(TELEGRAM, NEW_BOT), (DISCORD, HOOK + "2")])
async def test_a_chats_new_token_is_given_and_counts_at_once(
    shared_world: World, fields: dict[str, object], token: str
) -> None:
    made = await shared_world.create(**fields)
    path = f"{ENDPOINTS}/{made['id']}/rotate-secret"
    assert pointers(await shared_world.send("POST", path)) == ["/secret"]
    assert pointers(await shared_world.send("POST", path, {})) == ["/secret"]
    assert pointers(await shared_world.send("POST", path, {"secret": "no token"})) == ["/secret"]
    rotated = await shared_world.send("POST", path, {"secret": token})
    assert (rotated.status, rotated.json()["secret"]) == (200, token)
    known = await destination(shared_world, made)
    assert (known.secret.expose(), known.previous_secret) == (token, None)


async def test_a_signing_secret_is_made_and_not_given(shared_world: World) -> None:
    path = f"{ENDPOINTS}/{(await shared_world.create())['id']}/rotate-secret"
    assert pointers(await shared_world.send("POST", path, {"secret": "sixteen letters!"})) == ["/secret"]
    assert pointers(await shared_world.send("POST", path, {"secret": None})) == ["/secret"]
    null = await call(shared_world.app, "POST", path, headers=[JSON], body=b"null")
    assert (null.status, null.code) == (422, "invalid")
    assert (await shared_world.send("POST", path, {})).status == 200


async def test_a_secret_of_an_endpoint_that_nobody_has_is_not_rotated(shared_world: World) -> None:
    path = f"{ENDPOINTS}/ep_{'0' * 32}/rotate-secret"
    assert (await shared_world.send("POST", path, {"secret": BOT})).status == 404


@pytest.fixture
async def private_world(world: World) -> AsyncIterator[World]:
    """A world whose platforms are said to be on loopback."""
    deps: ApiDeps = world.api.state.deps
    base = "https://127.0.0.1"
    world.api.state.deps = replace(deps, platforms=Platforms(telegram=base, discord=base))
    yield world
    world.api.state.deps = deps


@pytest.mark.parametrize("fields", [TELEGRAM, DISCORD])
async def test_a_platforms_private_address_is_refused_like_any_other(
    private_world: World, fields: dict[str, object]
) -> None:
    """C41."""
    reply = await private_world.send("POST", ENDPOINTS, fields)
    assert (reply.status, reply.code, reply.json()["reason"]) == (422, "url_refused", "loopback")
    assert f"RELAY_{str(fields['url']).partition(':')[0].upper()}_URL" in reply.json()["detail"]
    assert str(fields["secret"]).encode() not in reply.body


@pytest.mark.parametrize("fields", [TELEGRAM, DISCORD])
async def test_a_change_of_a_chat_judges_its_platforms_address_too(world: World, fields: dict[str, object]) -> None:
    """C41."""
    path = f"{ENDPOINTS}/{(await world.create(**fields))['id']}"
    deps: ApiDeps = world.api.state.deps
    private = Platforms(telegram="https://10.0.0.1", discord="https://10.0.0.1")
    world.api.state.deps = replace(deps, platforms=private)
    reply = await world.send("PATCH", path, {"url": fields["url"]})
    assert (reply.code, reply.json()["reason"]) == ("url_refused", "private")
