"""Claims about `POST /v1/events/batch`, against a real database."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest

from relay.domain import ids
from relay.domain.telemetry import (
    AppendCommitted,
    EventsAccepted,
    IdempotentReplay,
    RejectReason,
    RequestRefused,
    RequestServed,
)
from relay.gateway.groups import MOST_ROWS
from tests.gateway.world import BATCH_PATH, JSON, MAX_BATCH_BYTES, MAX_PAYLOAD_BYTES, TENANT, World, element, event
from tests.support.asgi import Reply

KEY = ("Idempotency-Key", "order-17")


def results(reply: Reply) -> list[Any]:
    assert (reply.status, reply.headers["content-type"]) == (202, "application/json")
    document = reply.json()
    assert set(document) == {"data"}
    data: list[Any] = document["data"]
    return data


def codes(reply: Reply) -> list[str]:
    """`stored` for each event that has a receipt, else its problem's code."""
    return ["stored" if "receipt_id" in result else result["error"]["code"] for result in results(reply)]


async def test_each_event_has_the_answer_of_a_post_of_its_own_in_order(world: World) -> None:
    await world.subscribe("order.*")
    first, second = results(await world.post_batch([element("order.made", "a"), element("invoice.paid")]))
    single = (await world.post()).json()
    assert first.keys() == second.keys() == single.keys()
    assert first["event_id"] == "a"
    assert second["event_id"].startswith("evt_")
    assert [result["journal_pos"] for result in (first, second)] == ["p06:1", "p06:2"]
    assert [len(result["deliveries"]) for result in (first, second)] == [1, 0]


async def test_a_payload_is_stored_as_the_bytes_of_its_slice_as_json(world: World) -> None:
    payloads = [b'{ "n":1.0e400,  "d":1,"d":2, "s":"\\ud800\\u0000"}', '[ 1,\t"é" ]'.encode(), b"null"]
    written = results(await world.post_batch([element(payload=payload) for payload in payloads]))
    for payload, result in zip(payloads, written, strict=True):
        receipt = ids.parse(ids.RECEIPT, result["receipt_id"])
        stored = await world.receipts.payload(TENANT, receipt)
        view = await world.receipts.get(TENANT, receipt)
        assert stored is not None
        assert view is not None
        assert (stored.body, stored.content_type) == (payload, "application/json")
        assert view.payload_sha256 == hashlib.sha256(payload).digest()


async def test_a_thousand_events_are_one_append(world: World) -> None:
    for _ in range(2):
        await world.subscribe()
    answered = results(await world.post_batch([element(payload=b'{"n":%d}' % n) for n in range(1000)]))
    (committed,) = world.ear.of(AppendCommitted)
    assert (committed.events, committed.deliveries, len(committed.seconds)) == (1000, 2000, 1000)
    assert world.ear.of(EventsAccepted) == [EventsAccepted(1000, 2000, 0)]
    assert len(world.ear.of(RequestServed)) == 1
    rows = await world.sql("select count(distinct xmin::text) from journal")
    assert rows[0][0] == 1
    order = await world.sql("select 'p06:' || number as position, payload from journal order by number")
    assert [row["position"] for row in order] == [result["journal_pos"] for result in answered]
    assert [row["payload"] for row in order] == [b'{"n":%d}' % n for n in range(1000)]


async def test_a_batch_of_more_deliveries_than_others_share_is_one_append_still(world: World) -> None:
    for _ in range(5):
        await world.subscribe()
    async with world.appends_held():
        blocker = asyncio.create_task(world.post())
        await world.until_an_append_waits()
        waiting = [
            asyncio.create_task(post) for post in (world.post(), world.post(), world.post_batch([element()] * 1000))
        ]
        await world.until_waiting(1002)
    assert (await blocker).status == 202
    *singles, batch = [await each for each in waiting]
    assert codes(batch) == ["stored"] * 1000
    assert MOST_ROWS < 5 * 1000
    assert [committed.events for committed in world.ear.of(AppendCommitted)] == [1, 1002]
    assert [reply.status for reply in singles] == [202, 202]


async def test_one_bad_event_spoils_no_other(world: World) -> None:
    bad = [b"7", b'{"payload":1}', element("a b"), element(event_id="a b"), b'{"type":"a"}']
    too_large = element(payload=b'"%b"' % (b"x" * MAX_PAYLOAD_BYTES))
    unknown = b'{"type":"a","payload":1,"data":2}'
    reply = await world.post_batch([element(event_id="first"), *bad, too_large, unknown, element(event_id="last")])
    assert codes(reply) == [
        "stored", "malformed", "type_missing", "malformed", "malformed", "malformed", "payload_too_large", "malformed",
        "stored",
    ]  # fmt: skip
    rows = await world.sql("select event_id from journal order by number")
    assert [row["event_id"] for row in rows] == ["first", "last"]
    refusals = world.ear.of(RequestRefused)
    assert refusals.count(RequestRefused(RejectReason.MALFORMED)) == 6
    assert refusals.count(RequestRefused(RejectReason.SIZE)) == 1


async def test_what_is_wrong_with_an_event_is_a_problem_document(world: World) -> None:
    (result,) = results(await world.post_batch([element(payload=b'"%b"' % (b"x" * MAX_PAYLOAD_BYTES))]))
    problem = result["error"]
    assert (problem["status"], problem["limit_bytes"]) == (413, MAX_PAYLOAD_BYTES)
    assert str(MAX_PAYLOAD_BYTES) in problem["detail"]
    assert problem["type"] == "/docs#payload_too_large"


async def test_an_empty_batch_is_answered_with_nothing(world: World) -> None:
    assert results(await world.post_batch(b"[]")) == []
    assert await world.stored_nothing()


async def test_the_second_of_a_name_in_a_batch_is_answered_as_a_second_request_would_be(world: World) -> None:
    await world.subscribe()
    elements = [
        element(event_id="k", payload=b"1"),
        element(event_id="other", payload=b"1"),
        element(event_id="k", payload=b"1"),
        element(event_id="k", payload=b"2"),
        element("order.made", event_id="k", payload=b"1"),
        element(event_id="k", payload=b"1"),
    ]
    reply = await world.post_batch(elements)
    assert codes(reply) == ["stored", "stored", "stored", "idempotency_key_reused", "idempotency_key_reused", "stored"]
    first, _, again, *_, last = results(reply)
    assert first == again == last
    assert await world.count("journal") == 2
    assert len(world.ear.of(IdempotentReplay)) == 2
    assert world.ear.of(RequestRefused) == [RequestRefused(RejectReason.IDEMPOTENCY)] * 2


async def test_a_batch_that_is_sent_again_is_answered_byte_for_byte(world: World) -> None:
    elements = [element(event_id=f"order-{n}", payload=b'{"n":%d}' % n) for n in range(100)]
    first = await world.post_batch(elements)
    async with World.over(world.dsn) as restarted:
        again = await restarted.post_batch(elements)
    assert again.body == first.body
    assert await world.count("journal") == 100


async def test_an_event_of_a_batch_and_a_request_of_its_own_share_a_name(world: World) -> None:
    """Case C56, from a batch: the same type and bytes are the same request, anything else is another one."""
    body = event()
    single = await world.post(body, KEY)
    same, other = element(event_id="order-17", payload=body), element(event_id="order-17", payload=body + b" ")
    assert results(await world.post_batch([same])) == [single.json()]
    # white space around a payload is no part of its slice
    assert results(await world.post_batch([other])) == [single.json()]
    assert codes(await world.post_batch([element(event_id="order-17", payload=event(n=1))])) == [
        "idempotency_key_reused"
    ]
    assert await world.count("journal") == 1


async def test_batches_of_the_same_names_at_once_in_two_processes_are_one_event_each(world: World) -> None:
    """Case C55, from batches: whoever wins, every answer for a name is the same."""
    elements = [element(event_id=f"order-{n}") for n in range(40)]
    async with World.over(world.dsn) as other:
        posts = [each.post_batch(elements if n % 2 else elements[::-1]) for n in range(5) for each in (world, other)]
        replies = await asyncio.gather(*posts)
    by_name: dict[str, set[str]] = {}
    for reply in replies:
        for result in results(reply):
            by_name.setdefault(result["event_id"], set()).add(json.dumps(result))
    assert len(by_name) == 40
    assert all(len(answers) == 1 for answers in by_name.values())
    assert await world.count("journal") == 40


async def test_headers_of_the_request_are_of_each_event(world: World) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    headers = [("traceparent", trace), ("tracestate", "a=1"), ("Relay-Hops", "3")]
    await world.post_batch([element(), element()], *headers)
    rows = await world.sql("select forwarded::text as forwarded, hops from journal")
    assert [json.loads(row["forwarded"]) for row in rows] == [[["traceparent", trace], ["tracestate", "a=1"]]] * 2
    assert [row["hops"] for row in rows] == [3, 3]


@pytest.mark.parametrize(
    ("headers", "body", "status", "code", "counted"),
    [
        ([], b"[]", 415, "content_type", RejectReason.CONTENT_TYPE),
        ([("Content-Type", "text/plain")], b"[]", 415, "content_type", RejectReason.CONTENT_TYPE),
        (
            [("Content-Type", "multipart/form-data; boundary=zz")],
            b"no boundary\r\n" * 500, 415, "content_type", RejectReason.CONTENT_TYPE,
        ),
        (
            [("Content-Type", "application/x-www-form-urlencoded")],
            b"&" * 100_000, 415, "content_type", RejectReason.CONTENT_TYPE,
        ),
        (
            [("Content-Type", "text/plain"), ("Relay-Event-Type", "a")],
            b"[]", 415, "content_type", RejectReason.CONTENT_TYPE,
        ),
        ([("Content-Type", "application/json; charset=test")], b"[]", 415, "content_type", RejectReason.CONTENT_TYPE),
        ([("Content-Type", "application/json; charset=utf-16")], b"[]", 415, "content_type", RejectReason.CONTENT_TYPE),
        (
            [("Content-Type", "application/cloudevents-batch+json")],
            b"[]", 415, "content_type", RejectReason.CONTENT_TYPE,
        ),
        ([JSON, ("Content-Encoding", "gzip")], b"[]", 415, "content_type", RejectReason.CONTENT_TYPE),
        ([JSON, KEY], b"[]", 400, "malformed", RejectReason.MALFORMED),
        ([JSON, ("Relay-Event-Type", "a")], b"[]", 400, "malformed", RejectReason.MALFORMED),
        ([JSON, ("ce-id", "a")], b"[]", 400, "malformed", RejectReason.MALFORMED),
        ([JSON, ("Relay-Hops", "9")], b"[]", 400, "relay_loop", RejectReason.LOOP),
        ([JSON], b"", 400, "malformed", RejectReason.MALFORMED),
        ([JSON], event(), 400, "malformed", RejectReason.MALFORMED),
        ([JSON], b'["\xff"]', 400, "malformed", RejectReason.MALFORMED),
        ([JSON], b"\xef\xbb\xbf[]", 400, "malformed", RejectReason.MALFORMED),
        ([JSON], "[]".encode("utf-16"), 400, "malformed", RejectReason.MALFORMED),
        ([JSON], b"[" + element() + b",", 400, "malformed", RejectReason.MALFORMED),
        ([JSON], b"[" + b"7," * 1000 + b"7]", 413, "payload_too_large", RejectReason.SIZE),
        ([JSON], b"[" + b" " * MAX_BATCH_BYTES + b"]", 413, "payload_too_large", RejectReason.SIZE),
    ],
)  # fmt: skip
async def test_a_refused_batch_leaves_nothing_but_its_count(
    world: World, headers: list[tuple[str, str]], body: bytes, status: int, code: str, counted: RejectReason
) -> None:
    reply = await world.request(headers=headers, body=body, path=BATCH_PATH)
    assert (reply.status, reply.code) == (status, code)
    assert await world.stored_nothing()
    assert world.ear.of(RequestRefused) == [RequestRefused(counted)]
    assert len(world.ear.of(RequestServed)) == 1


async def test_a_batch_of_exactly_the_limit_is_accepted_chunked_too(world: World) -> None:
    exact = b"[%b]" % element()
    exact += b" " * (MAX_BATCH_BYTES - len(exact))
    assert codes(await world.post_batch(exact)) == ["stored"]
    pieces = [exact[:7], exact[7:]]
    chunked = await world.request(headers=(JSON,), body=pieces, declared=False, path=BATCH_PATH)
    assert codes(chunked) == ["stored"]
    longer = await world.request(headers=(JSON,), body=[*pieces, b" "], declared=False, path=BATCH_PATH)
    assert (longer.code, longer.json()["limit_bytes"]) == ("payload_too_large", MAX_BATCH_BYTES)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS"])
async def test_only_post_is_allowed(world: World, method: str) -> None:
    reply = await world.request(method, path=BATCH_PATH)
    assert (reply.status, reply.code, reply.headers["allow"]) == (405, "method_not_allowed", "POST")


async def test_a_gateway_that_stops_refuses_a_whole_batch_as_it_would_one_event(world: World) -> None:
    await world.gateway.drain(1.0)
    reply = await world.post_batch([element(), b"7", element()])
    assert codes(reply) == ["draining", "malformed", "draining"]
    reply = await world.post_batch([element(), element()])
    assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "draining", "1")


async def test_a_batch_that_finds_no_room_is_refused_whole(world: World) -> None:
    async with World.over(world.dsn, most_waiting=5) as narrow, narrow.appends_held():
        blocker = asyncio.create_task(narrow.post())
        await narrow.until_an_append_waits()
        waiting = asyncio.create_task(narrow.post_batch([element()] * 4))
        await narrow.until_waiting(4)
        refused = await narrow.post_batch([element(), element()])
        assert (refused.status, refused.code) == (503, "overloaded")
        fitting = asyncio.create_task(narrow.post_batch([element()]))
        await narrow.until_waiting(5)
    assert codes(await waiting) == ["stored"] * 4
    assert codes(await fitting) == ["stored"]
    assert (await blocker).status == 202
    assert await world.count("journal") == 6


async def test_an_event_that_the_database_cannot_hold_is_refused_alone_in_a_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.gateway.elements.check_event_type", lambda text: text)
    reply = await world.post_batch([element(event_id="a"), element("nul\x00inside"), element(event_id="b")])
    assert codes(reply) == ["stored", "unstorable", "stored"]
    rows = await world.sql("select event_id from journal order by event_id")
    assert [row["event_id"] for row in rows] == ["a", "b"]
