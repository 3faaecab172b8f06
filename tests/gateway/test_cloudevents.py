"""Claims about CloudEvents at `POST /v1/events`, against a real database."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from relay.domain import ids
from relay.domain.cloudevents import CloudEvent
from relay.domain.telemetry import RejectReason, RequestRefused
from tests.gateway.world import TENANT, World
from tests.support.asgi import Reply

STRUCTURED = ("Content-Type", "application/cloudevents+json; charset=UTF-8")
LEAST = {"ce-specversion": "1.0", "ce-id": "A-1", "ce-source": "/billing", "ce-type": "invoice.paid"}
MEMBERS: dict[str, object] = {"specversion": "1.0", "id": "A-1", "source": "/billing", "type": "invoice.paid"}


async def binary(
    world: World, body: bytes = b'{"n":1.0}', content_type: str = "application/json", **changed: str | None
) -> Reply:
    """Post one in the binary mode; `ce_subject="x"` adds or changes a header, None leaves one out."""
    headers = {**LEAST, **{name.replace("_", "-", 1): value for name, value in changed.items()}}
    lines = [(name, value) for name, value in headers.items() if value is not None]
    return await world.request(headers=[("Content-Type", content_type), *lines], body=body)


async def structured(world: World, *headers: tuple[str, str], **members: object) -> Reply:
    """Post one in the structured mode, with these members on top."""
    return await world.request(headers=[STRUCTURED, *headers], body=json.dumps({**MEMBERS, **members}).encode())


async def stored(world: World, reply: Reply) -> dict[str, Any]:
    """What the journal has of the event."""
    assert reply.status == 202, reply.body
    receipt = ids.parse(ids.RECEIPT, reply.json()["receipt_id"])
    (row,) = await world.sql("select *, forwarded::text as kept from journal where receipt_id = $1", receipt)
    return {**row, "kept": [] if row["kept"] is None else json.loads(row["kept"])}


async def test_in_the_binary_mode_headers_say_what_the_event_is_and_travel_on(world: World) -> None:
    reply = await binary(world, b'{"n":1.0}', ce_subject="Euro%20%E2%82%AC", ce_time="2018-04-05T17:31:00Z")
    assert reply.json()["event_id"] == "A-1"
    row = await stored(world, reply)
    assert (row["type"], row["event_id"], row["payload"]) == ("invoice.paid", "A-1", b'{"n":1.0}')
    assert row["content_type"] == "application/json"
    sent = {**LEAST, "ce-subject": "Euro%20%E2%82%AC", "ce-time": "2018-04-05T17:31:00Z"}
    assert row["kept"] == [[name, value] for name, value in sent.items()]


async def test_in_the_binary_mode_a_body_may_be_anything(world: World) -> None:
    row = await stored(world, await binary(world, bytes(range(256)), "image/png"))
    assert (row["payload"], row["content_type"]) == (bytes(range(256)), "image/png")
    empty = await world.request(headers={**LEAST, "ce-id": "A-2"}.items())
    assert (await stored(world, empty))["payload"] == b""


async def test_in_the_structured_mode_the_payload_is_the_whole_body(world: World) -> None:
    body = (
        b' {"specversion":"1.0","type":"invoice.paid", "source":"/billing","id":"A-\\u00e9 1",'
        b'"time":null,"ext":true,"num":-5,"data":{"x":1.0e400,"x":"\\ud800"}}\n'
    )
    reply = await world.request(headers=[STRUCTURED, ("ce-id", "ignored")], body=body)
    row = await stored(world, reply)
    assert (row["type"], row["event_id"], row["payload"]) == ("invoice.paid", "A-é 1", body)
    assert row["content_type"] == STRUCTURED[1]
    assert row["kept"] == []


async def test_an_escaped_character_of_two_halves_is_one_beside_a_half(world: World) -> None:
    body = b'{"specversion":"1.0","type":"a","source":"/b","id":"\\ud83d\\ude00","data":"\\ud83d"}'
    row = await stored(world, await world.request(headers=[STRUCTURED], body=body))
    assert (row["event_id"], row["payload"]) == ("😀", body)


@pytest.mark.parametrize("mode", [binary, structured])
async def test_source_and_id_are_the_idempotency_key(world: World, mode: Any) -> None:
    """Case C56: the same pair is the same event, with other bytes a conflict; no other pair is."""
    first, again = await mode(world), await mode(world)
    assert (again.status, again.body) == (202, first.body)
    assert again.headers["relay-idempotent-replay"] == "true"
    (row,) = await world.sql("select key from idempotency_keys")
    assert row["key"] == CloudEvent("A-1", "/billing", "invoice.paid").key
    other = await binary(world, b"{}") if mode is binary else await structured(world, data=2)
    assert (other.status, other.code) == (409, "idempotency_key_reused")
    elsewhere = (
        await binary(world, ce_source="/orders") if mode is binary else await structured(world, source="/orders")
    )
    assert elsewhere.json()["event_id"] == "A-1"
    assert await world.count("journal") == 2


async def test_a_hundred_at_once_are_one_event(world: World) -> None:
    replies = await asyncio.gather(*[binary(world) for _ in range(100)])
    assert {(reply.status, reply.body) for reply in replies} == {(202, replies[0].body)}
    assert await world.count("journal") == 1


async def test_a_request_that_its_sender_named_bears_that_name_and_the_event_keeps_its_id(world: World) -> None:
    key = ("Idempotency-Key", "mine")
    first = await structured(world, key)
    assert first.json()["event_id"] == "A-1"
    assert (await structured(world, key)).body == first.body
    assert (await world.sql("select key from idempotency_keys"))[0]["key"] == "mine"
    assert (await structured(world)).body != first.body


async def test_attributes_of_libraries_that_do_not_encode_are_taken(world: World) -> None:
    reply = await binary(world, ce_id="x y 1", ce_source="/a%20b", ce_subject="100% sure", ce_numext="5")
    row = await stored(world, reply)
    assert row["event_id"] == "x y 1"
    assert ["ce-source", "/a%20b"] in row["kept"]
    assert (await world.sql("select key from idempotency_keys"))[0]["key"] == CloudEvent("x y 1", "/a%20b", "").key


async def test_utf8_in_a_header_is_read_as_such(world: World) -> None:
    row = await stored(world, await binary(world, ce_id="é".encode().decode("latin-1")))
    assert row["event_id"] == "é"
    assert ["ce-id", "é"] in row["kept"]


async def test_encoded_and_plain_forms_of_an_id_are_one_event(world: World) -> None:
    assert (await binary(world, ce_id="%41-1")).body == (await binary(world)).body


async def test_a_trace_goes_on_beside_the_events_headers(world: World) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    row = await stored(world, await binary(world, traceparent=trace))
    assert row["kept"] == [["traceparent", trace], *[[name, value] for name, value in LEAST.items()]]


async def test_the_headers_type_may_say_the_same_again(world: World) -> None:
    assert (await structured(world, ("Relay-Event-Type", "invoice.paid"))).status == 202
    reply = await structured(world, ("Relay-Event-Type", "invoice.void"))
    assert (reply.status, reply.code) == (400, "malformed")
    assert "Relay-Event-Type" in reply.json()["detail"]


async def test_with_a_type_in_the_header_a_format_that_is_not_read_is_bytes_like_any(world: World) -> None:
    kind = "application/cloudevents-batch+json"
    reply = await world.request(headers=[("Content-Type", kind), ("Relay-Event-Type", "ce.batch")], body=b"[1]")
    row = await stored(world, reply)
    assert (row["content_type"], row["payload"], row["type"]) == (kind, b"[1]", "ce.batch")


@pytest.mark.parametrize(
    ("content_type", "code", "counted"),
    [
        ("application/cloudevents-batch+json", "content_type", RejectReason.CONTENT_TYPE),
        ("application/cloudevents+json; charset=test", "content_type", RejectReason.CONTENT_TYPE),
        ("application/cloudevents+json; charset=utf-16", "content_type", RejectReason.CONTENT_TYPE),
        ("application/json", "malformed", RejectReason.MALFORMED),
        ("application/cloudevents+json", "malformed", RejectReason.MALFORMED),
    ],
)
async def test_a_refused_event_leaves_nothing_but_its_count(
    world: World, content_type: str, code: str, counted: RejectReason
) -> None:
    reply = await binary(world, b"{}", content_type, ce_source=None)
    assert reply.code == code
    assert await world.stored_nothing()
    assert world.ear.of(RequestRefused) == [RequestRefused(counted)]


@pytest.mark.parametrize("name", ["id", "source", "type", "subject"])
@pytest.mark.parametrize("value", [3, True])
async def test_what_is_text_by_the_specification_is_not_taken_from_a_number(
    world: World, name: str, value: object
) -> None:
    reply = await structured(world, **{name: value})
    assert (reply.status, reply.code) == (400, "malformed")


async def test_the_receipt_is_found_by_the_events_id(world: World) -> None:
    reply = await binary(world)
    receipt = await world.receipts.get(TENANT, ids.parse(ids.RECEIPT, reply.json()["receipt_id"]))
    assert receipt is not None
    assert (receipt.event_id, receipt.type) == ("A-1", "invoice.paid")
