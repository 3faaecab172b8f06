"""Payloads and their types' schemas: what fits is taken under the version it fits, what does not is refused where."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from relay.domain.telemetry import RejectReason, RequestRefused
from relay.web import judging
from relay.web.credentials import ANONYMOUS
from relay.web.judging import Weighed
from relay.web.problems import FieldFault
from tests.gateway.world import JSON, TENANT, World, element, event
from tests.support.asgi import Reply
from tests.support.installation import eventually

INVOICE = {
    "type": "object",
    "required": ["type", "amount"],
    "properties": {
        "amount": {"type": "string", "pattern": "^[0-9]+\\.[0-9]{2}$"},
        "lines": {"type": "array", "items": {"type": "object", "required": ["sku"]}},
    },
}
TREE = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}
FITTING = event(amount="1.00")


def wants(name: str) -> tuple[str, str]:
    return ("Relay-Schema", name)


async def stored_schemas(world: World) -> list[str | None]:
    return [row["schema"] for row in await world.sql("select schema from journal order by number")]


def faults(reply: Reply) -> list[tuple[str, str]]:
    assert (reply.status, reply.code) == (422, "schema_violation"), reply.body
    return [(each["pointer"], each["detail"]) for each in reply.json()["errors"]]


async def served_beside(world: World, busy: asyncio.Task[Any]) -> int:
    """How many requests without a schema, one after the other, are answered while another request is under way."""
    served = 0
    while not busy.done():
        assert (await world.post(event("plain"))).status == 202
        served += 1
    return served


async def test_a_payload_that_fits_is_taken_byte_for_byte_under_the_version_it_fits(world: World) -> None:
    await world.put_schema("invoice.paid/v1", INVOICE)
    body = b'{ "type":"invoice.paid", "amount" : "1.00", "n": 1e999, "n": -0.0, "u": "\\u0000" }'
    assert (await world.post(body)).status == 202
    (row,) = await world.sql("select schema, payload from journal")
    assert (row["schema"], row["payload"]) == ("invoice.paid/v1", body)


async def test_a_payload_that_does_not_fit_is_refused_with_pointers_counted_and_not_stored(world: World) -> None:
    await world.put_schema("invoice.paid/v1", INVOICE)
    reply = await world.post(event(amount="secret-1", lines=[{"sku": 1}, {}]))
    assert sorted(faults(reply)) == [
        ("/amount", 'the value does not match "^[0-9]+\\.[0-9]{2}$"'),
        ("/lines/1", '"sku" is a required property'),
    ]
    assert b"secret-1" not in reply.body
    assert await world.stored_nothing()
    assert world.ear.of(RequestRefused) == [RequestRefused(RejectReason.SCHEMA)]


async def test_pointers_are_escaped(world: World) -> None:
    await world.put_schema("a/v1", {"additionalProperties": {"type": ["string", "integer"]}})
    assert faults(await world.post(event("a", **{"x/y~z": []})))[0][0] == "/x~1y~0z"


async def test_as_many_faults_are_told_as_an_answer_holds(world: World) -> None:
    await world.put_schema("a/v1", {"properties": {"n": {"items": {"type": "string"}}}})
    assert len(faults(await world.post(event("a", n=list(range(900)))))) == 50


async def test_the_newest_version_counts_unless_another_one_is_named(world: World) -> None:
    await world.put_schema("invoice.paid/v10", {"required": ["currency"]})
    await world.put_schema("invoice.paid/v9", INVOICE)
    assert faults(await world.post(FITTING)) == [("", '"currency" is a required property')]
    assert (await world.post(FITTING, wants("invoice.paid/v9"))).status == 202
    assert (await world.post(event(currency="EUR"))).status == 202
    assert await stored_schemas(world) == ["invoice.paid/v9", "invoice.paid/v10"]


@pytest.mark.parametrize("name", ["invoice.paid/v2", "invoice.sent/v1", "other/v1"])
async def test_a_version_that_is_not_there_is_refused(world: World, name: str) -> None:
    await world.put_schema("invoice.paid/v1", True)
    await world.put_schema("other/v1", True)
    assert len(faults(await world.post(FITTING, wants(name)))) == 1


@pytest.mark.parametrize("name", ["invoice.paid", "v1", "invoice.paid/1", "invoice.paid/v1, invoice.paid/v1", ""])
async def test_a_name_that_is_none_is_malformed(world: World, name: str) -> None:
    reply = await world.post(FITTING, wants(name))
    assert (reply.status, reply.code) == (400, "malformed")


async def test_a_type_without_a_schema_passes_unless_the_tenant_is_strict(world: World) -> None:
    await world.put_schema("invoice.paid/v1", INVOICE)
    assert (await world.post(event("other"))).status == 202
    await world.schemas.set_strict(TENANT, strict=True)
    assert "has no schema" in faults(await world.post(event("other")))[0][1]
    assert (await world.post(FITTING)).status == 202
    await world.schemas.set_strict(TENANT, strict=False)
    assert (await world.post(event("other"))).status == 202


async def test_a_strict_tenant_may_still_send_test_events(world: World) -> None:
    endpoint = await world.subscribe()
    await world.schemas.set_strict(TENANT, strict=True)
    assert (await world.gateway.trial.send(ANONYMOUS, endpoint, "ledger")).status == 202


async def test_a_schema_counts_from_its_commit_for_a_gateway_that_knows_nothing_of_it(world: World) -> None:
    assert (await world.post(event())).status == 202
    await world.put_schema("invoice.paid/v1", INVOICE)
    assert faults(await world.post(event()))
    assert await world.count("journal") == 1


async def test_nobody_is_refused_by_an_old_catalogue(world: World) -> None:
    await world.put_schema("invoice.paid/v1", INVOICE)
    assert faults(await world.post(event()))
    await world.put_schema("invoice.paid/v2", True)
    assert (await world.post(event())).status == 202
    await world.put_schema("invoice.paid/v3", INVOICE)
    assert (await world.post(event(), wants("invoice.paid/v2"))).status == 202


async def test_what_waits_for_its_append_is_checked_anew_when_the_catalogue_changes(world: World) -> None:
    await world.put_schema("fits/v1", True)
    async with world.appends_held():
        first = asyncio.create_task(world.post(event("first")))
        await world.until_an_append_waits()
        fits, fails = (asyncio.create_task(world.post(event(kind))) for kind in ("fits", "fails"))
        batch = asyncio.create_task(world.post_batch([element("fails"), element("fits"), element("plain")]))
        await world.until_waiting(5, [first])
        await world.put_schema("fits/v2", {"required": ["type"]})
        await world.put_schema("fails/v1", False)
    replies = await asyncio.gather(first, fits, fails, batch)
    assert [reply.status for reply in replies] == [202, 202, 422, 202]
    assert [list(each) == ["error"] for each in replies[3].json()["data"]] == [True, True, False]
    stored = {(row["type"], row["schema"]) for row in await world.sql("select type, schema from journal")}
    assert stored == {("first", None), ("fits", "fits/v2"), ("plain", None)}


async def test_a_request_that_was_taken_is_answered_again_whatever_schemas_say_since(world: World) -> None:
    key = ("Idempotency-Key", "k1")
    first = await world.post(event(), key)
    await world.put_schema("invoice.paid/v1", INVOICE)
    again = await world.post(event(), key)
    assert (again.status, again.body) == (202, first.body)
    assert (await world.post(event(x=1), key)).code == "idempotency_key_reused"
    assert faults(await world.post(event(), ("Idempotency-Key", "k2")))
    assert await stored_schemas(world) == [None]


async def test_each_event_of_a_batch_is_checked_for_itself(world: World) -> None:
    await world.put_schema("invoice.paid/v1", {"required": ["amount"]})
    elements = [
        element(payload=b'{"amount": 1}'),
        element(),
        element("other"),
        element(payload=b'{"amount":"\\ud800"}'),
    ]
    reply = await world.post_batch(elements)
    assert reply.status == 202
    results = reply.json()["data"]
    assert ["error" in each for each in results] == [False, True, False, False]
    assert results[1]["error"]["errors"] == [{"pointer": "", "detail": '"amount" is a required property'}]
    assert await stored_schemas(world) == ["invoice.paid/v1", None, "invoice.paid/v1"]
    assert (await world.post_batch(elements, wants("invoice.paid/v1"))).code == "malformed"


async def test_a_thousand_events_are_checked_and_others_have_their_turn(world: World) -> None:
    await world.put_schema("invoice.paid/v1", INVOICE)
    payload = json.dumps({"type": "x", "amount": "1.00", "lines": [{"sku": n} for n in range(10)]}).encode()
    elements = [element(payload=payload)] * 1000
    batch = asyncio.create_task(world.post_batch(elements))
    assert await served_beside(world, batch) > 10
    assert [each for each in (await batch).json()["data"] if "error" in each] == []


async def test_a_schema_that_is_new_to_a_gateway_is_read_once_and_waits_for_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever wants one lines up behind all who want others, each for as long as a busy judge lets it wait."""
    names = [f"t{n}" for n in range(4)]
    for name in names:
        await world.put_schema(f"{name}/v1", True)
    asked: list[bytes] = []
    weigh = world.judge.weigh

    async def noted(tenant: str, schema: bytes) -> Weighed | Sequence[FieldFault]:
        asked.append(schema)
        return await weigh(tenant, schema)

    async def all_have_asked() -> bool:
        return len(asked) == len(names)

    monkeypatch.setattr(world.judge, "weigh", noted)
    async with world.judge._first.turn("whoever"):
        posts = [asyncio.create_task(world.post(event(name))) for name in names * 2]
        await eventually(all_have_asked, 10.0, "each schema waits for the judge's turn")
    assert [reply.status for reply in await asyncio.gather(*posts)] == [202] * 8
    assert len(asked) == len(names)


async def test_a_schema_that_could_not_be_read_is_read_anew_for_the_next_event(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.put_schema("invoice.paid/v1", True)
    monkeypatch.setattr(judging, "WAITING_SECONDS", 0.05)
    async with world.judge._first.turn("whoever"):
        assert (await world.post()).code == "overloaded"
    monkeypatch.undo()
    assert (await world.post()).status == 202


async def test_what_is_no_json_does_not_fit_a_type_with_a_schema(world: World) -> None:
    await world.put_schema("blob/v1", True)
    named = ("Relay-Event-Type", "blob")
    for body in (b"\x00\xff", b"", b"{", b"[NaN]", b"\xef\xbb\xbf{}"):
        reply = await world.request(headers=[named], body=body)
        assert "no JSON" in faults(reply)[0][1]
    assert (await world.request(headers=[named], body=b"[1]")).status == 202


async def test_of_a_cloudevent_the_payload_is_checked_as_it_is(world: World) -> None:
    await world.put_schema("invoice.paid/v1", {"required": ["amount"]})
    envelope = {"specversion": "1.0", "id": "1", "source": "/b", "type": "invoice.paid"}
    binary = [("ce-" + name, value) for name, value in envelope.items()]
    assert (await world.request(headers=[JSON, *binary], body=b'{"amount": 1}')).status == 202
    structured = [("Content-Type", "application/cloudevents+json")]
    body = json.dumps({**envelope, "id": "2", "data": {"amount": 1}}).encode()
    assert faults(await world.request(headers=structured, body=body)) == [("", '"amount" is a required property')]
    await world.put_schema("invoice.paid/v2", {"properties": {"data": {"required": ["amount"]}}})
    assert (await world.request(headers=structured, body=body)).status == 202


# C64: a stored schema that is bad, however it came there
@pytest.mark.parametrize("port_in", ["$ref", "$schema", "$dynamicRef"])
async def test_no_schema_makes_anybody_open_a_socket(world: World, port_in: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        await world.put_schema("bad/v1", {port_in: url, "properties": {"a": {port_in: url}}})
        reply = await world.post(event("bad", a=1))
        assert "the schema is unusable" in faults(reply)[0][1]
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"$ref":"#"}', b'{"type":"strin"}', b'{"pattern":"(?=a)"}', b"\xff"])
async def test_a_bad_schema_that_is_there_all_the_same_is_a_clean_refusal(world: World, text: bytes) -> None:
    await world.put_schema("bad/v1", text)
    assert "the schema is unusable" in faults(await world.post(event("bad")))[0][1]


async def test_references_within_a_schema_are_followed(world: World) -> None:
    await world.put_schema("a/v1", {"$defs": {"x": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/x"}}})
    assert faults(await world.post(event("a", a=1)))[0][0] == "/a"
    assert (await world.post(event("a", a="1"))).status == 202


# C65
async def test_a_recursive_schema_looks_fifty_levels_deep(world: World) -> None:
    await world.put_schema("tree/v1", TREE)
    for leaf, fits in (({}, True), (1, False)):
        tree: object = leaf
        for _ in range(50):
            tree = {"children": [tree]}
        reply = await world.post(json.dumps({"type": "tree", "children": [tree]}).encode())
        if fits:
            assert reply.status == 202
        else:
            assert faults(reply)[0][0] == "/children/0" * 51


async def test_work_without_bound_ends_in_a_refusal_while_others_are_served(world: World) -> None:
    twice = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
    await world.put_schema("bomb/v1", {"type": "object", "properties": {"a": twice}})
    bomb: object = 1
    for _ in range(60):
        bomb = {"a": bomb}
    attack = asyncio.create_task(world.post(json.dumps({"type": "bomb", "a": bomb}).encode()))
    assert await served_beside(world, attack) > 10
    assert "longer" in faults(await attack)[0][1]
    # and the next one is judged by another judge
    assert (await world.post(event("bomb", a={}))).status == 202


# C66
HOSTILE = "a" * 32 + "!"
PATTERNS = {"nested": "^(a+)+$", "choice": "^(a|aa)*$", "optional": "^" + "a?" * 60 + "a" * 60 + "$"}


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("size", [1, 1500])
async def test_patterns_that_backtrack_are_looked_at_to_the_end(world: World, name: str, size: int) -> None:
    await world.put_schema("redos/v1", {"properties": {"s": {"pattern": PATTERNS[name]}}})
    await world.put_schema("redos.keys/v1", {"patternProperties": {PATTERNS[name]: {"type": "string"}}})
    slow = await world.post(event("redos", s=HOSTILE * size))
    keys = await world.post(event("redos.keys", **{HOSTILE * size: 1}))
    # each was looked at to its end: backtracking would take longer than there is, by far
    assert ("does not match" in faults(slow)[0][1], keys.status) == (True, 202)


@pytest.mark.parametrize("kind", ["email", "uri", "date", "idn-hostname", "regex", "made-up"])
async def test_a_format_says_what_is_meant_and_is_not_checked(world: World, kind: str) -> None:
    await world.put_schema("a/v1", {"properties": {"s": {"format": kind}}})
    assert (await world.post(event("a", s="@" * 60_000))).status == 202


# C68, C69: numbers are compared as they are written, and go out as they came
@pytest.mark.parametrize(
    ("number", "schema", "fits"),
    [
        (b"9" * 5000, {"type": "integer"}, True),
        (b"9" * 5000, {"maximum": 10}, False),
        (b"-" + b"9" * 5000, {"minimum": 10}, False),
        (b"1e999", {"minimum": 1}, True),
        (b"1e999", {"maximum": 1}, False),
        (b"1e9999999999999999999", {"maximum": 1}, False),
        (b"-1e9999999999999999999", {"maximum": 1}, True),
        (b"1e-9999999999999999999", {"maximum": 0}, True),
        (b"-0.0", {"minimum": 0}, True),
        (b"1.0", {"type": "integer"}, True),
        (b"0.1000000000000000055511151231257827", {"const": 0.1}, False),
        (b"9007199254740993", {"const": 9007199254740993}, True),
        (b"9007199254740992", {"const": 9007199254740993}, False),
        (b"19.99", {"multipleOf": 0.01}, True),
        (b"19.999", {"multipleOf": 0.01}, False),
    ],
)
async def test_numbers_are_compared_exactly_and_stay_as_they_are(
    world: World, number: bytes, schema: object, fits: bool
) -> None:
    await world.put_schema("n/v1", {"properties": {"n": schema}})
    body = b'{"type":"n","n":%b}' % number
    reply = await world.post(body)
    if fits:
        assert reply.status == 202
        assert (await world.sql("select payload from journal"))[0]["payload"] == body
    else:
        assert faults(reply)[0][0] == "/n"


# C70
@pytest.mark.parametrize(
    ("body", "fits"),
    [
        (b'{"type":"t","s":"x\\ud83d"}', True),
        (b'{"type":"t","\\ud800":1}', True),
        (b'{"type":"t","s":"\\udc00\\ud800"}', True),
        (b'{"type":"t","s":"x\\ud83dyz"}', False),
    ],
)
async def test_half_a_surrogate_pair_counts_as_a_character_and_stays(world: World, body: bytes, fits: bool) -> None:
    await world.put_schema("t/v1", {"properties": {"s": {"maxLength": 3}}})
    reply = await world.post(body)
    if fits:
        assert reply.status == 202
        assert (await world.sql("select payload from journal"))[0]["payload"] == body
    else:
        assert faults(reply)[0][0] == "/s"


async def test_bytes_that_are_no_utf8_are_malformed_with_and_without_a_schema(world: World) -> None:
    body = b'{"type":"t","s":"\xed\xa0\x80"}'
    assert (await world.post(body)).code == "malformed"
    await world.put_schema("t/v1", True)
    assert (await world.post(body)).code == "malformed"
