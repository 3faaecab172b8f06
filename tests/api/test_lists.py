"""Claims about lists: complete and without repeats whatever happens meanwhile, and exactly what was asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from relay.api.filters import read_instant
from relay.domain.delivery import DeadReason, DeliveryMove
from relay.domain.outcome import OutcomeClass
from relay.store.queue import FIRST_LANE
from tests.api.world import ENDPOINTS, World, new_id

RECEIPTS = "/v1/receipts"
TIED = 1_000


def ids_of(items: list[Any], field: str = "receipt_id") -> list[str]:
    return [item[field] for item in items]


async def deliver_some(world: World) -> None:
    """Take what is due, and record that it was delivered, or that it did not go."""
    claim = await world.queue.claim_due(after=FIRST_LANE, batch=30, token=new_id(), lease_seconds=60.0)
    await world.sql(
        "update deliveries set status = 'delivered', acked_at = now(), lease_token = null, lease_until = null"
        " where id = any($1::uuid[])",
        [delivery.id for delivery in claim.deliveries[:10]],
    )
    await world.sql(
        "update receipts set outcome = 'delivered', acked = 1, closed_at = now() where id = any($1::uuid[])",
        [delivery.receipt_id for delivery in claim.deliveries[:10]],
    )


async def test_receipts_of_one_millisecond_are_all_listed_once_while_others_come_and_go_on(world: World) -> None:
    await world.create()
    there = ids_of(await world.post_batch(TIED))
    assert len({receipt[:16] for receipt in there}) == 1

    async def meanwhile() -> None:
        await world.post_batch(20)
        await deliver_some(world)

    for path in (RECEIPTS, f"{RECEIPTS}?type=invoice.*", f"{RECEIPTS}?consumer={await name(world)}"):
        listed = ids_of(await world.pages(path, between=meanwhile))
        assert listed == sorted(listed, reverse=True)
        assert len(set(listed)) == len(listed)
        assert set(there) <= set(listed)


async def name(world: World) -> str:
    (endpoint,) = (await world.get(ENDPOINTS)).json()["data"]
    answer: str = endpoint["name"]
    return answer


@pytest.mark.parametrize("status", ["", "status=pending"])
async def test_deliveries_that_stay_are_all_listed_once_while_others_move(world: World, status: str) -> None:
    endpoint = await world.create()
    accepted = await world.post_batch(TIED)
    stay = {event["deliveries"][0]["id"] for event in accepted[::2]}
    await world.sql("update endpoints set rate_per_second = 1e5, burst = 1e5")
    await world.sql("update deliveries set due_at = now() + interval '1 day' where id = any($1::uuid[])", list(stay))

    async def meanwhile() -> None:
        await world.post_batch(20)
        claim = await world.queue.claim_due(after=FIRST_LANE, batch=30, token=new_id(), lease_seconds=60.0)
        assert claim.deliveries

    listed = ids_of(await world.pages(f"{ENDPOINTS}/{endpoint['id']}/deliveries?{status}", 50, meanwhile), "id")
    assert len(set(listed)) == len(listed)
    assert stay <= set(listed)


@pytest.mark.parametrize("state", ["open", "closed"])
async def test_receipts_that_keep_their_state_are_all_listed_once(world: World, state: str) -> None:
    await world.create()
    accepted = ids_of(await world.post_batch(300))
    for receipt in accepted[::2]:
        await world.sql(
            "update receipts set outcome = 'delivered', closed_at = now(), acked = 1 where id = $1::uuid", receipt[4:]
        )
        await world.sql(
            "update deliveries set status = 'delivered', acked_at = now() where receipt_id = $1::uuid", receipt[4:]
        )
    listed = ids_of(await world.pages(f"{RECEIPTS}?state={state}", 7))
    assert sorted(listed) == sorted(accepted[::2] if state == "closed" else accepted[1::2])


async def test_endpoints_of_one_millisecond_are_all_listed_once_while_others_come_and_go(world: World) -> None:
    passing = (await world.create())["id"]
    await world.sql(
        "insert into endpoints select (jsonb_populate_record(e, jsonb_build_object("
        " 'id', left(e.id::text, 13) || substr(md5(n::text), 1, 4) || '-8' || substr(md5(n::text), 5, 3) || '-'"
        " || substr(md5(n::text), 8, 12), 'name', 'c' || n))).* from endpoints e, generate_series(1, $1) as n",
        TIED,
    )
    there = {f"ep_{row['id'].hex}" for row in await world.sql("select id from endpoints where name like 'c%'")}
    assert (len(there), len({endpoint[:15] for endpoint in there})) == (TIED, 1)

    async def meanwhile() -> None:
        await world.create()
        await world.send("DELETE", f"{ENDPOINTS}/{passing}")

    listed = ids_of(await world.pages(ENDPOINTS, between=meanwhile), "id")
    assert len(set(listed)) == len(listed)
    assert there <= set(listed)


PATTERNS = [
    "order.created", "order.*", "*", "ORDER.CREATED", "order", "order.created.*", "order.cr", "order.create_",
]  # fmt: skip
TYPES = ["order.created", "order.created_v2", "orderXcreated", "order.created.eu", "Order.Created", "order"]


async def test_a_type_filter_means_what_a_subscription_means(world: World) -> None:
    for number, pattern in enumerate(PATTERNS):
        await world.create(name=f"c{number}", event_types=[pattern])
    for event_type in TYPES:
        await world.post_event(event_type)
    for number, pattern in enumerate(PATTERNS):
        filtered = ids_of(await world.pages(f"{RECEIPTS}?{urlencode({'type': pattern})}"))
        routed = ids_of(await world.pages(f"{RECEIPTS}?consumer=c{number}"))
        assert filtered == routed, pattern


async def test_a_list_answers_exactly_what_is_asked_for(world: World) -> None:
    await world.create(name="ledger", event_types=["invoice.*"])
    paid = await world.post_event("invoice.paid", Idempotency_Key="k1")
    await world.attempt(DeliveryMove.ACK, OutcomeClass.SUCCESS)
    sent = await world.post_event("invoice.sent")
    nobody = await world.post_event("nobody.wants")
    asked = {
        "state=open": [nobody, sent],
        "state=closed": [paid],
        "type=invoice.paid": [paid],
        "event_id=k1": [paid],
        f"event_id={sent['event_id']}": [sent],
        "event_id=unheard-of": [],
        "consumer=ledger": [sent, paid],
        "consumer=ledger&state=closed&type=invoice.*": [paid],
        "type=invoice.sent&state=closed": [],
        "since=2020-01-01T00:00:00Z": [nobody, sent, paid],
        "until=2020-01-01T00:00:00Z": [],
        f"since={sent['received_at']}&until=2999-01-01T00:00:00Z&type=invoice.sent": [sent],
        f"until={paid['received_at']}": [],
    }
    for query, wanted in asked.items():
        assert ids_of(await world.pages(f"{RECEIPTS}?{query}")) == ids_of(wanted), query


async def test_a_removed_consumer_can_still_be_asked_for(world: World) -> None:
    endpoint = await world.create(name="ledger")
    accepted = await world.post_event()
    await world.send("DELETE", f"{ENDPOINTS}/{endpoint['id']}")
    assert ids_of(await world.pages(f"{RECEIPTS}?consumer=ledger")) == [accepted["receipt_id"]]


async def test_an_item_of_the_list_is_the_receipt(world: World) -> None:
    await world.create()
    accepted = await world.post_event()
    (item,) = await world.pages(RECEIPTS)
    assert item == (await world.get(f"{RECEIPTS}/{accepted['receipt_id']}")).json()


async def test_a_receipt_of_many_deliveries_shows_the_first_in_a_list_and_counts_all(world: World) -> None:
    for _ in range(101):
        await world.create()
    accepted = await world.post_event()
    (item,) = await world.pages(RECEIPTS)
    assert (len(item["deliveries"]), item["delivery_count"]) == (100, 101)
    whole = (await world.get(f"{RECEIPTS}/{accepted['receipt_id']}")).json()
    assert (len(whole["deliveries"]), whole["delivery_count"]) == (101, 101)


async def test_deliveries_are_listed_by_status(world: World) -> None:
    endpoint = await world.create()
    wanted = {}
    wanted["delivered"] = await world.post_event()
    await world.attempt(DeliveryMove.ACK, OutcomeClass.SUCCESS)
    wanted["dead"] = await world.post_event()
    await world.attempt(DeliveryMove.BURY, OutcomeClass.PERMANENT, dead_reason=DeadReason.PERMANENT_FAILURE)
    wanted["in_flight"] = await world.post_event()
    await world.claim()
    wanted["pending"] = await world.post_event()
    for status, accepted in wanted.items():
        (item,) = await world.pages(f"{ENDPOINTS}/{endpoint['id']}/deliveries?status={status}")
        assert (item["receipt_id"], item["status"]) == (accepted["receipt_id"], status)
    assert len(await world.pages(f"{ENDPOINTS}/{endpoint['id']}/deliveries")) == len(wanted)


BAD_FILTERS = {
    f"{RECEIPTS}?state=ajar": "'open' or 'closed'",
    f"{RECEIPTS}?state=": "'open' or 'closed'",
    f"{RECEIPTS}?state=OPEN": "'open' or 'closed'",
    f"{RECEIPTS}?type=order.creat%3F": "a pattern is",
    f"{RECEIPTS}?type=order.*.paid": "a pattern is",
    f"{RECEIPTS}?type=order.%25": "a pattern is",
    f"{RECEIPTS}?type=": "a pattern is",
    f"{RECEIPTS}?consumer=nobody": "there are ",
    f"{RECEIPTS}?consumer=": "at least 1 character",
    f"{RECEIPTS}?consumer={'x' * 101}": "at most 100 characters",
    f"{RECEIPTS}?consumer=a%00b": "NUL",
    f"{RECEIPTS}?event_id=a%00b": "NUL",
    f"{RECEIPTS}?event_id=": "at least 1 character",
    f"{RECEIPTS}?since=yesterday": "an instant is written as 2026-",
    f"{RECEIPTS}?since=1764493500": "an instant is written as 2026-",
    f"{RECEIPTS}?since=2026-11-30": "an instant is written as 2026-",
    f"{RECEIPTS}?since=2026-11-30T09:05:00": "an instant is written as 2026-",
    f"{RECEIPTS}?until=2026-13-30T09:05:00Z": "there is no such instant",
    f"{RECEIPTS}?until=0001-01-01T00:00:00%2B23:00": "there is no such instant",
    f"{RECEIPTS}?consumr=ledger": "known are limit, cursor, state, type, event_id, consumer, since, until",
    f"{RECEIPTS}?state=open&state=closed": "given more than once: state",
    f"{RECEIPTS}?limit=0": "greater than or equal to 1",
    f"{RECEIPTS}?limit=-1": "greater than or equal to 1",
    f"{RECEIPTS}?limit=101": "less than or equal to 100",
    f"{RECEIPTS}?limit=1000000000": "less than or equal to 100",
    f"{RECEIPTS}?limit=1e9": "valid integer",
    f"{RECEIPTS}?limit=abc": "valid integer",
    f"{RECEIPTS}?limit=": "valid integer",
    f"{ENDPOINTS}?state=active": "known are limit, cursor",
    f"{ENDPOINTS}/ID/deliveries?status=void": "'pending', 'in_flight', 'delivered' or 'dead'",
    f"{ENDPOINTS}/ID/deliveries?status=lost": "'pending', 'in_flight', 'delivered' or 'dead'",
    f"{ENDPOINTS}/ID/deliveries?state=dead": "known are status, limit, cursor",
}


@pytest.mark.parametrize("path", BAD_FILTERS)
async def test_what_a_list_does_not_know_is_refused_with_what_it_knows(shared_world: World, path: str) -> None:
    endpoint = await shared_world.create()
    reply = await shared_world.get(path.replace("ID", endpoint["id"]))
    assert (reply.status, reply.code) == (400, "bad_filter")
    assert BAD_FILTERS[path] in reply.json()["detail"]


async def test_an_unknown_consumer_is_answered_with_some_that_there_are(world: World) -> None:
    for number in range(12):
        await world.create(name=f"c{number}")
    detail: str = (await world.get(f"{RECEIPTS}?consumer=c99")).json()["detail"]
    named = detail.removeprefix("consumer: no endpoint is or was named 'c99'; there are ").split(", ")
    assert (len(set(named)), named[-1]) == (11, "and more at /v1/endpoints")
    assert set(named[:10]) <= {f"c{number}" for number in range(12)}


async def test_a_cursor_is_for_the_list_and_the_filter_that_gave_it(world: World) -> None:
    first, second = await world.create(), await world.create()
    await world.post_batch(3)
    paths = [
        ENDPOINTS,
        RECEIPTS,
        f"{RECEIPTS}?state=open",
        f"{RECEIPTS}?type=*",
        f"{RECEIPTS}?since=2020-01-01T00:00:00Z",
        f"{RECEIPTS}?until=2999-01-01T00:00:00Z",
        f"{ENDPOINTS}/{first['id']}/deliveries",
        f"{ENDPOINTS}/{first['id']}/deliveries?status=pending",
        f"{ENDPOINTS}/{second['id']}/deliveries",
    ]
    for path in paths:
        join = "&" if "?" in path else "?"
        cursor = (await world.get(f"{path}{join}limit=1")).json()["next_cursor"]
        for other in paths:
            join = "&" if "?" in other else "?"
            reply = await world.get(f"{other}{join}limit=2&cursor={cursor}")
            assert (reply.status if reply.status == 200 else reply.code) == (200 if other == path else "bad_cursor")


async def test_the_same_instant_written_otherwise_is_the_same_filter(world: World) -> None:
    await world.create()
    await world.post_batch(2)
    cursor = (await world.get(f"{RECEIPTS}?limit=1&since=2020-01-01T01:00:00Z")).json()["next_cursor"]
    for spelling in ("2020-01-01T02:00:00%2B01:00", "2020-01-01T02:00:00.000+01:00", "2020-01-01t01:00:00z"):
        assert len((await world.get(f"{RECEIPTS}?cursor={cursor}&since={spelling}")).json()["data"]) == 1


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-11-30T09:05:00Z", datetime(2026, 11, 30, 9, 5, tzinfo=UTC)),
        ("2026-11-30T09:05:00.123456789Z", datetime(2026, 11, 30, 9, 5, 0, 123456, tzinfo=UTC)),
        ("2026-11-30T09:05:00.1Z", datetime(2026, 11, 30, 9, 5, 0, 100_000, tzinfo=UTC)),
        ("2026-11-30 09:05:00-05:30", datetime(2026, 11, 30, 9, 5, tzinfo=timezone(-timedelta(hours=5, minutes=30)))),
        ("2026-11-30T09:05:00 01:00", datetime(2026, 11, 30, 9, 5, tzinfo=timezone(timedelta(hours=1)))),
    ],
)
def test_an_instant_is_read_in_every_form_of_the_standard(text: str, instant: datetime) -> None:
    assert read_instant(text) == instant


async def test_a_list_has_nothing_of_another_tenant(world: World) -> None:
    endpoint = await world.create(name="ledger")
    await world.post_batch(3)
    await world.sql("insert into tenants (id, name, partition) values ('acct_other', 'other', 1)")
    for table in ("journal", "receipts", "deliveries", "endpoints"):
        await world.sql(f"update {table} set tenant = 'acct_other'")  # noqa: S608 - the tests' own names
    for path in (RECEIPTS, f"{RECEIPTS}?state=open", f"{RECEIPTS}?type=invoice.paid", ENDPOINTS):
        assert await world.pages(path) == []
    assert (await world.get(f"{RECEIPTS}?consumer=ledger")).code == "bad_filter"
    assert (await world.get(f"{ENDPOINTS}/{endpoint['id']}/deliveries")).code == "not_found"


async def test_an_endpoint_that_nobody_has_has_no_list(shared_world: World) -> None:
    for endpoint in ("x", "ep_" + "0" * 32, quote("ep_\0")):
        assert (await shared_world.get(f"{ENDPOINTS}/{endpoint}/deliveries")).code == "not_found"
