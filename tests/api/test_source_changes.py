"""Claims about changing what a source is proved by: its next request is judged by that, and no secret is left over."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from relay.domain import ids
from relay.domain.credentials import Proof
from tests.api.world import JSON, World
from tests.support.administration import bearer, signed
from tests.support.asgi import Reply, call

SOURCES, KEYS, EVENTS = "/v1/sources", "/v1/keys", "/v1/events"
OTHER = "acct_other"
SUBJECT = "billing.example.com"
COMBINED = [some for n in range(1, 4) for some in combinations([str(proof) for proof in Proof], n)]


async def administered(world: World) -> None:
    """From now on the tests' requests show an operator's key."""
    world.shown[:] = [bearer((await world.credentials.key("operator")).secret)]


async def made(world: World, name: str = "billing", **fields: object) -> Any:
    reply = await world.send("POST", SOURCES, {"name": name, **fields})
    assert reply.status == 201, reply
    return reply.json()


async def change(world: World, source: Any, **fields: object) -> Reply:
    return await world.send("PATCH", f"{SOURCES}/{source['id']}", fields)


async def changed(world: World, source: Any, **fields: object) -> Any:
    reply = await change(world, source, **fields)
    assert reply.status == 200, reply
    return reply.json()


def refused(reply: Reply) -> tuple[int, str, list[str]]:
    return reply.status, reply.code, [each["pointer"] for each in reply.json().get("errors", [])]


numbers = iter(range(1_000_000))


async def post(world: World, *, by: str | None = None, signed_by: str | None = None) -> int:
    """The status of an event that shows this much."""
    body = b'{"type":"a","n":%d}' % next(numbers)
    headers = [JSON]
    if by is not None:
        headers.append(bearer(by))
    if signed_by is not None:
        headers += signed("billing", signed_by, body)
    return (await call(world.app, "POST", EVENTS, headers=headers, body=body)).status


async def stored(world: World) -> Any:
    (row,) = await world.sql("select * from sources where name = 'billing' and removed_at is null")
    return row


@pytest.mark.parametrize("after", COMBINED, ids="+".join)
@pytest.mark.parametrize("before", COMBINED, ids="+".join)
async def test_whatever_becomes_of_what_it_is_proved_by_it_has_the_secret_for_it_and_no_other(
    world: World, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    await administered(world)
    source = await made(world, auth=before, **({"certificate_subject": SUBJECT} if "mtls" in before else {}))
    wants_name = "mtls" in after and "mtls" not in before
    now = await changed(world, source, auth=after, **({"certificate_subject": SUBJECT} if wants_name else {}))
    assert (now["auth"], now["certificate_subject"]) == (list(after), SUBJECT if "mtls" in after else None)
    added = {"bearer", "hmac"} & (set(after) - set(before))
    assert (now["secret"] is not None) == bool(added)
    row = await stored(world)
    assert (row["secret_sha256"] is not None, row["secret_id"] is not None) == ("bearer" in after, "hmac" in after)
    if "mtls" not in after:
        secret = now["secret"] or source["secret"]
        shown = {"by": secret if "bearer" in after else None, "signed_by": secret if "hmac" in after else None}
        assert await post(world, **shown) == 202
        if added and source["secret"] is not None:
            old = {key: value and source["secret"] for key, value in shown.items()}
            assert await post(world, **old) == 401


async def test_what_is_not_asked_for_any_more_proves_nothing(world: World) -> None:
    await administered(world)
    source = await made(world, auth=["bearer"])
    assert await post(world, by=source["secret"]) == 202
    await changed(world, source, auth=["mtls"], certificate_subject=SUBJECT)
    assert await post(world, by=source["secret"]) == 401


async def test_a_secret_of_before_a_rotation_goes_on_for_its_time_unless_a_new_one_is_taken(world: World) -> None:
    await administered(world)
    source = await made(world, auth=["bearer"])
    rotated = (await world.send("POST", f"{SOURCES}/{source['id']}/rotate")).json()
    now = await changed(world, source, auth=["bearer", "mtls"], certificate_subject=SUBJECT)
    assert now["previous_secret_expires_at"] == rotated["previous_secret_expires_at"]
    await changed(world, source, auth=["bearer"])
    assert {await post(world, by=each) for each in (source["secret"], rotated["secret"])} == {202}
    now = await changed(world, source, auth=["bearer", "hmac"])
    assert now["previous_secret_expires_at"] is None
    assert {await post(world, by=each, signed_by=each) for each in (source["secret"], rotated["secret"])} == {401}
    assert await post(world, by=now["secret"], signed_by=now["secret"]) == 202


@pytest.mark.parametrize(
    ("before", "fields"),
    [
        (["mtls"], {"certificate_subject": None}),  # then nothing would be left to prove
        (["mtls", "hmac"], {"certificate_subject": None}),  # fewer proofs only for who says so
        (["hmac"], {"certificate_subject": "x.example.com"}),
        (["hmac"], {"auth": ["hmac", "mtls"]}),
        (["mtls"], {"auth": ["hmac"], "certificate_subject": "x.example.com"}),
    ],
)
async def test_a_name_without_mtls_or_mtls_without_a_name_is_refused(
    world: World, before: list[str], fields: dict[str, object]
) -> None:
    await administered(world)
    source = await made(world, auth=before, **({"certificate_subject": SUBJECT} if "mtls" in before else {}))
    assert refused(await change(world, source, **fields)) == (422, "invalid", [""])
    assert (await world.get(SOURCES)).json()["data"] == [{k: v for k, v in source.items() if k != "secret"}]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"auth": []}, "/auth"),
        ({"auth": None}, "/auth"),
        ({"auth": ["password"]}, "/auth/0"),
        ({"certificate_subject": "*.example.com"}, "/certificate_subject"),
        ({"certificate_subject": "a.example.com."}, "/certificate_subject"),
        ({"certificate_subject": "a\0"}, "/certificate_subject"),
        ({"certificate_subject": ""}, "/certificate_subject"),
        ({"name": "other"}, "/name"),
        ({"tenant": OTHER}, "/tenant"),
    ],
)
async def test_a_bad_field_is_named(world: World, fields: dict[str, object], pointer: str) -> None:
    await administered(world)
    source = await made(world, auth=["mtls"], certificate_subject=SUBJECT)
    assert refused(await change(world, source, **fields)) == (422, "invalid", [pointer])


async def test_a_certificate_that_another_tenants_source_has_can_be_no_others(world: World) -> None:
    """C155: two tenants mapped to one common name: refused when it is made, and when it is changed."""
    await administered(world)
    await world.credentials.tenant(OTHER)
    await made(world, "theirs", auth=["mtls"], certificate_subject="Theirs", tenant=OTHER)
    for same in ("Theirs", "theirs", "THEIRS"):
        reply = await world.send("POST", SOURCES, {"name": "b", "auth": ["mtls"], "certificate_subject": same})
        assert refused(reply) == (422, "invalid", ["/certificate_subject"])
        source = await made(world, f"s-{same}", auth=["hmac"])
        reply = await change(world, source, auth=["mtls"], certificate_subject=same)
        assert refused(reply) == (422, "invalid", ["/certificate_subject"])


async def test_where_there_are_several_tenants_only_an_operator_gives_a_certificates_name_to_a_source(
    world: World,
) -> None:
    """Else a tenant's admin could claim the name of another's sender, or another name of its certificate."""
    await administered(world)
    operator = list(world.shown)
    theirs = await made(world, "theirs", auth=["hmac"])
    named = await made(world, "named", auth=["mtls"], certificate_subject=SUBJECT)
    world.shown[:] = [bearer((await world.credentials.key("admin")).secret)]
    alone = await made(world, "alone", auth=["mtls"], certificate_subject="alone.example.com")
    await world.credentials.tenant(OTHER)
    claims = [
        await world.send("POST", SOURCES, {"name": "b", "auth": ["mtls"], "certificate_subject": "x.example.com"}),
        await change(world, theirs, auth=["mtls"], certificate_subject="x.example.com"),
        await change(world, named, certificate_subject="x.example.com"),
    ]
    assert {(reply.status, reply.code) for reply in claims} == {(403, "scope_missing")}
    # what takes nothing from anybody stays the admin's
    await changed(world, named, auth=["mtls", "hmac"])
    await changed(world, alone, auth=["hmac"])
    world.shown[:] = operator
    await changed(world, theirs, auth=["mtls"], certificate_subject="x.example.com")


async def test_a_name_that_was_taken_off_one_source_is_free_for_another(world: World) -> None:
    await administered(world)
    source = await made(world, auth=["mtls"], certificate_subject=SUBJECT)
    await changed(world, source, auth=["bearer"])
    await made(world, "successor", auth=["mtls"], certificate_subject=SUBJECT)


async def test_a_source_with_keys_goes_on_asking_for_its_bearer(world: World) -> None:
    """Else they would be there and prove nothing, or less than they seem to."""
    await administered(world)
    source = await made(world, auth=["bearer", "hmac"])
    reply = await world.send("POST", KEYS, {"name": "k", "scopes": ["ingest"], "source": "billing"})
    key = reply.json()
    assert refused(await change(world, source, auth=["hmac"])) == (422, "invalid", ["/auth"])
    assert await post(world, by=key["secret"], signed_by=source["secret"]) == 202
    assert (await world.send("DELETE", f"{KEYS}/{key['id']}")).status == 204
    assert (await changed(world, source, auth=["hmac"]))["secret"] is None
    assert await post(world, signed_by=source["secret"]) == 202


async def test_a_change_is_in_the_audit_with_what_it_was_and_one_that_changes_nothing_is_not(world: World) -> None:
    await administered(world)
    source = await made(world, auth=["mtls"], certificate_subject=SUBJECT)
    now = await changed(world, source, auth=["hmac"])
    assert (await changed(world, source, auth=["hmac", "hmac"]))["secret"] is None
    assert (await changed(world, source))["secret"] is None
    assert (await changed(world, source, certificate_subject=None))["secret"] is None
    (entry,) = (await world.get("/v1/audit?action=source.change")).json()["data"]
    assert (entry["subject"], entry["name"], entry["details"]) == (source["id"], "billing", {"new_secret": True})
    assert entry["changes"] == [
        {"field": "auth", "hidden": False, "old": ["mtls"], "new": ["hmac"]},
        {"field": "certificate_subject", "hidden": False, "old": SUBJECT, "new": None},
    ]
    assert now["secret"] not in str(entry)


async def test_another_tenants_source_is_not_there_to_be_changed(world: World) -> None:
    await administered(world)
    await world.credentials.tenant(OTHER)
    theirs = await made(world, auth=["bearer"], tenant=OTHER)
    world.shown[:] = [bearer((await world.credentials.key("admin")).secret)]
    assert (await change(world, theirs, auth=["hmac"])).status == 404
    assert await post(world, by=theirs["secret"]) == 202


async def test_the_source_of_anonymous_requests_is_nobodys_to_change(world: World) -> None:
    await administered(world)
    (row,) = await world.sql("select id from sources where name = 'anonymous'")
    reply = await change(world, {"id": ids.write(ids.SOURCE, row["id"])}, auth=["bearer"])
    assert reply.status == 404
