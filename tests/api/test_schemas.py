"""The catalogue over HTTP: schemas are put once, shown as they were put, listed, and refused with a reason."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from typing import Any

import pytest

from relay.api import schemas as api_schemas
from relay.store import schemas
from tests.api.world import JSON, World
from tests.support.asgi import Reply, call

SCHEMA = b'{ "type": "object",\n  "required": ["amount"] }'


async def put(world: World, name: str, schema: Any, *headers: tuple[str, str]) -> Reply:
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    return await call(world.app, "PUT", f"/v1/schemas/{name}", headers=headers or (JSON,), body=text)


def faults(reply: Reply) -> list[tuple[str, str]]:
    assert (reply.status, reply.code) == (422, "invalid"), reply.body
    return [(each["pointer"], each["detail"]) for each in reply.json()["errors"]]


async def test_a_schema_comes_back_as_the_bytes_that_were_put(world: World) -> None:
    reply = await put(world, "invoice.paid/v3", SCHEMA)
    assert reply.status == 201
    shown = reply.json()
    assert shown.pop("created_at").endswith("Z")
    assert shown == {
        "name": "invoice.paid/v3",
        "type": "invoice.paid",
        "version": "v3",
        "size_bytes": len(SCHEMA),
        "sha256": hashlib.sha256(SCHEMA).hexdigest(),
    }
    got = await world.get("/v1/schemas/invoice.paid/v3")
    assert (got.status, got.body, got.headers["content-type"]) == (200, SCHEMA, "application/schema+json")


async def test_the_same_bytes_again_are_answered_and_others_are_refused(world: World) -> None:
    first = await put(world, "invoice.paid/v3", SCHEMA)
    again = await put(world, "invoice.paid/v3", SCHEMA)
    assert (first.status, again.status) == (201, 200)
    assert first.json() == again.json()
    other = await put(world, "invoice.paid/v3", SCHEMA + b"\n")
    assert (other.status, other.code) == (409, "schema_exists")
    assert (await world.get("/v1/schemas/invoice.paid/v3")).body == SCHEMA


async def test_of_many_that_put_one_name_at_once_one_is_right(world: World) -> None:
    texts = [b'{"title":"%d"}' % (number % 4) for number in range(12)]
    replies = await asyncio.gather(*(put(world, "invoice.paid/v1", text) for text in texts))
    stored = (await world.get("/v1/schemas/invoice.paid/v1")).body
    assert sorted(reply.status for reply in replies) == [200] * 2 + [201] + [409] * 9
    assert [reply.status < 300 for reply in replies] == [text == stored for text in texts]


async def test_a_type_may_have_slashes(world: World) -> None:
    assert (await put(world, "a/b/v1.c/v2", SCHEMA)).status == 201
    (listed,) = (await world.get("/v1/schemas")).json()["data"]
    assert (listed["type"], listed["version"]) == ("a/b/v1.c", "v2")
    assert (await world.get("/v1/schemas/a/b/v1.c/v2")).body == SCHEMA


@pytest.mark.parametrize("name", ["invoice.paid/3", "invoice..paid/v3", "invoice.paid/v0", "invoice%20paid/v3"])
async def test_a_name_that_is_none_is_refused_when_put_and_not_there_when_asked_for(
    shared_world: World, name: str
) -> None:
    assert faults(await put(shared_world, name, SCHEMA))
    assert (await shared_world.get(f"/v1/schemas/{name}")).status == 404


@pytest.mark.parametrize("body", [b"[]", b"5", b'"x"', b"null"])
async def test_a_schema_that_is_no_object_is_refused_as_a_whole(shared_world: World, body: bytes) -> None:
    ((place, detail),) = faults(await put(shared_world, "invoice.paid/v1", body))
    assert (place, detail) == ("", "a schema is an object, or true or false")


@pytest.mark.parametrize("number", [b"1e999", b"9" * 5000], ids=["1e999", "5,000 digits"])
async def test_a_schema_with_a_number_that_nobody_reads_says_so(shared_world: World, number: bytes) -> None:
    reply = await put(shared_world, "invoice.paid/v1", b'{"minimum":%b}' % number)
    assert (reply.status, reply.code) == (400, "malformed")
    assert "a number that is too large" in reply.json()["detail"]


async def test_lists_are_in_order_and_in_pages(world: World) -> None:
    for name in ("b/v10", "b/v2", "a.x/v1", "B/v1"):
        assert (await put(world, name, SCHEMA)).status == 201
    names: list[str] = []
    path = "/v1/schemas?limit=2"
    while path:
        page = (await world.get(path)).json()
        names += [each["name"] for each in page["data"]]
        path = page["next_cursor"] and f"/v1/schemas?limit=2&cursor={page['next_cursor']}"
    assert names == ["B/v1", "a.x/v1", "b/v2", "b/v10"]
    assert [each["name"] for each in (await world.get("/v1/schemas?type=b")).json()["data"]] == ["b/v2", "b/v10"]
    types = (await world.get("/v1/event-types?limit=2")).json()
    assert [each["type"] for each in types["data"]] == ["B", "a.x"]
    last = (await world.get(f"/v1/event-types?cursor={types['next_cursor']}")).json()
    assert last == {"data": [{"type": "b", "newest": "v10", "versions": ["v2", "v10"]}], "next_cursor": None}


async def test_a_cursor_of_another_list_is_refused(shared_world: World) -> None:
    for cursor in ("x", "AhNoc2NoZW1hcw"):
        reply = await shared_world.get(f"/v1/schemas?cursor={cursor}")
        assert (reply.status, reply.code) == (400, "bad_cursor")


# C64, C65, C66 of the cases: refused where they stand, before anything compiles or fetches them
@pytest.mark.parametrize(
    ("schema", "pointer", "why"),
    [
        ({"$ref": "http://169.254.169.254/latest"}, "/$ref", "outside"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:6379/x"}}}, "/properties/a/$ref", "outside"),
        ({"$schema": "http://evil.example.test/meta"}, "/$schema", "only https://json-schema.org"),
        ({"$id": "file:///etc/passwd", "$ref": "#"}, "/$ref", "without end"),
        ({"$dynamicRef": "http://127.0.0.1/x#n"}, "/$dynamicRef", "outside"),
        ({"$ref": "#/$defs/x"}, "/$ref", "refers to no schema"),
        ({"$ref": "#"}, "/$ref", "without end"),
        (
            {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
            "/$defs/b/$ref",
            "without end",
        ),
        ({"properties": {"s": {"pattern": "(?=a)b"}}}, "/properties/s/pattern", "linear time"),
        ({"patternProperties": {"(a)\\1": {}}}, "/patternProperties/(a)\\1", "linear time"),
        ({"pattern": "(((a{100}){100}){100})"}, "", "keywords"),
        ({"pattern": "\\p{L}{900}"}, "/pattern", "linear time"),
        ({"type": "strin"}, "/type", "strin"),
        ({"minLength": -1}, "/minLength", "-1 is less than"),
        ({"required": ["a", "a"]}, "/required", "non-unique"),
    ],
)
async def test_a_bad_schema_is_refused_where_it_is_bad(
    shared_world: World, schema: object, pointer: str, why: str
) -> None:
    ((where, detail),) = faults(await put(shared_world, "bad/v1", schema))
    assert where.startswith(pointer)
    assert why in detail
    assert (await shared_world.get("/v1/schemas/bad/v1")).status == 404


def doubling(levels: int) -> dict[str, Any]:
    defs: dict[str, Any] = {str(level): {"allOf": [{"$ref": f"#/$defs/{level + 1}"}] * 2} for level in range(levels)}
    return {"$ref": "#/$defs/0", "$defs": {**defs, str(levels): {"type": "object"}}}


async def test_references_that_double_are_refused_at_once(shared_world: World) -> None:
    began = time.process_time()
    ((_, detail),) = faults(await put(shared_world, "doubling/v1", doubling(30)))
    assert "with all references written out" in detail
    assert time.process_time() - began < 0.2


async def test_what_is_no_json_no_schema_or_too_large_is_refused(
    shared_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_schemas, "MOST_SCHEMA_BYTES", 1_000)
    for text, code in ((b"{", "malformed"), (b"[]", "invalid"), (b'"x"', "invalid"), (b"", "malformed")):
        assert (await put(shared_world, "odd/v1", text)).code == code
    long = b'{"title":"%b"}' % (b"x" * (1_000 - 12))
    assert (await put(shared_world, "odd/v1", long)).status == 201
    reply = await put(shared_world, "odd/v2", long + b" ")
    assert (reply.status, reply.json()["limit_bytes"]) == (413, 1_000)
    assert (await put(shared_world, "odd/v3", SCHEMA, ("Content-Type", "text/plain"))).code == "content_type"
    assert (await put(shared_world, "odd/v4", SCHEMA, ("Content-Type", "application/schema+json"))).status == 201
    assert (await put(shared_world, "odd/v5", True)).status == 201


async def test_a_tenant_has_so_many_schemas_at_most(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "MOST_SCHEMAS", 2)
    assert [(await put(world, f"a/v{n}", SCHEMA)).status for n in (1, 2, 3, 2)] == [201, 201, 422, 200]


async def test_a_receipt_shows_the_schema_that_its_payload_fitted(world: World) -> None:
    await put(world, "invoice.paid/v2", {"required": ["amount"]})
    accepted = await world.send("POST", "/v1/events", {"type": "invoice.paid", "amount": 1})
    receipt = (await world.get(f"/v1/receipts/{accepted.json()['receipt_id']}")).json()
    assert receipt["schema"] == "invoice.paid/v2"
    refused = await world.send("POST", "/v1/events", {"type": "invoice.paid"})
    assert (refused.status, refused.code) == (422, "schema_violation")


async def test_another_tenants_schemas_are_neither_shown_nor_in_force(world: World) -> None:
    await world.sql("insert into tenants (id, name, partition) values ('acct_other', 'other', 1)")
    await world.sql("insert into schemas (tenant, type, version, schema) values ('acct_other', 'a', 1, 'false')")
    await world.sql("update versions set schemas = schemas + 1")
    assert (await world.get("/v1/schemas/a/v1")).status == 404
    assert (await world.get("/v1/schemas")).json()["data"] == []
    assert (await world.get("/v1/event-types")).json()["data"] == []
    assert (await world.send("POST", "/v1/events", {"type": "a"})).status == 202


async def test_a_tenant_is_made_strict_and_lenient_again(world: World) -> None:
    tenant = "/v1/tenants/acct_default"
    assert (await world.send("PATCH", tenant, {})).json()["strict_schemas"] is False
    assert (await world.send("PATCH", tenant, {"strict_schemas": True})).json()["strict_schemas"] is True
    refused = await world.send("POST", "/v1/events", {"type": "a"})
    assert (refused.status, refused.code) == (422, "schema_violation")
    (shown,) = (await world.get("/v1/tenants")).json()["data"]
    assert shown["strict_schemas"] is True
    assert (await world.send("PATCH", tenant, {"strict_schemas": False})).status == 200
    assert (await world.send("POST", "/v1/events", {"type": "a"})).status == 202


async def test_strictness_is_yes_or_no_and_of_a_tenant_that_is_there(shared_world: World) -> None:
    for wrong in ({"strict_schemas": None}, {"strict_schemas": "yes"}, {"strict": True}):
        assert faults(await shared_world.send("PATCH", "/v1/tenants/acct_default", wrong))
    reply = await shared_world.send("PATCH", "/v1/tenants/acct_nobody", {"strict_schemas": True})
    assert (reply.status, reply.code) == (404, "not_found")
