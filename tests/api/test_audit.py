"""Claims about the audit: each change is entered once and names who asked for it, nothing else is, and it stays so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from fastapi.routing import APIRoute

from relay.domain.audit import Author
from relay.domain.delivery import DeadReason, DeliveryMove
from relay.domain.endpoint import EndpointConfig
from relay.domain.outcome import OutcomeClass
from relay.domain.secret import Secret
from relay.store.endpoints import Endpoints
from relay.store.faults import StoreRefused
from relay.store.vault import Vault, new_key
from tests.api.world import ENDPOINTS, URL, World, new_id
from tests.support.administration import TENANT, bearer
from tests.support.asgi import Reply, call

AUDIT = "/v1/audit"
OTHER = "acct_other"
NOBODY = "0" * 32


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that changes something, and what its entry says then; a subject of None is whatever the answer's id is."""

    path: str
    action: str
    subject: str | None
    body: object = None


Case = Callable[[World], Awaitable[Asked]]
"""Prepares a change."""


async def an_endpoint(world: World) -> str:
    made: str = (await world.create())["id"]
    return made


async def a_dead_letter(world: World) -> Any:
    await world.create(name="ledger")
    accepted = await world.post_event()
    await world.attempt(
        DeliveryMove.BURY, OutcomeClass.PERMANENT, status_code=404, dead_reason=DeadReason.PERMANENT_FAILURE
    )
    return accepted


def of_endpoint(action: str, suffix: str = "", body: object = None) -> Case:
    async def prepare(world: World) -> Asked:
        endpoint = await an_endpoint(world)
        return Asked(f"{ENDPOINTS}/{endpoint}{suffix}", action, endpoint, body)

    return prepare


def of_nothing_yet(path: str, action: str, subject: str | None, body: object) -> Case:
    async def prepare(_: World) -> Asked:
        return Asked(path, action, subject, body)

    return prepare


def of_credential(kind: str, action: str, made_as: object, suffix: str = "", body: object = None) -> Case:
    async def prepare(world: World) -> Asked:
        reply = await world.send("POST", f"/v1/{kind}", made_as)
        assert reply.status == 201, reply
        made = reply.json()["id"]
        return Asked(f"/v1/{kind}/{made}{suffix}", action, made, body)

    return prepare


def of_dead_letters(action: str) -> Case:
    async def prepare(world: World) -> Asked:
        await a_dead_letter(world)
        return Asked(f"/v1/dead-letters/{action}", f"dead_letters.{action}", "", {"consumer": "ledger"})

    return prepare


async def of_receipt(world: World) -> Asked:
    receipt = (await a_dead_letter(world))["receipt_id"]
    return Asked(f"/v1/receipts/{receipt}/redrive", "receipt.redrive", receipt)


async def of_delivery(world: World) -> Asked:
    delivery = (await a_dead_letter(world))["deliveries"][0]["id"]
    return Asked(f"/v1/deliveries/{delivery}/redrive", "delivery.redrive", delivery)


KEY = {"name": "spare", "scopes": ["read"]}
SOURCE = {"name": "billing", "auth": ["hmac"]}

CASES: dict[tuple[str, str], Case] = {
    ("POST", "/v1/endpoints"): of_nothing_yet(ENDPOINTS, "endpoint.create", None, {"url": URL}),
    ("PATCH", "/v1/endpoints/{id}"): of_endpoint("endpoint.change", body={"burst": 7}),
    ("DELETE", "/v1/endpoints/{id}"): of_endpoint("endpoint.remove"),
    ("POST", "/v1/endpoints/{id}/pause"): of_endpoint("endpoint.pause", "/pause"),
    ("POST", "/v1/endpoints/{id}/resume"): of_endpoint("endpoint.resume", "/resume"),
    ("POST", "/v1/endpoints/{id}/rotate-secret"): of_endpoint("endpoint.rotate_secret", "/rotate-secret"),
    ("POST", "/v1/keys"): of_nothing_yet("/v1/keys", "key.create", None, KEY),
    ("DELETE", "/v1/keys/{id}"): of_credential("keys", "key.revoke", KEY),
    ("POST", "/v1/sources"): of_nothing_yet("/v1/sources", "source.create", None, SOURCE),
    ("PATCH", "/v1/sources/{id}"): of_credential("sources", "source.change", SOURCE, body={"auth": ["bearer"]}),
    ("POST", "/v1/sources/{id}/rotate"): of_credential("sources", "source.rotate", SOURCE, "/rotate"),
    ("DELETE", "/v1/sources/{id}"): of_credential("sources", "source.remove", SOURCE),
    ("POST", "/v1/tenants"): of_nothing_yet("/v1/tenants", "tenant.create", OTHER, {"id": OTHER, "name": "Other"}),
    ("PATCH", "/v1/tenants/{id}"): of_nothing_yet(
        f"/v1/tenants/{TENANT}", "tenant.change", TENANT, {"strict_schemas": True}
    ),
    ("DELETE", "/v1/tenants/{id}"): of_credential("tenants", "tenant.remove", {"id": OTHER, "name": "Other"}),
    ("PUT", "/v1/schemas/{type:path}/{version}"): of_nothing_yet(
        "/v1/schemas/invoice.paid/v1", "schema.put", "invoice.paid/v1", {"type": "object"}
    ),
    ("POST", "/v1/receipts/{id}/redrive"): of_receipt,
    ("POST", "/v1/deliveries/{id}/redrive"): of_delivery,
    ("POST", "/v1/dead-letters/redrive"): of_dead_letters("redrive"),
    ("POST", "/v1/dead-letters/discard"): of_dead_letters("discard"),
}

ON_RECORD_ELSEWHERE = {
    ("POST", "/v1/receipts/{id}/acks"): "is the endpoint's own word, in the receipt's timeline",
    ("POST", "/v1/endpoints/{id}/test"): "is an event, which has a receipt with its source",
}

each_change = pytest.mark.parametrize(("method", "route"), CASES)


async def as_operator(world: World) -> None:
    """From now on every call is that of the key `ops`."""
    made = await world.credentials.key("operator", name="ops")
    world.shown[:] = [bearer(made.secret)]


async def entries(world: World, query: str = "tenant=*") -> list[Any]:
    return await world.pages(f"{AUDIT}?{query}")


async def sent_by(world: World, secret: str, method: str, path: str, *headers: tuple[str, str]) -> Reply:
    return await call(world.app, method, path, headers=[bearer(secret), *headers])


async def test_every_call_that_changes_something_is_entered_or_is_on_record_elsewhere(shared_world: World) -> None:
    changing = {
        (method, route.path)
        for route in shared_world.api.routes
        if isinstance(route, APIRoute)
        for method in (route.methods or set()) - {"GET", "HEAD", "OPTIONS"}
    }
    assert changing == CASES.keys() | ON_RECORD_ELSEWHERE.keys()


@each_change
async def test_a_change_is_entered_once_with_who_asked_for_it(world: World, method: str, route: str) -> None:
    await as_operator(world)
    asked = await CASES[method, route](world)
    before = await entries(world)
    reply = await world.send(method, asked.path, asked.body)
    assert reply.status < 300, reply
    entry, *others = await entries(world)
    assert others == before
    subject = reply.json()["id"] if asked.subject is None else asked.subject or None
    expected = (asked.action, subject, "key:ops", TENANT)
    assert (entry["action"], entry["subject"], entry["actor"], entry["actor_tenant"]) == expected


@each_change
async def test_a_change_that_the_caller_may_not_make_is_not_entered(world: World, method: str, route: str) -> None:
    await as_operator(world)
    asked = await CASES[method, route](world)
    before = await entries(world)
    reader = await world.credentials.key("read", "ingest")
    refused = await sent_by(world, reader.secret, method, asked.path)
    assert refused.status == 403
    assert await entries(world) == before


@pytest.mark.parametrize(("method", "route"), [each for each in CASES if "{id}" in each[1]])
async def test_a_change_of_what_there_is_not_is_not_entered(world: World, method: str, route: str) -> None:
    await as_operator(world)
    prefixes = {"endpoints": "ep_", "keys": "key_", "sources": "src_", "tenants": "acct_", "receipts": "rcp_"}
    kind = route.split("/")[2]
    nobody = prefixes[kind] + NOBODY if kind in prefixes else "00000000-0000-7000-8000-000000000000"
    bodies = {"endpoints": {"burst": 7}, "sources": {"auth": ["hmac"]}, "tenants": {"strict_schemas": True}}
    body = bodies[kind] if method == "PATCH" else None
    assert (await world.send(method, route.replace("{id}", nobody), body)).status == 404
    assert await entries(world) == []


REFUSED = {
    "a name that is taken": ("POST", "/v1/endpoints", {"url": URL, "name": "ledger"}, 422),
    "a url that is refused": ("POST", "/v1/endpoints", {"url": "ftp://example.com"}, 422),
    "a key that is there": ("POST", "/v1/keys", {"name": "ops", "scopes": ["read"]}, 422),
    "a tenant that is there": ("POST", "/v1/tenants", {"id": TENANT, "name": "x"}, 422),
    "a tenant that is so already": ("PATCH", f"/v1/tenants/{TENANT}", {"strict_schemas": False}, 200),
    "a tenant in use": ("DELETE", f"/v1/tenants/{TENANT}", None, 409),
    "other bytes under a schema's name": ("PUT", "/v1/schemas/invoice.paid/v1", {"type": "array"}, 409),
    "the same bytes again": ("PUT", "/v1/schemas/invoice.paid/v1", {"type": "object"}, 200),
    "a dry run": ("POST", "/v1/dead-letters/discard", {"dry_run": True}, 202),
    "nothing to send again": ("POST", "/v1/dead-letters/redrive", {"consumer": "ledger"}, 202),
}


@pytest.mark.parametrize("why", REFUSED)
async def test_what_changed_nothing_is_not_entered(world: World, why: str) -> None:
    await as_operator(world)
    await world.create(name="ledger")
    await world.send("PUT", "/v1/schemas/invoice.paid/v1", {"type": "object"})
    before = await entries(world)
    method, path, body, status = REFUSED[why]
    assert (await world.send(method, path, body)).status == status
    assert await entries(world) == before


@pytest.mark.parametrize("change", [{}, {"burst": 20}])
async def test_a_patch_that_leaves_everything_as_it_was_is_not_entered(world: World, change: Any) -> None:
    endpoint = await world.create(burst=20)
    before = await world.count("audit")
    assert (await world.send("PATCH", f"{ENDPOINTS}/{endpoint['id']}", change)).status == 200
    assert await world.count("audit") == before


@pytest.mark.parametrize("state", ["paused", "disabled"])
async def test_a_pause_of_what_is_held_already_changes_nothing_and_is_not_entered(world: World, state: str) -> None:
    endpoint = await an_endpoint(world)
    await world.sql("update endpoints set status = $1::text::endpoint_status, status_reason = 'first'", state)
    before = [await world.count("audit"), (await world.get(f"{ENDPOINTS}/{endpoint}")).json()]
    assert (await world.send("POST", f"{ENDPOINTS}/{endpoint}/pause")).status == 200
    assert [await world.count("audit"), (await world.get(f"{ENDPOINTS}/{endpoint}")).json()] == before


async def test_the_entry_of_a_sources_end_names_the_keys_that_ended_with_it(world: World) -> None:
    await as_operator(world)
    source = (await world.send("POST", "/v1/sources", {"name": "billing", "auth": ["bearer"]})).json()["id"]
    for name in ("b", "a", "ended"):
        await world.send("POST", "/v1/keys", {"name": name, "scopes": ["ingest"], "source": "billing"})
    ended, *_ = [each["id"] for each in await world.pages("/v1/keys") if each["name"] == "ended"]
    await world.send("DELETE", f"/v1/keys/{ended}")
    await world.send("DELETE", f"/v1/sources/{source}")
    (entry,) = await entries(world, "action=source.remove")
    assert entry["details"] == {"keys": ["a", "b"]}


async def test_a_redrive_that_is_repeated_under_its_name_is_entered_once(world: World) -> None:
    accepted = await a_dead_letter(world)
    before = await world.count("audit")
    for _ in range(2):
        path = f"/v1/receipts/{accepted['receipt_id']}/redrive"
        reply = await call(world.app, "POST", path, headers=[("Idempotency-Key", "once")])
        assert reply.status == 202
    assert await world.count("audit") == before + 1


async def test_a_change_whose_entry_cannot_be_written_is_not_made(world: World) -> None:
    endpoints = Endpoints(world.database, Vault([new_key()])).by(Author("key:ops", TENANT, new_id()))

    async def create(name: str) -> None:
        config = EndpointConfig(name=name, url=URL)
        await endpoints.create(TENANT, new_id(), config, secret_id=new_id(), secret=Secret("whsec_x"))

    await create("first")
    with pytest.raises(StoreRefused):
        await create("second")  # an author has one entry
    assert [each["name"] for each in await world.sql("select name from endpoints")] == ["first"]


@pytest.mark.parametrize("rewriting", ["update audit set actor = 'nobody'", "delete from audit", "truncate audit"])
async def test_an_entry_is_never_changed_or_removed(world: World, rewriting: str) -> None:
    await world.create()
    before = await entries(world)
    with pytest.raises(asyncpg.RaiseError, match="appended to"):
        await world.sql(rewriting)
    assert await entries(world) == before != []


async def test_no_secret_is_entered(world: World) -> None:
    await as_operator(world)
    given = {"url": "https://example.com/token-in-path?k=token-in-query", "headers": {"X-Api-Key": "token-in-header"}}
    endpoint = await world.create(**given, secret="whsec_" + "QUJD" * 11)
    path = f"{ENDPOINTS}/{endpoint['id']}"
    changed = {"url": "https://example.com/token-in-new-path", "headers": {"X-Api-Key": "token-in-new-header"}}
    replies = [await world.send("PATCH", path, changed), await world.send("POST", f"{path}/rotate-secret")]
    replies += [await world.send("POST", "/v1/keys", KEY), await world.send("POST", "/v1/sources", SOURCE)]
    replies.append(await world.send("POST", f"/v1/sources/{replies[-1].json()['id']}/rotate"))
    secrets = [endpoint["secret"], *(reply.json()["secret"] for reply in replies[1:])]
    text = " ".join(row[0] for row in await world.sql("select a::text from audit a"))
    assert text.count("key:ops") == 6
    assert [each for each in ("token-in", *secrets) if each in text] == []


async def test_a_change_of_an_endpoint_names_its_fields_and_tells_what_is_harmless(world: World) -> None:
    endpoint = await world.create(burst=20)
    await world.send("PATCH", f"{ENDPOINTS}/{endpoint['id']}", {"url": f"{URL}/new", "burst": 30})
    (entry,) = await entries(world, "action=endpoint.change")
    assert entry["changes"] == [
        {"field": "url", "hidden": True, "old": None, "new": None},
        {"field": "burst", "hidden": False, "old": 20, "new": 30},
    ]


async def test_an_operators_change_in_another_tenant_names_both(world: World) -> None:
    await as_operator(world)
    await world.credentials.tenant(OTHER)
    theirs = await world.credentials.key("admin", tenant=OTHER)
    world.shown.append(("Relay-Tenant", OTHER))
    await world.create()
    del world.shown[1:]
    reply = await sent_by(world, theirs.secret, "GET", AUDIT)
    (entry,) = reply.json()["data"]
    assert (entry["tenant"], entry["actor"], entry["actor_tenant"]) == (OTHER, "key:ops", TENANT)


async def test_an_admin_reads_its_own_tenant_alone_and_an_operator_all(world: World) -> None:
    await as_operator(world)
    await world.send("POST", "/v1/tenants", {"id": OTHER, "name": "Other"})
    await world.create()
    admin = await world.credentials.key("admin")
    seen = (await sent_by(world, admin.secret, "GET", AUDIT)).json()["data"]
    assert [each["action"] for each in seen] == ["endpoint.create"]
    for wanted in (OTHER, "*"):
        assert (await sent_by(world, admin.secret, "GET", f"{AUDIT}?tenant={quote(wanted)}")).status == 403
    assert [each["action"] for each in await entries(world, f"tenant={OTHER}")] == ["tenant.create"]
    assert [each["action"] for each in await entries(world)] == ["endpoint.create", "tenant.create"]


async def test_the_removal_of_a_tenant_can_be_read_by_an_operator(world: World) -> None:
    await as_operator(world)
    await world.send("POST", "/v1/tenants", {"id": OTHER, "name": "Other"})
    await world.send("DELETE", f"/v1/tenants/{OTHER}")
    assert [each["action"] for each in await entries(world, f"tenant={OTHER}")] == ["tenant.remove", "tenant.create"]


async def test_who_may_only_read_does_not_read_the_audit(world: World) -> None:
    await as_operator(world)
    reader = await world.credentials.key("read")
    assert (await sent_by(world, reader.secret, "GET", AUDIT)).status == 403


async def test_filters_select_what_they_say(world: World) -> None:
    await as_operator(world)
    endpoint = await an_endpoint(world)
    await world.send("POST", f"{ENDPOINTS}/{endpoint}/pause")
    other = await world.credentials.key("admin", name="other")
    assert (await sent_by(world, other.secret, "POST", f"{ENDPOINTS}/{endpoint}/resume")).status == 200
    await an_endpoint(world)

    async def actions(query: str) -> list[str]:
        return [each["action"].removeprefix("endpoint.") for each in await entries(world, query)]

    assert await actions("actor=key:other") == ["resume"]
    assert await actions("action=endpoint.create") == ["create", "create"]
    assert await actions(f"subject={endpoint}") == ["resume", "pause", "create"]
    assert await actions(f"subject={endpoint}&actor=key:ops&action=endpoint.pause") == ["pause"]
    later = quote((datetime.now(UTC) + timedelta(minutes=5)).isoformat())
    assert await actions(f"since={later}") == []
    assert len(await actions(f"until={later}")) == 4
    (row,) = await world.sql("select at from audit where action = 'endpoint.pause'")
    at = quote(row["at"].isoformat())
    assert await actions(f"since={at}") == ["create", "resume", "pause"]
    assert await actions(f"until={at}") == ["create"]


async def test_an_unknown_action_is_refused_with_those_that_there_are(shared_world: World) -> None:
    refused = await shared_world.get(f"{AUDIT}?action=endpoint.destroy")
    assert (refused.status, refused.json()["code"]) == (400, "bad_filter")
    assert "endpoint.remove" in refused.json()["detail"]


@pytest.mark.parametrize("query", ["tenant=*", "", "actor=anonymous", "action=endpoint.create"])
async def test_entries_of_one_moment_are_all_listed_once_while_others_come(world: World, query: str) -> None:
    await world.sql(
        "insert into audit (id, tenant, actor, actor_tenant, action)"
        " select gen_random_uuid(), $1, case when n % 100 = 0 then 'anonymous' else 'key:ops' end, $1,"
        " case when n % 100 = 0 then 'endpoint.create' else 'endpoint.pause' end from generate_series(1, 700) n",
        TENANT,
    )
    wanted = {"tenant=*": 700, "": 700}.get(query, 7)
    there = {row["id"].hex for row in await world.sql("select id from audit")}
    listed = await world.pages(f"{AUDIT}?{query}" if query else AUDIT, 90, between=lambda: an_endpoint(world))
    names = [each["id"].removeprefix("aud_") for each in listed]
    assert len(names) == len(set(names))
    assert len(set(names) & there) == wanted


async def test_changes_of_one_thing_at_once_are_listed_in_the_order_in_which_they_were_made(world: World) -> None:
    endpoint = (await world.create(rate_per_second=100))["id"]
    for start in (101, 201):
        patches = [world.send("PATCH", f"{ENDPOINTS}/{endpoint}", {"rate_per_second": start + n}) for n in range(16)]
        assert {reply.status for reply in await asyncio.gather(*patches)} == {200}
    entries = (await world.get(f"{AUDIT}?action=endpoint.change&limit=100")).json()["data"]
    changes = [change for entry in reversed(entries) for change in entry["changes"]]
    assert len(changes) == 32
    assert [change["old"] for change in changes[1:]] == [change["new"] for change in changes[:-1]]
