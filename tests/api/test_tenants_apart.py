"""Claims about tenants: on every route, what belongs to one is for another as if it were not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pytest

from relay.domain import ids
from relay.domain.delivery import DeadReason, DeliveryMove
from relay.domain.outcome import OutcomeClass
from tests.api.description import operations
from tests.api.world import JSON, World, new_id
from tests.support.administration import bearer
from tests.support.asgi import Reply, call

THEIRS = "acct_theirs"

BY_ID: dict[str, tuple[str, object]] = {
    "get_endpoint": ("endpoint", None),
    "change_endpoint": ("endpoint", {"burst": 7}),
    "remove_endpoint": ("endpoint", None),
    "list_deliveries": ("endpoint", None),
    "pause_endpoint": ("endpoint", None),
    "resume_endpoint": ("endpoint", None),
    "send_test_event": ("endpoint", None),
    "rotate_secret": ("endpoint", {}),
    "get_receipt": ("receipt", None),
    "wait_for_receipt": ("receipt", None),
    "get_payload": ("receipt", None),
    "acknowledge": ("receipt", {"consumer": "ours"}),
    "redrive_receipt": ("receipt", {}),
    "get_delivery": ("delivery", None),
    "redrive_delivery": ("delivery", None),
    "get_schema": ("schema", None),
    "change_source": ("source", {"auth": ["bearer"]}),
    "rotate_source": ("source", None),
    "remove_source": ("source", None),
    "revoke_key": ("key", None),
}
"""Routes to one thing: which, and the body of a call."""

LISTS = {
    "list_audit",
    "list_endpoints",
    "list_receipts",
    "list_dead_letters",
    "list_schemas",
    "list_event_types",
    "list_sources",
    "list_keys",
}
"""Routes to many things: of another tenant's there are none."""

IN_BULK = {"redrive_dead_letters", "discard_dead_letters"}

MAKING: dict[str, Any] = {
    "post_event": {"type": "invoice.paid"},
    "post_batch": [{"type": "invoice.paid", "payload": {}}],
    "create_endpoint": {"url": "https://example.com/", "name": "ours"},
    "put_schema": {"type": "object"},
    "create_source": {"name": "new-source", "auth": ["hmac"]},
    "create_key": {"name": "new-key", "scopes": ["read"]},
}
"""Routes that make something, under names that the other tenant has as well."""

OPERATORS: dict[str, object] = {
    "create_tenant": {"name": "x"},
    "change_tenant": {"strict_schemas": True},
    "remove_tenant": None,
}
SHOWS_ITS_OWN = {"list_tenants"}
OF_THE_PROCESS = {"healthz", "readyz", "metrics"}


@dataclass(frozen=True)
class Two:
    """Two tenants: the headers by which each is known, and what the first one has."""

    world: World
    ours: list[tuple[str, str]]
    theirs: list[tuple[str, str]]
    there: dict[str, str]

    async def ask(self, name: str, body: object = None, *, tenant: list[tuple[str, str]], **places: str) -> Reply:
        """Make a call by its name in the description."""
        operation = operations()[name]
        path = operation["path"]
        for place, value in places.items():
            path = path.replace(f"{{{place}}}", value)
        if operation["path"].endswith("/wait"):
            path += "?timeout=0"
        self.world.shown[:] = tenant
        return await self.world.send(operation["method"], path, body)

    async def state(self) -> list[bytes]:
        """Everything that the first tenant sees of its own."""
        shown = [await self.ask(name, tenant=self.ours) for name in sorted(LISTS)]
        shown += [
            await self.ask(name, tenant=self.ours, **places(name, self.there))
            for name in ("get_endpoint", "get_receipt", "get_payload", "get_delivery", "get_schema")
        ]
        assert {reply.status for reply in shown} == {200}
        return [reply.body for reply in shown]


def places(name: str, there: dict[str, str]) -> dict[str, str]:
    """What stands in the path of a call to one thing."""
    kind, _ = BY_ID[name]
    return {"type": there["type"], "version": "v1"} if kind == "schema" else {"id": there[kind]}


NOWHERE = {
    "endpoint": f"ep_{'1' * 32}",
    "receipt": f"rcp_{'1' * 32}",
    "delivery": "11111111-1111-1111-1111-111111111111",
    "source": f"src_{'1' * 32}",
    "key": f"key_{'1' * 32}",
    "type": "no.such",
}


async def two(world: World) -> Two:
    """A tenant that has one of everything, and another one."""
    ours = [bearer((await world.credentials.key("admin")).secret)]
    await world.credentials.tenant(THEIRS)
    theirs = [bearer((await world.credentials.key("admin", tenant=THEIRS)).secret)]
    world.shown[:] = ours
    endpoint = await world.create(name="ours")
    accepted = await world.post_event()
    await world.attempt(DeliveryMove.BURY, OutcomeClass.PERMANENT, dead_reason=DeadReason.PERMANENT_FAILURE)
    schema = await call(
        world.app, "PUT", "/v1/schemas/our.type/v1", headers=[*ours, ("Content-Type", "application/json")], body=b"{}"
    )
    assert schema.status == 201, schema
    there = {
        "endpoint": endpoint["id"],
        "receipt": accepted["receipt_id"],
        "delivery": accepted["deliveries"][0]["id"],
        "source": ids.write(ids.SOURCE, (await world.credentials.source("hmac")).id),
        "key": ids.write(ids.KEY, (await world.credentials.key("read")).id),
        "type": "our.type",
    }
    return Two(world, ours, theirs, there)


def test_every_route_has_a_case_here() -> None:
    assert set(operations()) == {*BY_ID, *LISTS, *IN_BULK, *MAKING, *OPERATORS, *SHOWS_ITS_OWN, *OF_THE_PROCESS}


async def test_what_is_another_tenants_is_as_if_it_were_not_there(world: World) -> None:
    """Case C153: by its id, on every route that takes one; the answer is that to an id that nobody has."""
    tenants = await two(world)
    before = await tenants.state()
    for name, (_, body) in BY_ID.items():
        foreign = await tenants.ask(name, body, tenant=tenants.theirs, **places(name, tenants.there))
        nobodys = await tenants.ask(name, body, tenant=tenants.theirs, **places(name, NOWHERE))
        assert foreign.status == 404, (name, foreign)
        assert foreign.body == nobodys.body, name
    assert await tenants.state() == before


@pytest.mark.parametrize("name", sorted(LISTS))
async def test_a_list_has_nothing_of_another_tenants(world: World, name: str) -> None:
    tenants = await two(world)
    ours = await tenants.ask(name, tenant=tenants.ours)
    theirs = await tenants.ask(name, tenant=tenants.theirs)
    assert len(ours.json()["data"]) >= 1
    shown = [each for each in theirs.json()["data"] if each.get("tenant") != THEIRS]
    assert shown == []


@pytest.mark.parametrize("name", sorted(IN_BULK))
@pytest.mark.parametrize("dry_run", [True, False])
async def test_what_is_done_in_bulk_reaches_nothing_of_another_tenants(world: World, name: str, dry_run: bool) -> None:
    """Case C153: with an empty filter, by type, by reason; and another tenant's consumer is one that nobody knows."""
    tenants = await two(world)
    before = await tenants.state()
    for wanted in ({}, {"type": "invoice.*"}, {"reason": "permanent_failure"}):
        reply = await tenants.ask(name, {**wanted, "dry_run": dry_run}, tenant=tenants.theirs)
        assert (reply.status, reply.json()["count"]) == (202, 0)
    by_name = [
        await tenants.ask(name, {"consumer": consumer, "dry_run": dry_run}, tenant=tenants.theirs)
        for consumer in ("ours", "none")
    ]
    assert [reply.code for reply in by_name] == ["bad_filter"] * 2
    assert by_name[0].json()["detail"].replace("ours", "none") == by_name[1].json()["detail"]
    assert await tenants.state() == before


@pytest.mark.parametrize("name", sorted(MAKING))
async def test_what_a_tenant_makes_is_its_own_whatever_another_one_has(world: World, name: str) -> None:
    tenants = await two(world)
    before = await tenants.state()
    made = await tenants.ask(name, MAKING[name], tenant=tenants.theirs, type=tenants.there["type"], version="v1")
    assert made.status in (201, 202), made
    assert await tenants.state() == before


async def test_one_request_name_of_two_tenants_is_two_requests(world: World) -> None:
    """Case C56, for what is sent again: a name that another tenant used is free."""
    tenants = await two(world)
    named = ("Idempotency-Key", "K")
    for shown in (tenants.ours, tenants.theirs):
        path = "/v1/dead-letters/redrive"
        reply = await call(world.app, "POST", path, headers=[*shown, named, JSON], body=b"{}")
        assert "relay-idempotent-replay" not in reply.headers
        assert reply.json()["count"] == (1 if shown is tenants.ours else 0)


@pytest.mark.parametrize("name", sorted(OPERATORS))
async def test_tenants_themselves_are_an_operators(world: World, name: str) -> None:
    tenants = await two(world)
    for tenant in (THEIRS, "acct_default", "acct_nobody"):
        reply = await tenants.ask(name, OPERATORS[name], tenant=tenants.ours, id=tenant)
        assert (reply.status, reply.code) == (403, "scope_missing")


@pytest.mark.parametrize("tenant", ["acct_nobody", "nobody", "acct_%00", "%00"])
async def test_a_tenant_that_there_is_not_is_not_found(world: World, tenant: str) -> None:
    world.shown.append(bearer((await world.credentials.key("operator")).secret))
    for method, body in (("DELETE", None), ("PATCH", {"strict_schemas": True})):
        assert (await world.send(method, f"/v1/tenants/{unquote(tenant)}", body)).status == 404


async def test_a_tenant_sees_no_other_tenant(world: World) -> None:
    tenants = await two(world)
    reply = await tenants.ask("list_tenants", tenant=tenants.theirs)
    assert [each["id"] for each in reply.json()["data"]] == [THEIRS]


async def test_an_id_that_is_made_up_is_found_by_nobody(world: World) -> None:
    tenants = await two(world)
    reply = await tenants.ask("get_receipt", tenant=tenants.ours, id=ids.write(ids.RECEIPT, new_id()))
    assert reply.status == 404
