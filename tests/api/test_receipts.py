"""Claims about receipts, payloads and deliveries as clients see them, against a real database."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

from relay.domain.delivery import DeadReason, DeliveryMove
from relay.domain.outcome import OutcomeClass
from tests.api.world import ENDPOINTS, JSON, World
from tests.support.asgi import call

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def receipt(world: World, accepted: Any) -> Any:
    """The receipt that a 202 speaks of."""
    reply = await world.get(f"/v1/receipts/{accepted['receipt_id']}")
    assert reply.status == 200, reply
    return reply.json()


async def delivery(world: World, accepted: Any) -> Any:
    """The one delivery that a 202 speaks of, with its attempts."""
    reply = await world.get(f"/v1/deliveries/{accepted['deliveries'][0]['id']}")
    assert reply.status == 200, reply
    return reply.json()


def told(shown: Any) -> list[tuple[str, str]]:
    return [(entry["boundary"], entry["what"]) for entry in shown["timeline"]]


UNTIL_ROUTED = [
    ("B1", "checked"),
    ("B1", "receipt_assigned"),
    ("B2", "committed"),
    ("B2", "confirmed"),
    ("B1", "accepted"),
    ("B3", "routed"),
]


async def test_a_receipt_has_its_envelope_and_what_is_owed(world: World) -> None:
    endpoint = await world.create(name="ledger")
    accepted = await world.post_event(Idempotency_Key="order-17")
    shown = await receipt(world, accepted)
    (owed,) = shown.pop("deliveries")
    assert INSTANT.fullmatch(owed.pop("next_attempt_at"))
    assert owed == {
        "id": accepted["deliveries"][0]["id"],
        "endpoint_id": endpoint["id"],
        "consumer": "ledger",
        "status": "pending",
        "attempts": 0,
        "generation": 0,
        "acked_at": None,
        "waiting_for": None,
        "reason": None,
        "boundary": "B3",
        "last_error": None,
        "redriven_at": None,
        "discarded_at": None,
    }
    assert told(shown) == UNTIL_ROUTED
    moments = [entry["at_ms"] for entry in shown.pop("timeline")]
    assert moments == sorted(moments)
    assert shown.pop("rules_version") > 1
    body = b'{"type": "invoice.paid"}'
    assert shown == {
        "receipt_id": accepted["receipt_id"],
        "event_id": "order-17",
        "type": "invoice.paid",
        "schema": None,
        "tenant": "acct_default",
        "source": "anonymous",
        "received_at": accepted["received_at"],
        "journal_pos": accepted["journal_pos"],
        "content_type": "application/json",
        "payload_sha256": hashlib.sha256(body).hexdigest(),
        "payload_bytes": len(body),
        "state": "open",
        "outcome": None,
        "reason": None,
        "closed_at": None,
        "delivery_count": 1,
        "discarded": 0,
    }


async def test_an_event_is_accepted_at_the_moment_of_its_confirmation(world: World) -> None:
    shown = await receipt(world, await world.post_event())
    at_ms = {entry["what"]: entry["at_ms"] for entry in shown["timeline"]}
    assert at_ms["accepted"] == at_ms["confirmed"]
    assert at_ms["accepted"] >= at_ms["receipt_assigned"]


async def test_a_void_event_shows_up_nowhere(world: World) -> None:
    endpoint = await world.create()
    accepted = await world.post_event()
    await world.sql("update deliveries set status = 'void'")
    await world.sql("update receipts set void_at = now()")
    receipt_id, delivery_id = accepted["receipt_id"], accepted["deliveries"][0]["id"]
    for path in (
        f"/v1/receipts/{receipt_id}",
        f"/v1/receipts/{receipt_id}/payload",
        f"/v1/receipts/{receipt_id}/wait?timeout=0",
        f"/v1/deliveries/{delivery_id}",
    ):
        assert (await world.get(path)).status == 404, path
    for path in (
        "/v1/receipts",
        "/v1/receipts?state=open",
        "/v1/receipts?type=invoice.paid",
        f"/v1/receipts?event_id={accepted['event_id']}",
        f"/v1/receipts?consumer={endpoint['name']}",
        f"/v1/endpoints/{endpoint['id']}/deliveries",
        "/v1/dead-letters",
    ):
        assert (await world.get(path)).json()["data"] == [], path
    assert (await world.send("POST", f"/v1/receipts/{receipt_id}/redrive")).status == 404
    assert (await world.send("POST", f"/v1/deliveries/{delivery_id}/redrive")).status == 404


async def test_a_delivered_receipt_is_closed_and_tells_its_story(world: World) -> None:
    await world.create(name="ledger")
    accepted = await world.post_event()
    await world.attempt(DeliveryMove.ACK, OutcomeClass.SUCCESS)
    shown = await receipt(world, accepted)
    assert (shown["state"], shown["outcome"]) == ("closed", "delivered")
    assert INSTANT.fullmatch(shown["closed_at"])
    assert told(shown) == [*UNTIL_ROUTED, ("B4", "acked"), ("B4", "closed")]
    assert [entry["consumer"] for entry in shown["timeline"]] == [None] * 6 + ["ledger", None]
    (owed,) = shown["deliveries"]
    assert (owed["status"], owed["boundary"], owed["attempts"]) == ("delivered", "B4", 1)
    assert (owed["waiting_for"], owed["next_attempt_at"]) == (None, None)
    assert INSTANT.fullmatch(owed["acked_at"])


async def test_a_delivery_that_is_tried_again_says_when(world: World) -> None:
    await world.create()
    accepted = await world.post_event()
    await world.attempt(
        DeliveryMove.RETRY, OutcomeClass.RETRYABLE, status_code=503, reason="503 from the endpoint", delay_seconds=60.0
    )
    (owed,) = (await receipt(world, accepted))["deliveries"]
    assert (owed["status"], owed["waiting_for"], owed["attempts"]) == ("pending", "retry", 1)
    assert owed["next_attempt_at"] > accepted["received_at"]
    assert owed["last_error"]


async def test_a_dead_letter_keeps_its_receipt_open_and_says_why(world: World) -> None:
    await world.create(name="ledger")
    accepted = await world.post_event()
    await world.attempt(
        DeliveryMove.BURY,
        OutcomeClass.PERMANENT,
        status_code=404,
        dead_reason=DeadReason.PERMANENT_FAILURE,
        reason="404",
    )
    shown = await receipt(world, accepted)
    (owed,) = shown["deliveries"]
    assert (shown["state"], shown["outcome"]) == ("open", None)
    assert (owed["status"], owed["reason"], owed["boundary"]) == ("dead", "permanent_failure", "B3")
    assert (owed["waiting_for"], owed["next_attempt_at"]) == (None, None)
    assert told(shown)[-1] == ("B3", "dead_lettered")


@pytest.mark.parametrize("state", ["paused", "disabled"])
async def test_a_delivery_of_a_held_endpoint_waits_for_a_person(world: World, state: str) -> None:
    endpoint = await world.create()
    accepted = await world.post_event()
    await world.send("POST", f"{ENDPOINTS}/{endpoint['id']}/pause")
    await world.sql("update endpoints set status = $1::text::endpoint_status", state)
    (owed,) = (await receipt(world, accepted))["deliveries"]
    assert (owed["waiting_for"], owed["next_attempt_at"]) == ("paused", None)


async def test_a_delivery_of_a_held_lane_says_what_holds_it_and_until_when(world: World) -> None:
    await world.create()
    accepted = await world.post_event()
    await world.sql("update endpoint_state set held_until = now() + interval '1 hour', held_reason = 'retry_after'")
    (owed,) = (await receipt(world, accepted))["deliveries"]
    (row,) = await world.sql("select held_until from endpoint_state")
    assert owed["waiting_for"] == "retry_after"
    assert owed["next_attempt_at"] == row["held_until"].isoformat(timespec="milliseconds")[:23] + "Z"


async def test_a_delivery_that_is_being_sent_waits_for_nothing(world: World) -> None:
    await world.create()
    accepted = await world.post_event()
    await world.claim()
    (owed,) = (await receipt(world, accepted))["deliveries"]
    assert (owed["status"], owed["waiting_for"], owed["next_attempt_at"]) == ("in_flight", None, None)


async def test_a_delivery_that_was_received_waits_for_its_ack(world: World) -> None:
    await world.create()
    accepted = await world.post_event()
    await world.attempt(DeliveryMove.RECEIVE, OutcomeClass.SUCCESS)
    (owed,) = (await receipt(world, accepted))["deliveries"]
    assert (owed["status"], owed["waiting_for"], owed["boundary"]) == ("in_flight", "ack", "B4")


async def test_an_event_without_a_route_says_so(world: World) -> None:
    shown = await receipt(world, await world.post_event())
    assert (shown["state"], shown["reason"], shown["deliveries"]) == ("open", "no_route", [])
    assert told(shown) == [*UNTIL_ROUTED[:-1], ("B3", "dead_lettered")]


async def test_a_removed_endpoint_is_still_named(world: World) -> None:
    endpoint = await world.create(name="ledger")
    accepted = await world.post_event()
    await world.send("DELETE", f"{ENDPOINTS}/{endpoint['id']}")
    (owed,) = (await receipt(world, accepted))["deliveries"]
    assert (owed["consumer"], owed["status"], owed["reason"]) == ("ledger", "dead", "endpoint_removed")


async def test_a_delivery_is_shown_with_every_attempt(world: World) -> None:
    await world.create(name="ledger")
    accepted = await world.post_event()
    await world.attempt(DeliveryMove.RETRY, OutcomeClass.RETRYABLE, status_code=503, reason="server_error")
    await world.attempt(DeliveryMove.ACK, OutcomeClass.SUCCESS)
    shown = await delivery(world, accepted)
    assert (shown["receipt_id"], shown["consumer"], shown["status"]) == (accepted["receipt_id"], "ledger", "delivered")
    assert shown["attempt_count"] == 2
    first, second = shown["attempts"]
    assert (first["attempt"], first["outcome_class"], first["status_code"], first["reason"]) == (
        (1, "retryable", 503, "server_error")
    )
    assert INSTANT.fullmatch(second.pop("at"))
    assert second == {
        "attempt": 2,
        "generation": 0,
        "outcome_class": "success",
        "reason": None,
        "deferred_for_ms": None,
        "status_code": 200,
        "error_class": None,
        "snippet": "thanks",
        "wait_ms": 1.0,
        "connect_ms": 2.0,
        "send_ms": 0.5,
        "first_byte_ms": 3.0,
        "total_ms": 7.0,
        "display_url": "https://example.com/hook",
    }


async def test_an_attempt_whose_dispatcher_died_is_shown_as_what_became_of_it(world: World) -> None:
    await world.create()
    accepted = await world.post_event()
    claimed = await world.claim()
    await world.sql("update deliveries set lease_until = now() - interval '1 second'")
    assert await world.queue.reap(batch=10) == 1
    shown = await delivery(world, accepted)
    (lost,) = shown["attempts"]
    assert (lost["attempt"], lost["generation"], lost["outcome_class"]) == (claimed.attempt, 0, "retryable")
    assert (lost["error_class"], lost["status_code"], lost["total_ms"]) == ("lease_expired", None, None)
    assert shown["last_error"] == lost["reason"]
    assert lost["reason"].startswith("lease_expired: no answer was recorded while its lease lasted")
    assert (shown["status"], shown["waiting_for"], shown["attempt_count"]) == ("pending", "retry", 1)


async def test_a_delivery_that_was_never_tried_has_no_attempts(world: World) -> None:
    await world.create()
    shown = await delivery(world, await world.post_event())
    assert (shown["attempts"], shown["attempt_count"]) == ([], 0)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json; charset=utf-8", b'{"a":1e400, "a":"\\ud800"}'),
        ("text/html", b"<script>alert(1)</script>"),
        ("text/plain", bytes(range(256))),
        ("image/svg+xml", b"<svg onload=alert(3)>"),
        ("nonsense", b""),
    ],
)
async def test_a_payload_comes_back_byte_for_byte_and_never_runs(
    shared_world: World, content_type: str, body: bytes
) -> None:
    headers = [("Relay-Event-Type", "a"), ("Content-Type", content_type)]
    accepted = (await call(shared_world.app, "POST", "/v1/events", headers=headers, body=body)).json()
    reply = await shared_world.get(f"/v1/receipts/{accepted['receipt_id']}/payload")
    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, body, content_type)
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in reply.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        "receipts/rcp_" + "0" * 32,
        "receipts/rcp_" + "f" * 32,
        "receipts/rcp_",
        "receipts/x",
        "receipts/ep_" + "0" * 32,
        "receipts/rcp_" + "0" * 32 + "/payload",
        "receipts/x/payload",
        "deliveries/00000000-0000-0000-0000-000000000000",
        "deliveries/ffffffff-ffff-ffff-ffff-ffffffffffff",
        "deliveries/00000000000000000000000000000000",
        "deliveries/{00000000-0000-0000-0000-000000000000}",
        "deliveries/urn:uuid:00000000-0000-0000-0000-000000000000",
        "deliveries/x",
        "deliveries/\x00",
    ],
)
async def test_what_nobody_has_is_not_found(shared_world: World, path: str) -> None:
    reply = await shared_world.get(f"/v1/{path}")
    assert (reply.status, reply.code) == (404, "not_found")


async def test_what_another_tenant_has_is_not_found(world: World) -> None:
    await world.create()
    accepted = await world.post_event()
    await world.sql("insert into tenants (id, name, partition) values ('acct_other', 'other', 1)")
    for table in ("journal", "receipts", "deliveries"):
        await world.sql(f"update {table} set tenant = 'acct_other'")  # noqa: S608 - the tests' own names
    paths = [
        f"/v1/receipts/{accepted['receipt_id']}",
        f"/v1/receipts/{accepted['receipt_id']}/payload",
        f"/v1/deliveries/{accepted['deliveries'][0]['id']}",
    ]
    assert [(await world.get(path)).status for path in paths] == [404] * 3


async def test_a_database_that_is_away_is_a_503(world: World) -> None:
    accepted = await world.post_event()
    await world.database.close()
    assert (await world.get(f"/v1/receipts/{accepted['receipt_id']}")).code == "database_unavailable"


async def test_an_event_that_was_refused_has_no_receipt(world: World) -> None:
    assert (await call(world.app, "POST", "/v1/events", headers=[JSON], body=b"{}")).status == 400
    assert await world.count("receipts") == 0
