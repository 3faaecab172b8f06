"""Chat endpoints on their way, on a real database and real sockets, to fakes of both services with their limits."""

from __future__ import annotations

import json
import logging
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from relay.domain.delivery import DeadReason, DeliveryStatus
from relay.domain.egress import EgressPolicy
from relay.domain.endpoint import EndpointState
from relay.domain.receipt import ReceiptOutcome
from relay.domain.secret import Secret
from relay.domain.telemetry import (
    AttemptsRecorded,
    DeadLettered,
    EndpointDisabled,
    LaneHeld,
    ReceiptsClosed,
    RetriesScheduled,
)
from relay.transports.chat import Platforms
from tests.dispatcher.test_redriving import press, tried
from tests.support.deliveries import new_id
from tests.support.dispatching import OPEN, TENANT, House
from tests.support.forbidden import Trap
from tests.support.receiver import Receiver

BOT = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
HOOK = "aB3-_xY0aB3-_xY0aB3-_xY0"
GROUP = "telegram://-1001234567890"
TELEGRAM, DISCORD = (GROUP, BOT), ("discord://4711", HOOK)
BOTH = pytest.mark.parametrize(("url", "secret"), [TELEGRAM, DISCORD])
CONTROL = {GROUP: "/telegram/-1001234567890", "discord://4711": "/discord/4711"}
STRICT = EgressPolicy(require_https=False, allowed_ports=None)


def platforms(receiver: Receiver) -> Platforms:
    """Both services, played by the receiver."""
    return Platforms(telegram=receiver.url(""), discord=receiver.url("/api"))


def tell(receiver: Receiver, path: str) -> None:
    """Have a chat misbehave."""
    assert httpx.post(receiver.url(path), trust_env=False).status_code == 204


def told(receiver: Receiver, path: str) -> list[Any]:
    """The messages that stand there."""
    data: list[Any] = httpx.get(receiver.url(path), trust_env=False).json()["data"]
    return data


def closed(house: House) -> int:
    return sum(each.count for each in house.heard(ReceiptsClosed))


def attempts(house: House) -> int:
    return sum(len(each.attempts) for each in house.heard(AttemptsRecorded))


@BOTH
async def test_an_event_becomes_a_message_and_its_receipt_closes(
    house: House, receiver: Receiver, url: str, secret: str
) -> None:
    endpoint = await house.chat(url, secret=secret)
    async with house.dispatching(platforms=platforms(receiver)):
        receipt = await house.event(endpoint, payload=b'{"amount":1.0}')
        await house.until(lambda: closed(house) == 1)
    assert (await house.receipt(receipt)).outcome is ReceiptOutcome.DELIVERED
    (message,) = told(receiver, CONTROL[url])
    assert message["text"].startswith("order.paid\n")
    assert '"amount": 1.0' in message["text"]
    (attempt,) = await house.receipts.attempts(await house.delivery(receipt))
    assert attempt.status_code == 200
    assert attempt.display_url in (
        receiver.url("/bot***/sendMessage"),
        receiver.url("/api/webhooks/4711/***?wait=true"),
    )


@BOTH
@pytest.mark.parametrize("payload", [b"", b"\xff\xfe", b" ", "\U0001f680".encode() * 9000, b'"' + b"x" * 9000 + b'"'])
async def test_whatever_the_payload_is_the_service_takes_the_message(
    house: House, receiver: Receiver, url: str, secret: str, payload: bytes
) -> None:
    """C136: the fake counts UTF-16 units and refuses what is longer."""
    endpoint = await house.chat(url, secret=secret)
    async with house.dispatching(platforms=platforms(receiver)):
        await house.event(endpoint, payload=payload)
        await house.until(lambda: closed(house) == 1)
    assert attempts(house) == 1


GONE = [
    (TELEGRAM, "unauthorized", "401: Unauthorized"),
    (TELEGRAM, "not_found", "404: Not Found"),
    (TELEGRAM, "chat_not_found", "400: Bad Request: chat not found; the bot cannot write"),
    (TELEGRAM, "not_ok", "400: Bad Request: chat not found; the bot cannot write"),
    (TELEGRAM, "blocked", "403: Forbidden: bot was blocked by the user"),
    (DISCORD, "unknown_webhook", "404: Unknown Webhook (10015)"),
    (DISCORD, "invalid_token", "401: Invalid Webhook Token (50027)"),
    (DISCORD, "forbidden", "403: Missing Permissions (50013)"),
]


@pytest.mark.parametrize(("chat", "error", "words"), GONE)
async def test_a_chat_that_is_gone_is_disabled_and_what_else_it_is_owed_is_held(
    house: House, receiver: Receiver, chat: tuple[str, str], error: str, words: str
) -> None:
    """One bad token must not go on: too many of its answers get this machine banned for all."""
    url, secret = chat
    endpoint = await house.chat(url, secret=secret, max_in_flight=1)
    tell(receiver, f"{CONTROL[url]}?error={error}")
    async with house.dispatching(platforms=platforms(receiver)):
        receipts = await house.events(3, endpoint)
        await house.until(lambda: bool(house.heard(EndpointDisabled)))
        await house.event(await house.endpoint(receiver.url("/ok")))
        await house.until(lambda: closed(house) == 1)
    deliveries = [await house.delivery(receipt) for receipt in receipts]
    statuses = sorted(delivery.status for delivery in deliveries)
    assert statuses == [DeliveryStatus.DEAD, DeliveryStatus.PENDING, DeliveryStatus.PENDING]
    (dead,) = [delivery for delivery in deliveries if delivery.status is DeliveryStatus.DEAD]
    assert (dead.dead_reason, dead.attempts) == (DeadReason.PERMANENT_FAILURE, 1)
    assert (dead.last_error or "").startswith(words)
    known = await house.endpoints.get(TENANT, endpoint)
    assert known is not None
    assert (known.state, known.state_reason) == (EndpointState.DISABLED, f"the endpoint answered {dead.last_error}")


PERMANENT = [
    (TELEGRAM, "cannot_parse", "400: Bad Request: can't parse entities"),
    (DISCORD, "invalid_form", "400: Invalid Form Body (50035)"),
    (DISCORD, "not_kept", "400: Message blocked by harmful links filter (240000)"),
]


@pytest.mark.parametrize(("chat", "error", "words"), PERMANENT)
async def test_a_message_that_is_refused_is_not_tried_again(
    house: House, receiver: Receiver, chat: tuple[str, str], error: str, words: str
) -> None:
    """C139: no 20 retries of a hopeless 400; the next message goes on."""
    url, secret = chat
    endpoint = await house.chat(url, secret=secret)
    tell(receiver, f"{CONTROL[url]}?error={error}&times=1")
    async with house.dispatching(platforms=platforms(receiver)):
        receipt = await house.event(endpoint)
        await house.until(lambda: bool(house.heard(DeadLettered)))
        await house.event(endpoint)
        await house.until(lambda: closed(house) == 1)
    delivery = await house.delivery(receipt)
    assert (delivery.dead_reason, delivery.attempts) == (DeadReason.PERMANENT_FAILURE, 1)
    assert (delivery.last_error or "").startswith(words)


@pytest.mark.parametrize(("chat", "error"), [(TELEGRAM, "bad_gateway"), (DISCORD, "server_error")])
async def test_trouble_of_the_service_is_waited_out(
    house: House, receiver: Receiver, chat: tuple[str, str], error: str
) -> None:
    url, secret = chat
    endpoint = await house.chat(url, secret=secret)
    tell(receiver, f"{CONTROL[url]}?error={error}&times=2")
    async with house.dispatching(platforms=platforms(receiver)):
        receipt = await house.event(endpoint)
        await house.until(lambda: closed(house) == 1)
    assert (await house.delivery(receipt)).attempts == 3


async def test_a_group_that_moved_is_told_with_its_new_id_and_followed(house: House, receiver: Receiver) -> None:
    endpoint = await house.chat(GROUP, secret=BOT)
    tell(receiver, f"{CONTROL[GROUP]}?error=migrated&migrate_to=-1009876543210")
    async with house.dispatching(platforms=platforms(receiver)):
        receipt = await house.event(endpoint)
        await house.until(lambda: bool(house.heard(EndpointDisabled)))
        error = (await house.delivery(receipt)).last_error or ""
        assert "telegram://-1009876543210" in error
        moved = "update endpoints set url = 'telegram://-1009876543210', revision = revision + 1 where id = $1"
        await house.execute(moved, endpoint)
        await house.endpoints.set_state(TENANT, endpoint, EndpointState.ACTIVE)
        await press(house, (await house.delivery(receipt)).id)
        await house.until(lambda: closed(house) == 1)
    assert len(told(receiver, "/telegram/-1009876543210")) == 1


@pytest.mark.parametrize(("chat", "error"), [(TELEGRAM, "too_many"), (DISCORD, "rate_limited")])
@pytest.mark.parametrize("header", [0, 1])
async def test_a_wait_that_only_the_body_names_holds_the_lane(
    house: House, receiver: Receiver, chat: tuple[str, str], error: str, header: int
) -> None:
    """C144: and a 429 counts for no failure of the endpoint."""
    url, secret = chat
    endpoint = await house.chat(url, secret=secret, max_in_flight=1)
    tell(receiver, f"{CONTROL[url]}?error={error}&retry_after=34.2&header={header}")
    async with house.dispatching(platforms=platforms(receiver)):
        receipts = await house.events(3, endpoint)
        await house.until(lambda: bool(house.heard(LaneHeld)))
        await house.event(await house.endpoint(receiver.url("/ok")))
        await house.until(lambda: closed(house) == 1)
    assert (house.heard(LaneHeld)[0].seconds, house.heard(RetriesScheduled)[0].count) == (35, 1)
    views = [await house.delivery(receipt) for receipt in receipts]
    assert sorted(view.attempts for view in views) == [0, 0, 1]
    assert {view.held_reason for view in views} == {"retry_after"}


NEIGHBOURS = [
    (TELEGRAM, "too_many", ("telegram://-1002", BOT), ("telegram://-1003", f"{BOT}x")),
    (DISCORD, "rate_limited", ("discord://4711", HOOK), ("discord://4712", f"{HOOK}x")),
]


@pytest.mark.parametrize(("chat", "error", "neighbour", "stranger"), NEIGHBOURS)
async def test_a_429_holds_every_lane_with_that_token_and_no_other(
    house: House,
    receiver: Receiver,
    chat: tuple[str, str],
    error: str,
    neighbour: tuple[str, str],
    stranger: tuple[str, str],
) -> None:
    """C144: all other deliveries with the same bot token are held too, and go on when the time is over."""
    held, same, other = [
        await house.chat(url, secret=secret, max_in_flight=1) for url, secret in (chat, neighbour, stranger)
    ]
    tell(receiver, f"{CONTROL[chat[0]]}?error={error}&retry_after=600&times=1")
    async with house.dispatching(platforms=platforms(receiver)):
        first = await house.event(held)
        await house.until(lambda: bool(house.heard(LaneHeld)))
        second = await house.event(same, other)
        await house.until(lambda: attempts(house) == 2)
        waiting = {each.endpoint_id: each for each in (await house.receipt(second)).deliveries}
        assert (waiting[same].attempts, waiting[same].held_reason) == (0, "retry_after")
        assert (waiting[other].status, waiting[other].attempts) == (DeliveryStatus.DELIVERED, 1)
        assert (await house.delivery(first)).held_reason == "retry_after"
        await house.pass_time(600)
        await house.until(lambda: closed(house) == 2)


async def test_a_new_token_is_another_credential(house: House, receiver: Receiver) -> None:
    """The hold of the old one is not its own."""
    held, moved = [await house.chat(url, secret=BOT, max_in_flight=1) for url in (GROUP, "telegram://-1002")]
    await house.endpoints.rotate_secret(TENANT, moved, secret_id=new_id(), secret=Secret(f"{BOT}x"), overlap_seconds=0)
    tell(receiver, f"{CONTROL[GROUP]}?error=too_many&retry_after=600")
    async with house.dispatching(platforms=platforms(receiver)):
        await house.event(held)
        await house.until(lambda: bool(house.heard(LaneHeld)))
        await house.event(moved)
        await house.until(lambda: closed(house) == 1)


BURSTS = [
    (DISCORD, "/discord/4711?limit=5&seconds=0.4", 1),
    (DISCORD, "/discord/4711?limit=5&seconds=0.4", 3),
    (TELEGRAM, f"{CONTROL[GROUP]}?limit=20&seconds=2", 3),
]


@pytest.mark.parametrize(("chat", "limit", "dispatchers"), BURSTS)
async def test_a_burst_past_the_limit_arrives_whole_without_beating_on_it(
    house: House, receiver: Receiver, chat: tuple[str, str], limit: str, dispatchers: int
) -> None:
    """C138, C144: 30 at once by way of many connections, where the service takes a few in a while."""
    url, secret = chat
    tell(receiver, limit)
    endpoint = await house.chat(url, secret=secret, max_in_flight=32, rate_per_second=1000.0, burst=1000)
    async with AsyncExitStack() as running:
        for _ in range(dispatchers):
            await running.enter_async_context(house.dispatching(platforms=platforms(receiver)))
        await house.events(30, endpoint)
        await house.until(lambda: closed(house) == 30, within=45)
    assert len(told(receiver, CONTROL[url])) == 30
    assert house.heard(DeadLettered) == []
    assert attempts(house) < 30 * 12 / 2


@BOTH
async def test_a_message_that_is_sent_again_by_hand_is_a_real_request(
    house: House, receiver: Receiver, url: str, secret: str
) -> None:
    """C87: dead, then delivered, then held by a pause, where it waits and says why."""
    endpoint = await house.chat(url, secret=secret)
    tell(receiver, f"{CONTROL[url]}?error={'cannot_parse' if url == GROUP else 'invalid_form'}&times=1")
    async with house.dispatching(platforms=platforms(receiver)):
        receipt = await house.event(endpoint)
        await tried(house, 1)
        delivery = (await house.delivery(receipt)).id
        for times in (2, 3):
            await press(house, delivery)
            await tried(house, times)
        assert len(told(receiver, CONTROL[url])) == 2
        await house.endpoints.set_state(TENANT, endpoint, EndpointState.PAUSED)
        await press(house, delivery)
        held = await house.delivery(receipt)
        assert (held.status, held.endpoint_state) == (DeliveryStatus.PENDING, EndpointState.PAUSED)
        await house.endpoints.set_state(TENANT, endpoint, EndpointState.ACTIVE)
        await tried(house, 4)
    assert len(told(receiver, CONTROL[url])) == 3


async def test_every_request_to_discord_forbids_mentions_on_the_wire(house: House, receiver: Receiver) -> None:
    """C141: the first send, the retry and the replay, of a message that is cut and of one that is not."""
    pings = b'{"title":"@everyone","body":"@here <@&123456789012345678> <@123456789012345678> [](@everyone)"}'
    endpoint = await house.chat("discord://4711", secret=HOOK)
    tell(receiver, "/discord/4711?error=server_error&times=1")
    async with house.dispatching(platforms=platforms(receiver)):
        receipt = await house.event(endpoint, payload=pings)
        await house.until(lambda: closed(house) == 1)
        await press(house, (await house.delivery(receipt)).id)
        await tried(house, 3)
        await house.event(endpoint, payload=pings[:-1] + b"," + b" " * 9000 + b'"more":"' + b"@here " * 999 + b'"}')
        await tried(house, 4)
    sent = [arrival.body or b"" for arrival in receiver.received("/api/webhooks/4711/***")]
    assert len(sent) == 4
    assert all(b'"allowed_mentions":{"parse":[]}' in body for body in sent)
    assert all(b"@everyone" in body for body in sent)
    assert [message["pings"] for message in told(receiver, "/discord/4711")] == [[], [], []]


@BOTH
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
async def test_a_platforms_private_address_is_never_dialled(house: House, url: str, secret: str, host: str) -> None:
    """C41: asserted at the listener."""
    with Trap() as trap:
        base = trap.url(host).removesuffix("/hook")
        endpoint = await house.chat(url, secret=secret)
        async with house.dispatching(policy=STRICT, platforms=Platforms(telegram=base, discord=base)):
            receipt = await house.event(endpoint)
            await house.until(lambda: bool(house.heard(DeadLettered)))
        assert trap.connections == 0
    assert (await house.delivery(receipt)).dead_reason is DeadReason.REFUSED


@BOTH
@pytest.mark.parametrize("mode", ["sent", "refused", "away", "blocked"])
async def test_a_token_is_in_nothing_that_is_stored_or_told(
    house: House, receiver: Receiver, caplog: pytest.LogCaptureFixture, url: str, secret: str, mode: str
) -> None:
    """Whatever goes wrong on the way."""
    caplog.set_level(logging.DEBUG)
    endpoint = await house.chat(url, secret=secret, retry={"max_attempts": 1})
    where, policy = platforms(receiver), OPEN
    if mode == "away":
        where = Platforms(telegram="http://127.0.0.1:1", discord="http://127.0.0.1:1")
    elif mode == "refused":
        policy = STRICT
    elif mode == "blocked":
        tell(receiver, f"{CONTROL[url]}?error={'unauthorized' if url == GROUP else 'invalid_token'}")
    hidden = secret.rpartition(":")[2]
    async with house.dispatching(platforms=where, policy=policy):
        await house.event(endpoint, payload=b'{"says":"the services answer with what they took"}')
        await house.until(lambda: bool(closed(house) or house.heard(DeadLettered)))
    kept = [str(row) for table in await _tables(house) for row in await _rows(house, table)]
    assert len(kept) > 10
    told_of = [*kept, *map(repr, house.ear.heard), *[record.getMessage() for record in caplog.records], caplog.text]
    assert not [each for each in told_of if hidden in each]
    arrived = json.dumps([(each.path, each.query, each.header_lines.decode()) for each in receiver.received()])
    assert hidden not in arrived


async def _tables(house: House) -> list[str]:
    async with house.database.connection() as connection:
        rows = await connection.fetch("select tablename from pg_tables where schemaname = 'public'")
    return [row["tablename"] for row in rows]


async def _rows(house: House, table: str) -> list[Any]:
    async with house.database.connection() as connection:
        rows: list[Any] = await connection.fetch(f'select t::text as row from "{table}" t')  # noqa: S608 - its own
    return rows
