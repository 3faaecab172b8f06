"""Claims about sending again and giving up: what is asked for, once, and told at once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from typing import Any

import pytest

from relay.domain.delivery import DeadReason, DeliveryMove
from relay.domain.outcome import OutcomeClass
from relay.domain.receipt import ReceiptOutcome
from relay.domain.telemetry import IdempotentReplay, ReceiptsClosed, ReceiptsRedriven
from relay.store.redrive import Redrive, Redrives
from relay.store.request_keys import KeptAnswer, RequestKey
from tests.api.world import ENDPOINTS, JSON, World
from tests.support.asgi import Reply, call

DEAD_LETTERS = "/v1/dead-letters"
NOBODY = "rcp_" + "0" * 32


async def bury(world: World) -> Any:
    """Post an event and have its one delivery die."""
    accepted = await world.post_event()
    await world.attempt(
        DeliveryMove.BURY, OutcomeClass.PERMANENT, status_code=404, dead_reason=DeadReason.PERMANENT_FAILURE
    )
    return accepted


async def acked(world: World) -> Any:
    accepted = await world.post_event()
    await world.attempt(DeliveryMove.ACK, OutcomeClass.SUCCESS)
    return accepted


async def receipt(world: World, accepted: Any) -> Any:
    return (await world.get(f"/v1/receipts/{accepted['receipt_id']}")).json()


def told(shown: Any) -> list[str]:
    return [entry["what"] for entry in shown["timeline"] if entry["what"] not in _UNTIL_ROUTED]


_UNTIL_ROUTED = {"checked", "receipt_assigned", "committed", "confirmed", "accepted", "routed"}


async def post(world: World, path: str, value: object = None, key: str | None = None) -> Reply:
    headers = [JSON] if value is not None else []
    if key is not None:
        headers.append(("Idempotency-Key", key))
    body = b"" if value is None else json.dumps(value).encode()
    return await call(world.app, "POST", path, headers=headers, body=body)


async def test_a_dead_receipt_is_sent_again_and_says_so(world: World) -> None:
    endpoint = await world.create(name="ledger")
    accepted = await bury(world)
    reply = await post(world, f"/v1/receipts/{accepted['receipt_id']}/redrive")
    delivery = accepted["deliveries"][0]["id"]
    assert reply.status == 202
    assert reply.json() == {
        "receipt_id": accepted["receipt_id"],
        "redriven": [{"id": delivery, "endpoint_id": endpoint["id"], "consumer": "ledger", "generation": 1}],
    }
    shown = await receipt(world, accepted)
    (owed,) = shown["deliveries"]
    assert (owed["status"], owed["generation"], owed["waiting_for"], owed["reason"]) == ("pending", 1, "retry", None)
    assert owed["redriven_at"] is not None
    assert told(shown) == ["dead_lettered", "redriven"]
    await world.attempt(DeliveryMove.ACK, OutcomeClass.SUCCESS)
    shown = await receipt(world, accepted)
    assert shown["outcome"] == "delivered_after_redrive"
    assert told(shown) == ["dead_lettered", "redriven", "acked", "closed"]


async def test_a_receipt_that_everybody_acked_has_nothing_to_send_again(world: World) -> None:
    await world.create()
    accepted = await acked(world)
    reply = await post(world, f"/v1/receipts/{accepted['receipt_id']}/redrive")
    assert (reply.status, reply.json()["redriven"]) == (202, [])
    assert (await receipt(world, accepted))["state"] == "closed"


async def test_a_redrive_to_one_consumer_leaves_the_others_alone(world: World) -> None:
    await world.create(name="ledger")
    await world.create(name="mailer")
    accepted = await world.post_event()
    await world.sql("update deliveries set status = 'dead', dead_at = now(), dead_reason = 'exhausted'")
    reply = await post(world, f"/v1/receipts/{accepted['receipt_id']}/redrive", {"consumer": "mailer"})
    assert [each["consumer"] for each in reply.json()["redriven"]] == ["mailer"]
    owed = {each["consumer"]: each["status"] for each in (await receipt(world, accepted))["deliveries"]}
    assert owed == {"ledger": "dead", "mailer": "pending"}


async def test_an_event_without_a_route_is_routed_anew(world: World) -> None:
    accepted = await world.post_event()
    assert (await post(world, f"/v1/receipts/{accepted['receipt_id']}/redrive")).json()["redriven"] == []
    await world.create(name="ledger")
    reply = await post(world, f"/v1/receipts/{accepted['receipt_id']}/redrive")
    assert [(each["consumer"], each["generation"]) for each in reply.json()["redriven"]] == [("ledger", 0)]
    shown = await receipt(world, accepted)
    assert (shown["reason"], shown["delivery_count"], told(shown)) == (None, 1, ["dead_lettered", "redriven"])


async def test_an_event_without_a_route_is_routed_to_the_consumer_that_is_named(world: World) -> None:
    """To that one alone; and one that does not want it is no 202 that did nothing."""
    accepted = await world.post_event()
    await world.create(name="ledger")
    await world.create(name="mailer")
    await world.create(name="users", event_types=["user.*"])
    path = f"/v1/receipts/{accepted['receipt_id']}/redrive"
    refused = await post(world, path, {"consumer": "users"})
    assert (refused.status, refused.code) == (409, "not_redrivable")
    assert "does not subscribe to" in refused.json()["detail"]
    reply = await post(world, path, {"consumer": "mailer"})
    assert [each["consumer"] for each in reply.json()["redriven"]] == ["mailer"]
    assert [each["consumer"] for each in (await receipt(world, accepted))["deliveries"]] == ["mailer"]


async def test_what_first_became_of_an_event_stays_in_its_story_however_often_it_is_sent_again(world: World) -> None:
    accepted = await world.post_event()
    await world.create(name="ledger")
    await post(world, f"/v1/receipts/{accepted['receipt_id']}/redrive")
    await world.attempt(DeliveryMove.BURY, OutcomeClass.PERMANENT, dead_reason=DeadReason.PERMANENT_FAILURE)
    await post(world, f"/v1/receipts/{accepted['receipt_id']}/redrive")
    shown = await receipt(world, accepted)
    assert [each["generation"] for each in shown["deliveries"]] == [1]
    assert told(shown) == ["dead_lettered", "redriven", "dead_lettered", "redriven"]


async def test_one_delivery_is_sent_again_even_if_it_was_delivered(world: World) -> None:
    await world.create()
    accepted = await acked(world)
    delivery = accepted["deliveries"][0]["id"]
    reply = await post(world, f"/v1/deliveries/{delivery}/redrive")
    assert reply.status == 202
    shown = reply.json()
    assert (shown["id"], shown["receipt_id"]) == (delivery, accepted["receipt_id"])
    assert (shown["status"], shown["generation"], shown["acked_at"]) == ("pending", 1, None)
    assert (await receipt(world, accepted))["state"] == "open"
    claimed = await world.attempt(DeliveryMove.ACK, OutcomeClass.SUCCESS)
    assert str(claimed.id) == delivery
    assert (await receipt(world, accepted))["outcome"] == "delivered_after_redrive"


async def test_a_delivery_that_is_being_sent_is_not_sent_again(world: World) -> None:
    await world.create()
    accepted = await world.post_event()
    await world.claim()
    reply = await post(world, f"/v1/deliveries/{accepted['deliveries'][0]['id']}/redrive")
    assert (reply.status, reply.code) == (409, "not_redrivable")


HELD = {
    "paused": "update endpoints set status = 'paused'",
    "disabled": "update endpoints set status = 'disabled', status_reason = 'the endpoint answered 410 Gone'",
    "breaker open": "update endpoint_state set breaker = 'open', cooldown_until = now() + interval '1 hour'",
    "held by a 429": "update endpoint_state set held_until = now() + interval '1 hour', held_reason = 'retry_after'",
}


@pytest.mark.parametrize(
    ("held", "waiting_for"), [*zip(HELD, ("paused", "paused", "breaker", "retry_after"), strict=True)]
)
async def test_what_is_sent_again_into_a_closed_lane_says_what_it_waits_for(
    world: World, held: str, waiting_for: str
) -> None:
    """Case C87: a 202 is no word that something leaves at once; what keeps it is named, and then it leaves."""
    await world.create()
    accepted = await bury(world)
    await world.sql(HELD[held])
    reply = await post(world, f"/v1/deliveries/{accepted['deliveries'][0]['id']}/redrive")
    assert (reply.status, reply.json()["status"], reply.json()["waiting_for"]) == (202, "pending", waiting_for)
    assert (await receipt(world, accepted))["deliveries"][0]["waiting_for"] == waiting_for
    await world.sql("update endpoints set status = 'active'")
    await world.sql("update endpoint_state set held_until = null, held_reason = null, breaker = 'closed'")
    claimed = await world.attempt(DeliveryMove.ACK, OutcomeClass.SUCCESS)
    assert (claimed.generation, claimed.attempt) == (1, 2)


async def test_a_delivery_of_a_removed_endpoint_is_not_sent_again(world: World) -> None:
    endpoint = await world.create()
    accepted = await bury(world)
    await world.send("DELETE", f"{ENDPOINTS}/{endpoint['id']}")
    reply = await post(world, f"/v1/deliveries/{accepted['deliveries'][0]['id']}/redrive")
    assert (reply.status, reply.code) == (409, "not_redrivable")


async def test_dead_letters_are_listed_with_what_a_person_needs(world: World) -> None:
    endpoint = await world.create(name="ledger", event_types=["invoice.*"])
    accepted = await bury(world)
    unrouted = await world.post_event("nobody.wants")
    newer, older = await world.pages(DEAD_LETTERS)
    assert (newer["receipt_id"], newer["reason"]) == (unrouted["receipt_id"], "no_route")
    assert (newer["delivery_id"], newer["endpoint_id"], newer["consumer"]) == (None, None, None)
    assert older.pop("dead_at") <= newer["dead_at"]
    assert older == {
        "receipt_id": accepted["receipt_id"],
        "delivery_id": accepted["deliveries"][0]["id"],
        "endpoint_id": endpoint["id"],
        "consumer": "ledger",
        "type": "invoice.paid",
        "event_id": accepted["event_id"],
        "reason": "permanent_failure",
        "boundary": "B3",
        "last_error": older["last_error"],
        "attempts": 1,
        "display_url": "https://example.com/hook",
    }


async def test_dead_letters_of_one_moment_are_all_listed_once_while_others_come_and_go(world: World) -> None:
    await world.create(name="ledger", event_types=["invoice.*"])
    there = {event["receipt_id"] for event in await world.post_batch(800)}
    there |= {event["receipt_id"] for event in await world.post_batch(200, "nobody.wants")}
    passing = await world.post_batch(300)
    await world.sql("update deliveries set status = 'dead', dead_reason = 'exhausted', dead_at = '2026-11-30T09:00Z'")
    await world.sql("update receipts set unrouted_at = '2026-11-30T09:00Z' where unrouted_at is not null")

    async def meanwhile() -> None:
        for _ in range(10):
            await post(world, f"/v1/receipts/{passing.pop()['receipt_id']}/redrive")
        await world.post_batch(10, "nobody.wants")
        await world.post_batch(10)
        await world.sql(
            "update deliveries set status = 'dead', dead_reason = 'refused', dead_at = now()"
            " where id in (select id from deliveries where status = 'pending' order by id desc limit 5)"
        )

    listed = await world.pages(DEAD_LETTERS, between=meanwhile)
    ids = [letter["receipt_id"] for letter in listed]
    assert len(set(ids)) == len(ids)
    assert there <= set(ids)


@pytest.mark.parametrize(
    ("query", "reasons"),
    [
        ("", ["no_route", "permanent_failure"]),
        ("consumer=ledger", ["permanent_failure"]),
        ("reason=no_route", ["no_route"]),
        ("reason=permanent_failure", ["permanent_failure"]),
        ("reason=refused", []),
        ("type=invoice.*", ["permanent_failure"]),
        ("type=nobody.wants", ["no_route"]),
        ("since=2020-01-01T00:00:00Z&type=*", ["no_route", "permanent_failure"]),
        ("since=2999-01-01T00:00:00Z", []),
        ("consumer=ledger&reason=no_route", []),
    ],
)
async def test_the_same_filter_lists_counts_and_moves_the_same(world: World, query: str, reasons: list[str]) -> None:
    await world.create(name="ledger", event_types=["invoice.*"])
    await bury(world)
    await world.post_event("nobody.wants")
    assert [letter["reason"] for letter in await world.pages(f"{DEAD_LETTERS}?{query}")] == reasons
    wanted = dict(part.split("=") for part in query.split("&") if part)
    counted = await post(world, f"{DEAD_LETTERS}/discard", {**wanted, "dry_run": True})
    assert counted.json() == {"dry_run": True, "count": len(reasons), "more": False, "next_cursor": None}
    assert len(await world.pages(DEAD_LETTERS)) == 2
    discarded = await post(world, f"{DEAD_LETTERS}/discard", wanted)
    assert (discarded.status, discarded.json()) == (
        202,
        {"dry_run": False, "count": len(reasons), "more": False, "next_cursor": None},
    )
    assert len(await world.pages(DEAD_LETTERS)) == 2 - len(reasons)


async def test_dead_letters_are_sent_again_so_many_at_a_time(world: World) -> None:
    await world.create(name="ledger")
    await world.post_batch(5)
    await world.sql("update deliveries set status = 'dead', dead_reason = 'exhausted', dead_at = now()")
    answers = [(await post(world, f"{DEAD_LETTERS}/redrive", {"limit": 2})).json() for _ in range(3)]
    assert [(each["count"], each["more"]) for each in answers] == [(2, True), (2, True), (1, False)]
    assert (await world.get(DEAD_LETTERS)).json()["data"] == []


async def test_a_call_goes_on_where_the_one_before_ended(world: World) -> None:
    await world.create()
    await world.post_batch(3)
    await world.sql("update deliveries set status = 'dead', dead_reason = 'exhausted', dead_at = now()")
    counted = (await post(world, f"{DEAD_LETTERS}/redrive", {"dry_run": True, "limit": 2})).json()
    assert (counted["count"], counted["more"]) == (2, True)
    rest = {"dry_run": True, "cursor": counted["next_cursor"]}
    assert (await post(world, f"{DEAD_LETTERS}/redrive", rest)).json()["count"] == 1
    assert (await post(world, f"{DEAD_LETTERS}/redrive", {**rest, "type": "invoice.paid"})).code == "bad_cursor"


async def test_all_dead_letters_are_sent_again_where_none_is_named(world: World) -> None:
    await world.create()
    await world.post_batch(3)
    await world.sql("update deliveries set status = 'dead', dead_reason = 'exhausted', dead_at = now()")
    assert (await post(world, f"{DEAD_LETTERS}/redrive", {})).json() == {
        "dry_run": False,
        "count": 3,
        "more": False,
        "next_cursor": None,
    }


async def test_what_a_removed_endpoint_is_owed_is_discarded_but_not_sent_again(world: World) -> None:
    endpoint = await world.create()
    await world.post_event()
    await world.send("DELETE", f"{ENDPOINTS}/{endpoint['id']}")
    assert (await post(world, f"{DEAD_LETTERS}/redrive", {})).json()["count"] == 0
    assert (await post(world, f"{DEAD_LETTERS}/discard", {})).json()["count"] == 1


async def test_a_discarded_receipt_closes_at_once_and_can_be_brought_back(world: World) -> None:
    await world.create()
    accepted = await bury(world)
    await post(world, f"{DEAD_LETTERS}/discard", {})
    shown = await receipt(world, accepted)
    (owed,) = shown["deliveries"]
    assert (shown["state"], shown["outcome"], shown["discarded"]) == ("closed", "closed_incomplete", 1)
    assert (owed["status"], owed["discarded_at"] is None) == ("dead", False)
    assert told(shown) == ["dead_lettered", "closed"]
    await post(world, f"/v1/receipts/{accepted['receipt_id']}/redrive")
    shown = await receipt(world, accepted)
    assert (shown["state"], shown["discarded"], shown["deliveries"][0]["discarded_at"]) == ("open", 0, None)


async def test_a_repeated_request_gets_the_first_ones_bytes_and_does_nothing_again(world: World) -> None:
    await world.create()
    accepted = await bury(world)
    path = f"/v1/receipts/{accepted['receipt_id']}/redrive"
    first = await post(world, path, key="k1")
    await world.attempt(DeliveryMove.ACK, OutcomeClass.SUCCESS)
    for spelling in ("k1", '"k1"'):
        again = await post(world, path, key=spelling)
        assert (again.status, again.body) == (first.status, first.body)
        assert again.headers["relay-idempotent-replay"] == "true"
    assert "relay-idempotent-replay" not in first.headers
    assert (await receipt(world, accepted))["state"] == "closed"
    assert len(world.ear.of(IdempotentReplay)) == 2


async def test_a_hundred_of_one_name_at_once_do_it_once(world: World) -> None:
    await world.create()
    accepted = await acked(world)
    path = f"/v1/deliveries/{accepted['deliveries'][0]['id']}/redrive"
    replies = await asyncio.gather(*[post(world, path, key="k1") for _ in range(100)])
    assert {(reply.status, reply.body) for reply in replies} == {(202, replies[0].body)}
    assert sum("relay-idempotent-replay" in reply.headers for reply in replies) == 99
    assert (await receipt(world, accepted))["deliveries"][0]["generation"] == 1


async def test_those_who_wait_for_one_of_their_name_keep_nobody_from_the_database(world: World) -> None:
    path = f"{DEAD_LETTERS}/redrive"
    name = RequestKey("k1", hashlib.sha256(b"\0".join((b"POST", path.encode(), b"{}"))).digest())
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Redrive) -> KeptAnswer:
        begun.set()
        await go_on.wait()
        return KeptAnswer(202, b"{}")

    redrives = Redrives(world.database, entropy=os.urandom, key_retention_seconds=60.0)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(redrives.perform("acct_default", name, slow))
        await begun.wait()
        repeated = [group.create_task(post(world, path, {}, key="k1")) for _ in range(8)]
        async with asyncio.timeout(20):
            for _ in range(20):
                assert (await world.get(DEAD_LETTERS)).status == 200
        go_on.set()
    assert [(each.result().status, each.result().body) for each in repeated] == [(202, b"{}")] * 8


async def test_a_name_belongs_to_one_request(world: World) -> None:
    await world.create(name="ledger")
    accepted = await bury(world)
    path = f"/v1/receipts/{accepted['receipt_id']}/redrive"
    assert (await post(world, path, key="k1")).status == 202
    for other, value in ((path, {"consumer": "ledger"}), (f"{DEAD_LETTERS}/redrive", {})):
        reply = await post(world, other, value, key="k1")
        assert (reply.status, reply.code) == (409, "idempotency_key_reused")


async def test_a_refused_request_leaves_its_name_free(world: World) -> None:
    await world.create(name="ledger")
    assert (await post(world, f"{DEAD_LETTERS}/redrive", {"consumer": "x"}, key="k1")).status == 400
    assert (await post(world, f"/v1/receipts/{NOBODY}/redrive", key="k1")).status == 404
    assert (await post(world, f"{DEAD_LETTERS}/redrive", {"consumer": "ledger"}, key="k1")).status == 202


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, '"open', "é"])
async def test_a_name_that_is_none_is_refused(shared_world: World, key: str) -> None:
    reply = await post(shared_world, f"{DEAD_LETTERS}/redrive", {"dry_run": True}, key=key)
    assert (reply.status, reply.code) == (400, "malformed")


async def test_a_name_that_comes_twice_is_refused(shared_world: World) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    assert (await call(shared_world.app, "POST", f"{DEAD_LETTERS}/redrive", headers=headers)).code == "malformed"


@pytest.mark.parametrize(
    "path",
    [
        f"{DEAD_LETTERS}/discard?dry_run=true&consumer=nobody",
        f"{DEAD_LETTERS}/redrive?dry_run=true",
        "/v1/receipts/rcp_00000000000070008000000000000000/redrive?consumer=nobody",
        "/v1/deliveries/00000000-0000-7000-8000-000000000000/redrive?dry_run=true",
    ],
)
async def test_what_would_narrow_a_change_is_not_passed_over_in_a_query(shared_world: World, path: str) -> None:
    reply = await post(shared_world, path, {})
    assert (reply.status, reply.code) == (400, "bad_filter")
    assert "this call takes no query" in reply.json()["detail"]


BAD_FILTERS: list[tuple[object, str]] = [
    ({"reason": "boredom"}, "reason: Input should be 'exhausted', 'permanent_failure', 'refused', 'no_route'"),
    ({"reason": None}, "reason: cannot be null"),
    ({"consumer": None}, "consumer: cannot be null"),
    ({"consumer": "nobody"}, "consumer: no endpoint is or was named 'nobody'; there are "),
    ({"consumer": ["a", "b"]}, "consumer: Input should be a valid string"),
    ({"consumer": "a\0b"}, "consumer: must not hold a NUL character"),
    ({"consumer": ""}, "consumer: String should have at least 1 character"),
    ({"type": "order.*.paid"}, "type: a pattern is"),
    ({"type": 7}, "type: Input should be a valid string"),
    ({"since": "yesterday"}, "since: an instant is written as"),
    ({"since": 7}, "since: an instant is written as"),
    ({"limit": 0}, "limit: Input should be greater than or equal to 1"),
    ({"limit": 10_001}, "limit: Input should be less than or equal to 10000"),
    ({"limit": 1e9}, "limit: "),
    ({"limit": "7"}, "limit: "),
    ({"dry_run": "true"}, "dry_run: "),
    ({"dry_run": None}, "dry_run: "),
    ({"dryrun": True}, "dryrun: there is no such field"),
    ({"tenant": "acct_other"}, "tenant: there is no such field"),
    ([], "should be an object"),
    (7, "should be an object"),
]


@pytest.mark.parametrize(("wanted", "detail"), BAD_FILTERS)
@pytest.mark.parametrize("call_of", ["redrive", "discard"])
async def test_a_filter_that_says_something_else_is_refused_and_moves_nothing(
    shared_world: World, wanted: object, detail: str, call_of: str
) -> None:
    await shared_world.post_event("nobody.wants")
    before = len((await shared_world.get(f"{DEAD_LETTERS}?limit=100")).json()["data"])
    reply = await post(shared_world, f"{DEAD_LETTERS}/{call_of}", wanted)
    assert (reply.status, reply.code) == (400, "bad_filter")
    assert detail in reply.json()["detail"]
    assert len((await shared_world.get(f"{DEAD_LETTERS}?limit=100")).json()["data"]) == before


@pytest.mark.parametrize(
    "body",
    [
        b'{"limit":' + b"9" * 5000 + b"}",
        b'{"limit":1e999}',
        b'{"limit":NaN}',
        b'{"consumer":"\\ud800"}',
        b'{"consumer":"\xed\xa0\x80"}',
        b"{",
    ],
)
async def test_a_filter_that_is_no_json_is_refused(shared_world: World, body: bytes) -> None:
    reply = await call(shared_world.app, "POST", f"{DEAD_LETTERS}/discard", headers=[JSON], body=body)
    assert (reply.status, reply.code) == (400, "malformed")


@pytest.mark.parametrize("what", ["redrive", "discard"])
@pytest.mark.parametrize("headers", [[], [JSON], [("Content-Type", "text/plain")]], ids=["bare", "JSON", "text"])
@pytest.mark.parametrize("declared", [True, False], ids=["of length 0", "chunked"])
async def test_a_body_that_got_lost_is_not_taken_for_all(
    world: World, what: str, headers: list[tuple[str, str]], declared: bool
) -> None:
    await world.create(name="ledger")
    await bury(world)
    reply = await call(world.app, "POST", f"{DEAD_LETTERS}/{what}", headers=headers, body=b"", declared=declared)
    if declared or headers == [JSON]:
        assert (reply.status, reply.code) == (400, "malformed")
        assert "{} for all" in reply.json()["detail"]
    else:
        assert (reply.status, reply.code) == (415, "content_type")
    assert len((await world.get(DEAD_LETTERS)).json()["data"]) == 1


async def test_null_is_no_empty_filter(shared_world: World) -> None:
    reply = await call(shared_world.app, "POST", f"{DEAD_LETTERS}/discard", headers=[JSON], body=b"null")
    assert (reply.status, reply.code) == (400, "bad_filter")


@pytest.mark.parametrize("query", ["reason=boredom", "reasn=exhausted", "limit=0", "consumer=nobody", "cursor=x"])
async def test_a_list_of_dead_letters_knows_its_filters(shared_world: World, query: str) -> None:
    reply = await shared_world.get(f"{DEAD_LETTERS}?{query}")
    assert (reply.status, reply.code) == (400, "bad_cursor" if query == "cursor=x" else "bad_filter")


async def test_dispatchers_are_woken_and_listeners_told_after_the_change(world: World) -> None:
    await world.create()
    await bury(world)
    await post(world, f"{DEAD_LETTERS}/redrive", {"dry_run": True})
    assert world.ear.of(ReceiptsRedriven) == []
    woken = world.wakeups.sent
    await post(world, f"{DEAD_LETTERS}/redrive", {})
    assert world.ear.of(ReceiptsRedriven) == [ReceiptsRedriven(1)]
    await world.wakeups.until_sent(woken + 1)
    await world.attempt(DeliveryMove.BURY, OutcomeClass.PERMANENT, dead_reason=DeadReason.EXHAUSTED)
    await post(world, f"{DEAD_LETTERS}/discard", {})
    assert world.ear.of(ReceiptsClosed) == [ReceiptsClosed(ReceiptOutcome.CLOSED_INCOMPLETE, 1)]


@pytest.mark.parametrize(
    "path",
    [
        f"/v1/receipts/{NOBODY}/redrive",
        "/v1/receipts/x/redrive",
        "/v1/deliveries/x/redrive",
        "/v1/deliveries/00000000-0000-0000-0000-000000000000/redrive",
    ],
)
async def test_what_nobody_has_is_not_sent_again(shared_world: World, path: str) -> None:
    assert (await post(shared_world, path)).code == "not_found"


async def test_another_tenants_dead_letters_are_neither_seen_nor_moved(world: World) -> None:
    await world.create(name="ledger", event_types=["invoice.*"])
    accepted = await bury(world)
    await world.sql("insert into tenants (id, name, partition) values ('acct_other', 'other', 1)")
    for table in ("journal", "receipts", "deliveries", "endpoints"):
        await world.sql(f"update {table} set tenant = 'acct_other'")  # noqa: S608 - the tests' own names
    own = await world.post_event("own.event")
    assert [letter["receipt_id"] for letter in await world.pages(DEAD_LETTERS)] == [own["receipt_id"]]
    for path in (
        f"/v1/receipts/{accepted['receipt_id']}/redrive",
        f"/v1/deliveries/{accepted['deliveries'][0]['id']}/redrive",
    ):
        assert (await post(world, path)).code == "not_found"
    assert (await post(world, f"{DEAD_LETTERS}/discard", {"consumer": "ledger"})).code == "bad_filter"
    assert (await post(world, f"{DEAD_LETTERS}/discard", {})).json()["count"] == 1
    rows = await world.sql("select tenant, discarded_at, status::text from deliveries")
    assert [tuple(row) for row in rows] == [("acct_other", None, "dead")]


async def test_a_database_that_is_away_is_a_503(world: World) -> None:
    await world.database.close()
    assert (await post(world, f"{DEAD_LETTERS}/redrive", {})).code == "database_unavailable"
    assert (await world.get(DEAD_LETTERS)).code == "database_unavailable"
