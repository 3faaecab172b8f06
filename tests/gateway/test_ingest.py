"""Claims about `POST /v1/events`, against a real database."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta

import pytest

from relay.domain import ids
from relay.domain.delivery import DeadReason
from relay.domain.routing import LONGEST_TYPE
from relay.domain.telemetry import (
    AppendCommitted,
    DeadLettered,
    EventsAccepted,
    IdempotentReplay,
    RejectReason,
    RequestRefused,
    RequestServed,
)
from tests.gateway.world import JSON, MAX_PAYLOAD_BYTES, TENANT, World, event

AWKWARD = '{"type": "invoice.paid",\n "n":1.0e400, "z":-0.0, "d":1,"d":2, "s":"\\ud800\\u0000é", "k":[]}'.encode()


async def test_a_202_says_what_became_of_the_event(world: World) -> None:
    endpoint = await world.subscribe("invoice.*", name='a "quoted" name')
    await world.subscribe("order.*")
    before = datetime.now(UTC)
    reply = await world.post()
    assert reply.status == 202
    assert reply.headers["content-type"] == "application/json"
    answer = reply.json()
    (delivery,) = answer.pop("deliveries")
    assert delivery.pop("id")
    assert delivery == {"endpoint_id": ids.write(ids.ENDPOINT, endpoint), "consumer": 'a "quoted" name'}
    assert answer.pop("durability") == {"confirmed": 1, "of": 1}
    assert answer.pop("journal_pos") == "p06:1"
    received = datetime.fromisoformat(answer.pop("received_at"))
    assert timedelta(milliseconds=-1) < received - before < timedelta(seconds=10)
    receipt = ids.parse(ids.RECEIPT, answer.pop("receipt_id"))
    assert ids.unix_ms(receipt) == received.timestamp() * 1000
    assert ids.parse(ids.EVENT, answer.pop("event_id")) == receipt
    assert answer == {}


async def test_the_receipt_of_a_202_is_there_at_once(world: World) -> None:
    await world.subscribe()
    answer = (await world.post()).json()
    receipt = await world.receipts.get(TENANT, ids.parse(ids.RECEIPT, answer["receipt_id"]))
    assert receipt is not None
    assert [str(delivery.id) for delivery in receipt.deliveries] == [answer["deliveries"][0]["id"]]
    assert (receipt.event_id, str(receipt.position)) == (answer["event_id"], answer["journal_pos"])
    assert 0 <= receipt.checked_us <= receipt.assigned_us


async def test_a_payload_is_stored_byte_for_byte(world: World) -> None:
    answer = (await world.post(AWKWARD)).json()
    receipt = ids.parse(ids.RECEIPT, answer["receipt_id"])
    stored = await world.receipts.payload(TENANT, receipt)
    view = await world.receipts.get(TENANT, receipt)
    assert stored is not None
    assert view is not None
    assert stored.body == AWKWARD
    assert view.payload_sha256 == hashlib.sha256(AWKWARD).digest()


async def test_with_the_type_in_a_header_any_bytes_are_an_event(world: World) -> None:
    body = bytes(range(256))
    reply = await world.request(headers=[("Relay-Event-Type", "image.made"), ("Content-Type", "image/png")], body=body)
    receipt = ids.parse(ids.RECEIPT, reply.json()["receipt_id"])
    stored = await world.receipts.payload(TENANT, receipt)
    view = await world.receipts.get(TENANT, receipt)
    assert stored is not None
    assert view is not None
    assert (stored.body, stored.content_type, view.type) == (body, "image/png", "image.made")


async def test_an_event_may_have_no_body_where_its_type_is_in_a_header(world: World) -> None:
    assert (await world.request(headers=[("Relay-Event-Type", "a")])).status == 202


async def test_what_travels_on_is_kept_with_the_event(world: World) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await world.post(event(), ("traceparent", trace), ("tracestate", "a=1"), ("Relay-Hops", "3"))
    (row,) = await world.sql("select forwarded::text as forwarded, hops from journal")
    assert json.loads(row["forwarded"]) == [["traceparent", trace], ["tracestate", "a=1"]]
    assert row["hops"] == 3


async def test_an_event_that_matches_nothing_is_kept_as_a_dead_letter(world: World) -> None:
    await world.subscribe("order.*")
    answer = (await world.post()).json()
    receipt = await world.receipts.get(TENANT, ids.parse(ids.RECEIPT, answer["receipt_id"]))
    assert answer["deliveries"] == []
    assert receipt is not None
    assert receipt.reason is DeadReason.NO_ROUTE
    assert world.ear.of(DeadLettered) == [DeadLettered("", DeadReason.NO_ROUTE, 1)]


async def test_the_key_of_a_request_is_the_events_id(world: World) -> None:
    assert (await world.post(event(), ("Idempotency-Key", '"order-17"'))).json()["event_id"] == "order-17"


@pytest.mark.parametrize(
    ("headers", "body", "status", "code", "counted"),
    [
        ([], event(), 415, "content_type", RejectReason.CONTENT_TYPE),
        ([("Content-Type", "text/plain")], event(), 415, "content_type", RejectReason.CONTENT_TYPE),
        ([("Content-Type", "application/json; charset=test")], event(), 415, "content_type", RejectReason.CONTENT_TYPE),
        ([JSON, ("Content-Encoding", "gzip")], event(), 415, "content_type", RejectReason.CONTENT_TYPE),
        ([JSON], b"", 400, "malformed", RejectReason.MALFORMED),
        ([JSON], b"{", 400, "malformed", RejectReason.MALFORMED),
        ([JSON], b'{"type":"\xff"}', 400, "malformed", RejectReason.MALFORMED),
        ([JSON], b"\xef\xbb\xbf" + event(), 400, "malformed", RejectReason.MALFORMED),
        ([JSON], b"[" * 30_000, 400, "malformed", RejectReason.MALFORMED),
        ([JSON], event("a b"), 400, "malformed", RejectReason.MALFORMED),
        ([JSON], event("a" * (LONGEST_TYPE + 1)), 400, "malformed", RejectReason.MALFORMED),
        ([JSON], b"{}", 400, "type_missing", RejectReason.MALFORMED),
        ([JSON], b'{"type":7}', 400, "type_missing", RejectReason.MALFORMED),
        ([JSON, ("Idempotency-Key", "a b")], event(), 400, "malformed", RejectReason.MALFORMED),
        ([JSON, ("Idempotency-Key", "a"), ("Idempotency-Key", "b")], event(), 400, "malformed", RejectReason.MALFORMED),
        ([JSON, ("Relay-Hops", "9")], event(), 400, "relay_loop", RejectReason.LOOP),
        ([JSON, ("Relay-Hops", "x")], event(), 400, "malformed", RejectReason.MALFORMED),
        ([JSON], event(x="x" * MAX_PAYLOAD_BYTES), 413, "payload_too_large", RejectReason.SIZE),
    ],
)
async def test_a_refused_event_leaves_nothing_but_its_count(
    world: World, headers: list[tuple[str, str]], body: bytes, status: int, code: str, counted: RejectReason
) -> None:
    reply = await world.request(headers=headers, body=body)
    assert (reply.status, reply.code) == (status, code)
    assert await world.stored_nothing()
    assert world.ear.of(RequestRefused) == [RequestRefused(counted)]
    assert len(world.ear.of(RequestServed)) == 1


async def test_faults_are_told_in_the_order_of_the_checks(world: World) -> None:
    wrong: list[tuple[tuple[str, str], str]] = [
        (("Content-Type", "text/plain"), "content_type"),
        (("Relay-Hops", "9"), "relay_loop"),
        (("Idempotency-Key", " "), "malformed"),
    ]
    good = [JSON, ("Relay-Hops", "1"), ("Idempotency-Key", "k")]
    body = event(x="x" * MAX_PAYLOAD_BYTES)
    codes = []
    for mended in range(4):
        headers = [*good[:mended], *[header for header, _ in wrong[mended:]]]
        codes.append((await world.request(headers=headers, body=body)).code)
    assert codes == [*[code for _, code in wrong], "payload_too_large"]


async def test_a_payload_of_exactly_the_limit_is_accepted(world: World) -> None:
    padding = MAX_PAYLOAD_BYTES - len(event(x=""))
    exact = event(x="x" * padding)
    assert len(exact) == MAX_PAYLOAD_BYTES
    assert (await world.request(body=exact)).status == 202
    assert (await world.request(body=[exact[:7], exact[7:]], declared=False)).status == 202
    assert (await world.request(body=[exact, b" "], declared=False)).code == "payload_too_large"


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
async def test_only_post_is_allowed(world: World, method: str) -> None:
    reply = await world.request(method)
    assert (reply.status, reply.code, reply.headers["allow"]) == (405, "method_not_allowed", "POST")


async def test_a_client_that_leaves_within_its_body_leaves_nothing_behind(world: World) -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        raise AssertionError("there is nobody to answer")

    headers = [(b"content-type", b"application/json"), (b"content-length", b"10")]
    await world.gateway.routes["/v1/events"]({"type": "http", "method": "POST", "headers": headers}, receive, send)
    assert await world.stored_nothing()


async def test_what_happens_is_told(world: World) -> None:
    await world.subscribe()
    await world.subscribe()
    await world.post(event(), ("Idempotency-Key", "k"))
    await world.post(event(), ("Idempotency-Key", "k"))
    (committed,) = world.ear.of(AppendCommitted)
    assert (committed.events, committed.deliveries, len(committed.seconds)) == (1, 2, 1)
    assert committed.seconds[0] > 0
    assert world.ear.of(EventsAccepted) == [EventsAccepted(1, 2, 0)]
    assert world.ear.of(IdempotentReplay) == [IdempotentReplay()]
    assert len(world.ear.of(RequestServed)) == 2
