"""Claims about the calls on keys, sources and tenants, and about what each scope may call."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from relay.api.callers import needed
from relay.domain import ids
from relay.domain.credentials import Scope, held
from relay.domain.telemetry import RejectReason, RequestRefused
from tests.api.description import operations
from tests.api.world import JSON, World
from tests.support.administration import bearer, signed
from tests.support.asgi import Reply, call
from tests.support.installation import eventually

KEYS, SOURCES, TENANTS = "/v1/keys", "/v1/sources", "/v1/tenants"
OTHER = "acct_other"


async def administered(world: World, *scopes: str) -> None:
    """From now on the tests' requests show a key with these scopes."""
    world.shown[:] = [bearer((await world.credentials.key(*scopes)).secret)]


async def created(world: World, path: str, **fields: object) -> Any:
    reply = await world.send("POST", path, fields)
    assert reply.status == 201, reply
    return reply.json()


def refused(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.code


async def test_the_first_credential_is_a_key_that_may_make_others(world: World) -> None:
    for path, body in (
        (KEYS, {"name": "a", "scopes": ["ingest", "read"]}),
        (SOURCES, {"name": "a", "auth": ["hmac"]}),
    ):
        assert refused(await world.send("POST", path, body)) == (409, "first_key")
    assert (await world.get(KEYS)).status == 200
    key = await created(world, KEYS, name="ops", scopes=["operator"])
    assert refused(await world.get(KEYS)) == (401, "credential_missing")
    world.shown.append(bearer(key["secret"]))
    shown = (await world.get(KEYS)).json()["data"]
    assert shown == [{name: value for name, value in key.items() if name != "secret"}]


async def test_the_last_key_that_may_make_others_stays(world: World) -> None:
    await administered(world, "read", "admin")
    (only,) = (await world.get(KEYS)).json()["data"]
    assert refused(await world.send("DELETE", f"{KEYS}/{only['id']}")) == (409, "last_key")
    other = await created(world, KEYS, name="other", scopes=["admin"])
    assert (await world.send("DELETE", f"{KEYS}/{only['id']}")).status == 204
    assert refused(await world.get(KEYS)) == (401, "credential_invalid")
    world.shown[:] = [bearer(other["secret"])]
    assert refused(await world.send("DELETE", f"{KEYS}/{other['id']}")) == (409, "last_key")


async def test_a_revoked_key_is_refused_on_its_next_call_in_every_process(world: World) -> None:
    await administered(world, "admin")
    async with World.over(world.dsn) as other:
        key = await created(world, KEYS, name="k", scopes=["read"])
        show = bearer(key["secret"])
        assert (await other.get(KEYS, show)).status == 200
        assert (await world.send("DELETE", f"{KEYS}/{key['id']}")).status == 204
        reply = await other.get(KEYS, show)
    assert refused(reply) == (401, "credential_invalid")
    assert reply.headers["www-authenticate"] == 'Bearer realm="relay", error="invalid_token"'


@pytest.mark.parametrize("scope", [scope.value for scope in Scope])
async def test_a_scope_opens_the_calls_that_need_it_and_no_others(world: World, scope: str) -> None:
    await administered(world, "operator")
    key = await created(world, KEYS, name="tried", scopes=[scope])
    nothing = "0" * 32
    for name, operation in operations().items():
        right = needed(operation["method"], operation["path"])
        if right is None or name in ("post_event", "post_batch"):
            continue
        path = operation["path"].replace("{id}", f"rcp_{nothing}").replace("{type}", "a").replace("{version}", "v1")
        reply = await call(world.app, operation["method"], path, headers=[bearer(key["secret"])])
        is_missing = reply.status == 403 and reply.code == "scope_missing"
        assert is_missing == (right not in held([Scope(scope)])), name
        assert reply.status != 401, name
    assert await world.count("endpoints") == 0


def test_every_call_says_what_it_needs_and_only_those_at_the_root_need_nothing() -> None:
    for name, operation in operations().items():
        bare = not operation["path"].startswith("/v1/")
        assert (operation["security"] == []) == bare, name
        assert ("Needs the scope" in operation.get("description", "")) == (not bare), name
        assert ("401" in operation["responses"]) == (not bare), name


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"])
async def test_what_is_at_the_root_needs_no_credential(world: World, path: str) -> None:
    await administered(world, "admin")
    world.shown.clear()
    assert (await world.get(path)).status in (200, 503)


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nothing", "/v1/keys/", "/v1//keys"])
async def test_a_path_that_there_is_not_is_not_told_to_whoever_may_not_call(world: World, path: str) -> None:
    await administered(world, "admin")
    assert (await world.get(path)).status == 404
    world.shown.clear()
    assert refused(await world.get(path)) == (401, "credential_missing")


async def test_nobody_makes_a_key_that_may_more_than_itself(world: World) -> None:
    await administered(world, "admin")
    for fields in ({"scopes": ["operator"]}, {"scopes": ["read"], "tenant": OTHER}):
        assert refused(await world.send("POST", KEYS, {"name": "k", **fields})) == (403, "scope_missing")
    assert refused(await world.send("POST", SOURCES, {"name": "s", "auth": ["hmac"], "tenant": OTHER})) == (
        403,
        "scope_missing",
    )
    assert refused(await world.send("POST", TENANTS, {"name": "t"})) == (403, "scope_missing")
    assert await world.count("keys") == 1


async def behind(world: World, changed: str, *call: Any) -> Reply:
    """What a call is answered that changes credentials, and waits for a change of them that came before it."""

    async def it_waits() -> bool:
        waiting = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        return bool(await holder.fetch(waiting))

    holder = await asyncpg.connect(world.dsn)
    try:
        async with holder.transaction():
            await holder.execute("update versions set credentials = credentials + 1")
            await holder.execute(changed)
            calling = asyncio.create_task(world.send(*call))
            await eventually(it_waits, 10.0, "the change waits for the one before it")
    finally:
        await holder.close()
    return await calling


@pytest.mark.parametrize(("revoked", "status"), [("other", 201), ("caller", 401)])
async def test_a_change_that_others_came_before_is_made_if_its_caller_still_may(
    world: World, revoked: str, status: int
) -> None:
    """A key that is being revoked makes no successor, and any other waits for its turn."""
    await administered(world, "admin")
    caller = await created(world, KEYS, name="caller", scopes=["admin"])
    await created(world, KEYS, name="other", scopes=["admin"])
    world.shown[:] = [bearer(caller["secret"])]
    revoking = f"update keys set revoked_at = now() where name = '{revoked}'"  # noqa: S608 - of these two
    reply = await behind(world, revoking, "POST", KEYS, {"name": "successor", "scopes": ["admin"]})
    assert reply.status == status
    made = await world.sql("select actor from audit where name = 'successor'")
    assert [row["actor"] for row in made] == ["key:caller"] * (status == 201)


async def test_a_rotated_secret_proves_what_the_source_is_proved_by_once_it_is_rotated(world: World) -> None:
    await administered(world, "admin")
    source = await created(world, SOURCES, name="billing", auth=["bearer"])
    changing = "update sources set auth = '{hmac}', secret_sha256 = null where name = 'billing'"
    rotated = await behind(world, changing, "POST", f"{SOURCES}/{source['id']}/rotate")
    body = b'{"type":"invoice.paid"}'
    headers = [("Content-Type", "application/json"), *signed("billing", rotated.json()["secret"], body)]
    assert (await call(world.app, "POST", "/v1/events", headers=headers, body=body)).status == 202


async def test_a_source_that_has_come_to_need_no_secret_is_not_rotated(world: World) -> None:
    await administered(world, "admin")
    source = await created(world, SOURCES, name="billing", auth=["bearer"])
    changing = "update sources set auth = '{mtls}', certificate_subject = 'b', secret_sha256 = null"
    rotated = await behind(world, f"{changing} where name = 'billing'", "POST", f"{SOURCES}/{source['id']}/rotate")
    assert refused(rotated) == (422, "invalid")


async def test_an_operator_works_in_the_tenant_that_it_names(world: World) -> None:
    await administered(world, "operator")
    tenant = await created(world, TENANTS, name="Acme")
    assert tenant["id"].startswith("acct_")
    inside = ("Relay-Tenant", tenant["id"])
    key = await created(world, KEYS, name="theirs", scopes=["admin"], tenant=tenant["id"])
    source = await created(world, SOURCES, name="their-source", auth=["bearer"], tenant=tenant["id"])
    assert [each["id"] for each in (await world.get(KEYS, inside)).json()["data"]] == [key["id"]]
    assert [each["id"] for each in (await world.get(SOURCES, inside)).json()["data"]] == [source["id"]]
    assert (await world.get(SOURCES)).json()["data"] == []
    nowhere = await world.send("POST", KEYS, {"name": "x", "scopes": ["read"], "tenant": OTHER})
    assert nowhere.json()["errors"] == [{"pointer": "/tenant", "detail": "there is no tenant of that id"}]
    assert refused(await world.get(KEYS, ("Relay-Tenant", OTHER))) == (403, "scope_missing")
    world.shown[:] = [bearer(key["secret"])]
    assert [each["id"] for each in (await world.get(TENANTS)).json()["data"]] == [tenant["id"]]
    assert refused(await world.get(KEYS, ("Relay-Tenant", "acct_default"))) == (403, "scope_missing")


async def test_an_operators_key_is_ended_by_operators_only(world: World) -> None:
    """Also where it lies in a tenant that has an admin of its own."""
    await administered(world, "operator")
    operators = list(world.shown)
    key = await created(world, KEYS, name="ops", scopes=["operator"])
    admin = await created(world, KEYS, name="admin", scopes=["admin"])
    world.shown[:] = [bearer(admin["secret"])]
    assert refused(await world.send("DELETE", f"{KEYS}/{key['id']}")) == (403, "scope_missing")
    assert key["id"] in {each["id"] for each in (await world.get(KEYS)).json()["data"]}
    world.shown[:] = operators
    assert (await world.send("DELETE", f"{KEYS}/{key['id']}")).status == 204


async def test_an_operator_names_one_tenant(world: World) -> None:
    """In the header, in the body or the query, or the same one in both; another one in each is nobody's wish."""
    await administered(world, "operator")
    await created(world, TENANTS, id=OTHER, name="Other")
    for named, given in ((OTHER, "acct_default"), ("acct_default", OTHER)):
        inside = [*world.shown, ("Relay-Tenant", named), JSON]
        for path, fields in ((KEYS, {"scopes": ["read"]}), (SOURCES, {"auth": ["hmac"]})):
            body = json.dumps({"name": f"{named}-x", "tenant": given, **fields}).encode()
            reply = await call(world.app, "POST", path, headers=inside, body=body)
            assert [each["pointer"] for each in reply.json()["errors"]] == ["/tenant"]
            body = json.dumps({"name": f"{named}-x", "tenant": named, **fields}).encode()
            assert (await call(world.app, "POST", path, headers=inside, body=body)).json()["tenant"] == named
        assert refused(await world.get(f"/v1/audit?tenant={given}", ("Relay-Tenant", named))) == (400, "bad_filter")
        assert (await world.get(f"/v1/audit?tenant={named}", ("Relay-Tenant", named))).status == 200


async def test_a_scope_or_a_proof_that_is_named_twice_counts_once(world: World) -> None:
    await administered(world, "admin")
    assert (await created(world, KEYS, name="k", scopes=["read", "ingest", "read"]))["scopes"] == ["ingest", "read"]
    assert (await created(world, SOURCES, name="s", auth=["bearer", "bearer"]))["auth"] == ["bearer"]


async def test_a_tenant_goes_once_it_has_nothing(world: World) -> None:
    await administered(world, "operator")
    path = f"{TENANTS}/{(await created(world, TENANTS, id=OTHER, name='Other'))['id']}"
    source = await created(world, SOURCES, name="s", auth=["hmac"], tenant=OTHER)
    assert refused(await world.send("DELETE", path)) == (409, "tenant_in_use")
    assert refused(await world.send("DELETE", f"{TENANTS}/acct_default")) == (409, "tenant_in_use")
    inside = [*world.shown, ("Relay-Tenant", OTHER)]
    assert (await call(world.app, "DELETE", f"{SOURCES}/{source['id']}", headers=inside)).status == 204
    assert (await world.send("DELETE", path)).status == 204
    for gone in (path, f"{TENANTS}/nobody", f"{TENANTS}/acct_nobody"):
        assert refused(await world.send("DELETE", gone)) == (404, "not_found")
    again = await world.send("POST", TENANTS, {"id": OTHER, "name": "Other"})
    assert again.json()["errors"][0]["pointer"] == "/id"


async def test_tenants_are_listed_page_by_page_in_the_order_of_their_ids(world: World) -> None:
    await administered(world, "operator")
    names = ["acct_default", *(f"acct_{n:02}" for n in range(7))]
    for tenant in names[1:]:
        await created(world, TENANTS, id=tenant, name=tenant)
    assert [each["id"] for each in await world.pages(TENANTS, limit=3)] == sorted(names)


async def test_a_source_is_shown_without_its_secret_and_rotated(world: World) -> None:
    await administered(world, "admin")
    source = await created(world, SOURCES, name="billing", auth=["bearer", "hmac", "bearer"])
    assert source["secret"].startswith("whsec_")
    assert source["auth"] == ["bearer", "hmac"]
    rotated = await world.send("POST", f"{SOURCES}/{source['id']}/rotate")
    assert rotated.status == 200
    assert rotated.json()["secret"] != source["secret"]
    (shown,) = (await world.get(SOURCES)).json()["data"]
    assert shown["previous_secret_expires_at"] == rotated.json()["previous_secret_expires_at"] is not None
    assert "secret" not in shown


async def test_a_source_of_certificates_alone_has_no_secret(world: World) -> None:
    await administered(world, "admin")
    source = await created(world, SOURCES, name="m", auth=["mtls"], certificate_subject="CN=m")
    assert source["secret"] is None
    assert refused(await world.send("POST", f"{SOURCES}/{source['id']}/rotate")) == (422, "invalid")


INVALID: list[tuple[str, str, dict[str, object]]] = [
    (KEYS, "/name", {"scopes": ["read"]}),
    (KEYS, "/name", {"name": " a", "scopes": ["read"]}),
    (KEYS, "/name", {"name": "a\0", "scopes": ["read"]}),
    (KEYS, "/scopes", {"name": "a"}),
    (KEYS, "/scopes", {"name": "a", "scopes": []}),
    (KEYS, "/scopes/0", {"name": "a", "scopes": ["root"]}),
    (KEYS, "/source", {"name": "a", "scopes": ["read"], "source": None}),
    (KEYS, "/source", {"name": "a", "scopes": ["read"], "source": "nobody"}),
    (KEYS, "", {"name": "a", "scopes": ["admin"], "source": "billing"}),
    (KEYS, "/tenant", {"name": "a", "scopes": ["read"], "tenant": "acme"}),
    (KEYS, "/secret", {"name": "a", "scopes": ["read"], "secret": "mine"}),
    (SOURCES, "/name", {"auth": ["hmac"]}),
    (SOURCES, "/name", {"name": "key:a", "auth": ["hmac"]}),
    (SOURCES, "/name", {"name": "anonymous", "auth": ["hmac"]}),
    (SOURCES, "/auth", {"name": "a", "auth": []}),
    (SOURCES, "/auth/0", {"name": "a", "auth": ["password"]}),
    (SOURCES, "", {"name": "a", "auth": ["mtls"]}),
    (SOURCES, "", {"name": "a", "auth": ["hmac"], "certificate_subject": "CN=a"}),
    (TENANTS, "/id", {"name": "a", "id": "acme"}),
    (TENANTS, "/id", {"name": "a", "id": "acct_default"}),
    (TENANTS, "/name", {"name": ""}),
]


@pytest.mark.parametrize(("path", "pointer", "body"), INVALID)
async def test_a_bad_field_is_named(world: World, path: str, pointer: str, body: dict[str, object]) -> None:
    await administered(world, "operator")
    reply = await world.send("POST", path, body)
    assert refused(reply) == (422, "invalid")
    assert pointer in [error["pointer"] for error in reply.json()["errors"]]


async def test_a_name_that_is_taken_is_named(world: World) -> None:
    await administered(world, "admin")
    for path, fields in (
        (KEYS, {"name": "a", "scopes": ["read"]}),
        (SOURCES, {"name": "a", "auth": ["hmac"]}),
    ):
        await created(world, path, **fields)
        assert (await world.send("POST", path, fields)).json()["errors"][0]["pointer"] == "/name"


async def test_a_key_only_proves_a_source_that_asks_for_a_bearer(world: World) -> None:
    await administered(world, "admin")
    await created(world, SOURCES, name="signer", auth=["hmac"])
    reply = await world.send("POST", KEYS, {"name": "k", "scopes": ["ingest"], "source": "signer"})
    assert reply.json()["errors"][0]["pointer"] == "/source"


async def test_a_call_may_be_signed_and_needs_its_scope_all_the_same(world: World) -> None:
    await administered(world, "admin")
    source = await created(world, SOURCES, name="both", auth=["bearer", "hmac"])
    key = await created(world, KEYS, name="reader", scopes=["read"], source="both")
    world.shown.clear()
    signature = signed("both", source["secret"], b"")
    assert refused(await world.get(KEYS, *signature)) == (401, "credential_missing")
    assert refused(await world.get(KEYS, bearer(key["secret"]))) == (401, "credential_missing")
    assert (await world.get(KEYS, bearer(key["secret"]), *signature)).status == 200
    wrong = signed("both", "x" * 40, b"")
    assert refused(await world.get(KEYS, bearer(key["secret"]), *wrong)) == (401, "signature_invalid")


async def test_a_signed_calls_body_is_there_for_the_call_as_well(world: World) -> None:
    await administered(world, "admin")
    source = await created(world, SOURCES, name="signer", auth=["hmac"])
    accepted = await world.post_event()
    body = b'{"consumer":"nobody"}'
    headers = [("Content-Type", "application/json"), *signed("signer", source["secret"], body)]
    reply = await call(world.app, "POST", f"/v1/receipts/{accepted['receipt_id']}/acks", headers=headers, body=body)
    assert refused(reply) == (404, "not_found")


async def test_a_signed_call_that_changes_something_counts_once(world: World) -> None:
    """Its path is not signed: whoever listens could ack another receipt by it, or post its body as an event."""
    await administered(world, "admin")
    source = await created(world, SOURCES, name="signer", auth=["hmac"])
    await world.create(name="ledger")
    ours, other = [(await world.post_event())["receipt_id"] for _ in range(2)]
    body = b'{"consumer":"ledger"}'
    headers = [("Content-Type", "application/json"), *signed("signer", source["secret"], body)]

    async def send(path: str, *more: tuple[str, str]) -> Reply:
        return await call(world.app, "POST", path, headers=[*headers, *more], body=body)

    replies = [await send(f"/v1/receipts/{ours}/acks") for _ in range(2)]
    assert [reply.status for reply in replies] == [200, 200]
    assert replies[0].body == replies[1].body
    assert refused(await send(f"/v1/receipts/{other}/acks")) == (401, "signature_invalid")
    assert refused(await send("/v1/events", ("Relay-Event-Type", "form.sent"))) == (401, "signature_invalid")
    assert [
        row["receipt_id"].hex for row in await world.sql("select receipt_id from deliveries where acked_at is not null")
    ] == [ours.removeprefix("rcp_")]
    assert await world.count("journal") == 2


async def test_a_body_that_was_signed_as_an_event_acks_nothing(world: World) -> None:
    await administered(world, "admin")
    source = await created(world, SOURCES, name="signer", auth=["hmac"])
    await world.create(name="ledger")
    receipt = (await world.post_event())["receipt_id"]
    body = b'{"consumer":"ledger"}'
    headers = [("Content-Type", "application/json"), *signed("signer", source["secret"], body)]
    posted = await call(
        world.app, "POST", "/v1/events", headers=[*headers, ("Relay-Event-Type", "form.sent")], body=body
    )
    assert posted.status == 202
    reply = await call(world.app, "POST", f"/v1/receipts/{receipt}/acks", headers=headers, body=body)
    assert refused(reply) == (401, "signature_invalid")


async def test_refused_calls_count_under_their_reason(world: World) -> None:
    await administered(world, "admin")
    reader = await created(world, KEYS, name="r", scopes=["read"])
    world.shown.clear()
    await world.get(KEYS)
    await world.get(KEYS, bearer("nobody"))
    await world.get(KEYS, *signed("nobody", "x" * 40, b""))
    await call(world.app, "DELETE", f"{KEYS}/{reader['id']}", headers=[bearer(reader["secret"])])
    assert [each.reason for each in world.ear.heard if isinstance(each, RequestRefused)] == [
        *(RejectReason.CREDENTIAL, RejectReason.CREDENTIAL),
        *(RejectReason.SIGNATURE, RejectReason.SCOPE),
    ]


async def test_a_database_that_is_away_is_a_503(world: World) -> None:
    await administered(world, "admin")
    await world.database.close()
    assert refused(await world.get(KEYS)) == (503, "database_unavailable")


@pytest.mark.parametrize("kind", [ids.KEY, ids.SOURCE])
@pytest.mark.parametrize("tail", ["0" * 32, "x", "", "0" * 31 + "G"])
async def test_an_id_that_nobody_has_is_not_found(world: World, kind: str, tail: str) -> None:
    await administered(world, "admin")
    path = KEYS if kind == ids.KEY else SOURCES
    assert (await world.send("DELETE", f"{path}/{kind}{tail}")).status == 404


async def test_whoever_changes_credentials_at_once_with_many_others_waits_for_a_turn(world: World) -> None:
    """A script that sets up an installation from eight connections was refused now and then."""
    await administered(world, "admin")
    made = await asyncio.gather(
        *(world.send("POST", SOURCES, {"name": f"s{each}", "auth": ["hmac"]}) for each in range(40))
    )
    assert [reply.status for reply in made] == [201] * 40


async def test_a_change_waits_for_its_turn_so_long_and_no_longer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await administered(world, "admin")
    monkeypatch.setattr("relay.api.credential_changes.TURN_SECONDS", 0.0)
    first, second = await asyncio.gather(
        *(world.send("POST", SOURCES, {"name": name, "auth": ["hmac"]}) for name in ("first", "second"))
    )
    assert first.status == 201
    assert refused(second) == (503, "overloaded")
    assert (await world.send("POST", SOURCES, {"name": "second", "auth": ["hmac"]})).status == 201
