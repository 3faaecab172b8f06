"""Claims about who may send: bearers, signatures, scopes, tenants, and credentials that end while events come in."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest

from relay.domain.telemetry import RejectReason, RequestRefused
from tests.gateway.world import World, element, event
from tests.support.administration import Made, bearer, signed
from tests.support.asgi import Reply
from tests.support.installation import eventually
from tests.support.world import real_ambient

A, B = "acct_default", "acct_b"
TYPED = ("Relay-Event-Type", "form.sent")


async def keyed(world: World) -> Made:
    """The first key: from now on nobody is anonymous."""
    return await world.credentials.key("admin")


async def whose(world: World) -> list[tuple[str, str]]:
    """Tenant and source of all events, in their order."""
    return [
        (row["tenant"], row["source"]) for row in await world.sql("select tenant, source from journal order by number")
    ]


async def post_signed(
    world: World,
    source: Made,
    body: bytes,
    *headers: tuple[str, str],
    secret: str | None = None,
    at: float | None = None,
) -> Reply:
    return await world.post(body, *signed(source.name, secret or source.secret, body, at=at), *headers)


def refused(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.code


async def test_without_any_credential_everybody_is_anonymous(world: World) -> None:
    assert (await world.post()).status == 202
    assert (await world.post(event(), bearer("whatever"))).status == 202
    assert await whose(world) == [(A, "anonymous")] * 2


async def test_where_others_can_connect_nobody_is_anonymous(world: World) -> None:
    async with World.over(world.dsn, is_private=False) as opened:
        assert refused(await opened.post()) == (401, "credential_missing")
        assert await opened.stored_nothing()


async def test_the_first_key_ends_anonymous_access_at_once_in_every_gateway(world: World) -> None:
    await world.gateway.start()
    async with World.over(world.dsn) as other:
        await keyed(other)
        assert refused(await world.post()) == (401, "credential_missing")
        assert refused(await world.post_batch(b"[]")) == (401, "credential_missing")
    assert await world.stored_nothing()


async def test_a_gateway_that_knows_of_no_credential_yet_takes_the_first_ones(world: World) -> None:
    """It must not take their holders for anonymous, and refuse them as such when it learns better."""
    async with (
        World.over(world.dsn, vault=world.vault) as by_bearer,
        World.over(world.dsn, vault=world.vault) as by_hmac,
    ):
        for gateway in (by_bearer, by_hmac):
            await gateway.gateway.start()
        key, source = await keyed(world), await world.credentials.source("hmac")
        assert (await by_bearer.post(event(), bearer(key.secret))).status == 202
        assert (await post_signed(by_hmac, source, event())).status == 202


async def test_a_key_sends_as_itself_and_a_source_under_its_name(world: World) -> None:
    key = await world.credentials.key("admin", name="ops")
    source = await world.credentials.source("bearer", name="billing")
    of_source = await world.credentials.key("ingest", source="billing")
    for secret in (key.secret, source.secret, of_source.secret):
        assert (await world.post(event(), bearer(secret))).status == 202
    assert await whose(world) == [(A, "key:ops"), (A, "billing"), (A, "billing")]


async def test_a_key_works_in_every_gateway_as_soon_as_it_is_made(world: World) -> None:
    await keyed(world)
    async with World.over(world.dsn) as other:
        await other.gateway.start()
        for _ in range(5):
            key = await world.credentials.key("ingest")
            assert (await other.post(event(), bearer(key.secret))).status == 202


async def test_a_revoked_key_fails_on_its_next_request_in_every_gateway(world: World) -> None:
    await keyed(world)
    async with World.over(world.dsn) as other:
        for gateway in (world, other):
            for body in (event(), b"not json"):
                key = await world.credentials.key("ingest")
                assert (await gateway.post(event(), bearer(key.secret))).status == 202
                stored = await world.count("journal")
                await world.credentials.revoke(key)
                assert (await gateway.post(body, bearer(key.secret))).status >= 400
                assert refused(await gateway.post(event(), bearer(key.secret))) == (401, "credential_invalid")
                assert await world.count("journal") == stored


async def test_a_revoked_key_gets_no_answer_from_a_batch_of_which_nothing_is_stored(world: World) -> None:
    await keyed(world)
    async with World.over(world.dsn) as other:
        key = await world.credentials.key("ingest")
        assert (await other.post_batch(b"[]", bearer(key.secret))).status == 202
        await world.credentials.revoke(key)
        assert refused(await other.post_batch(b"[]", bearer(key.secret))) == (401, "credential_invalid")


async def test_an_event_that_waits_when_its_key_is_revoked_is_not_stored(world: World) -> None:
    await keyed(world)
    keys = [await world.credentials.key("ingest") for _ in range(2)]
    for key in keys:
        assert (await world.post(event(), bearer(key.secret))).status == 202
    async with world.appends_held():
        first = asyncio.create_task(world.post(event(), bearer(keys[0].secret)))
        await world.until_an_append_waits()
        second = asyncio.create_task(world.post(event(), bearer(keys[1].secret)))
        await world.until_waiting(1)
        await world.credentials.revoke(keys[1])
    assert (await first).status == 202
    assert refused(await second) == (401, "credential_invalid")
    assert await world.count("journal") == 3


@pytest.mark.parametrize("bad_one_too", [False, True])
async def test_a_batch_that_waits_when_its_key_is_revoked_is_refused_whole(world: World, bad_one_too: bool) -> None:
    """One 401 as for any request, and nothing of what a revoked key would have been told."""
    await keyed(world)
    stays, gone = [await world.credentials.key("ingest") for _ in range(2)]
    for key in (stays, gone):
        assert (await world.post(event(), bearer(key.secret))).status == 202
    batch = [element(), element(), *([b"{}"] if bad_one_too else [])]
    async with world.appends_held():
        first = asyncio.create_task(world.post(event(), bearer(stays.secret)))
        await world.until_an_append_waits()
        second = asyncio.create_task(world.post_batch(batch, bearer(gone.secret)))
        await world.until_waiting(2)
        await world.credentials.revoke(gone)
    assert (await first).status == 202
    assert refused(await second) == (401, "credential_invalid")
    assert await world.count("journal") == 3


async def test_revoking_one_key_costs_the_others_nothing(world: World) -> None:
    await keyed(world)
    gone, stays = [await world.credentials.key("ingest") for _ in range(2)]
    replies = []
    for _ in range(3):
        posts = [asyncio.create_task(world.post(event(), bearer(stays.secret))) for _ in range(20)]
        await world.credentials.key("read")
        replies += await asyncio.gather(*posts)
    await world.credentials.revoke(gone)
    assert {reply.status for reply in replies} == {202}


@pytest.mark.parametrize("scope", ["read"])
async def test_a_key_without_the_scope_may_not_send(world: World, scope: str) -> None:
    await keyed(world)
    key = await world.credentials.key(scope)
    reply = await world.post(event(), bearer(key.secret))
    assert refused(reply) == (403, "scope_missing")
    assert reply.headers["www-authenticate"] == 'Bearer realm="relay", error="insufficient_scope", scope="ingest"'
    assert await world.stored_nothing()


async def test_refusals_count_under_their_reason(world: World) -> None:
    await keyed(world)
    source, reader = await world.credentials.source("hmac"), await world.credentials.key("read")
    await world.post()
    await world.post(event(), bearer("nobody's"))
    await post_signed(world, source, event(), secret="wrong" * 8)
    await world.post(event(), bearer(reader.secret))
    assert [each.reason for each in world.ear.heard if isinstance(each, RequestRefused)] == [
        *(RejectReason.CREDENTIAL, RejectReason.CREDENTIAL),
        *(RejectReason.SIGNATURE, RejectReason.SCOPE),
    ]


BODIES = {
    "a line's end": event() + b"\n",
    "spaces": b' { "type" :  "a" } ',
    "repeated names": b'{"type":"a","n":1,"n":2}',
    "large numbers": b'{"type":"a","n":1e400}',
    "escapes": rb'{"type":"a","t":"\u00e9\ud800"}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON", "application/json; charset=utf-8"])
async def test_a_signature_is_over_the_bytes_as_they_came(world: World, body: bytes, content_type: str) -> None:
    """Case C47, inbound: nothing is parsed and written again, in one piece or in many; one flipped byte is a 401."""
    await keyed(world)
    source = await world.credentials.source("hmac")
    headers = [("Content-Type", content_type), *signed(source.name, source.secret, body)]
    pieces = [body[at : at + 3] for at in range(0, len(body), 3)]
    assert (await world.request(headers=headers, body=body)).status == 202
    again = await world.request(headers=headers, body=pieces, declared=False)
    assert (again.status, again.headers["relay-idempotent-replay"]) == (202, "true")
    for place in (0, len(body) // 2, len(body) - 1):
        flipped = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        assert refused(await world.request(headers=headers, body=flipped)) == (401, "signature_invalid")
    (row,) = await world.sql("select payload from journal")
    assert row["payload"] == body


@pytest.mark.parametrize("body", [b"", b"a=1&b=2", bytes(range(256))])
async def test_a_body_of_any_kind_signs_as_its_bytes_and_an_empty_one_as_empty(world: World, body: bytes) -> None:
    """Case C47, inbound."""
    await keyed(world)
    source = await world.credentials.source("hmac")
    headers = [TYPED, ("Content-Type", "application/x-www-form-urlencoded"), *signed(source.name, source.secret, body)]
    assert (await world.request(headers=headers, body=body)).status == 202
    assert refused(await world.request(headers=headers, body=body + b"\n")) == (401, "signature_invalid")


async def test_a_signed_body_is_read_no_further_than_any_other(world: World) -> None:
    await keyed(world)
    source = await world.credentials.source("hmac")
    body = b'{"type":"a"}' + b" " * 100_000
    assert refused(await post_signed(world, source, body)) == (413, "payload_too_large")


async def test_a_signed_request_counts_once(world: World) -> None:
    await keyed(world)
    source, body, at = await world.credentials.source("hmac"), event(), time.time()
    first = await post_signed(world, source, body, at=at)
    async with World.over(world.dsn, vault=world.vault) as other:
        for gateway in (world, other):
            again = await post_signed(gateway, source, body, at=at)
            assert (again.status, again.body) == (202, first.body)
            for headers in ([("Idempotency-Key", "k")], [("Relay-Event-Type", "other")]):
                reply = await gateway.post(body, *signed(source.name, source.secret, body, at=at), *headers)
                assert refused(reply) == (401, "signature_invalid")
            batched = await gateway.post_batch(body, *signed(source.name, source.secret, body, at=at))
            assert batched.status >= 400
    assert await world.count("journal") == 1


async def test_a_signed_request_with_a_name_is_the_same_one_under_that_name_alone(world: World) -> None:
    await keyed(world)
    source, body, at = await world.credentials.source("hmac"), event(), time.time()
    first = await post_signed(world, source, body, ("Idempotency-Key", "k"), at=at)
    assert (await post_signed(world, source, body, ("Idempotency-Key", "k"), at=at)).body == first.body
    assert refused(await post_signed(world, source, body, ("Idempotency-Key", "l"), at=at)) == (
        401,
        "signature_invalid",
    )
    assert refused(await post_signed(world, source, body, at=at)) == (401, "signature_invalid")
    assert await world.count("journal") == 1


async def test_what_two_sources_sign_alike_are_two_requests(world: World) -> None:
    await keyed(world)
    await world.credentials.tenant(B)
    at = time.time()
    sources = [await world.credentials.source("hmac", tenant=tenant) for tenant in (A, A, B)]
    replies = [await post_signed(world, source, event(), at=at) for source in sources]
    assert [reply.status for reply in replies] == [202] * 3
    assert await world.count("journal") == 3


async def test_a_signed_batch_counts_once(world: World) -> None:
    await keyed(world)
    source = await world.credentials.source("hmac")
    body = b'[{"type":"a","payload":1},{"type":"a","payload":1},{"type":"b","event_id":"k","payload":2}]'
    headers = signed(source.name, source.secret, body)
    first, again = [await world.post_batch(body, *headers) for _ in range(2)]
    assert first.body == again.body
    assert await world.count("journal") == 3


async def pass_time(world: World, seconds: float) -> None:
    """Have all names and signed requests be so much older, and the pruner come by."""
    for table in ("idempotency_keys", "signed_requests"):
        await world.sql(f"update {table} set expires_at = expires_at - make_interval(secs => $1)", seconds)  # noqa: S608 - our own names
        await world.sql(f"delete from {table} where expires_at <= now()")  # noqa: S608 - our own names


SIGNED_REQUESTS = {
    "an event": (event(), False, []),
    "an event with a name": (event(), False, [("Idempotency-Key", "k")]),
    "a batch": (b'[{"type":"a","payload":1},{"type":"a","payload":1}]', True, []),
    "a batch with names": (
        b'[{"type":"a","event_id":"j","payload":1},{"type":"b","event_id":"k","payload":2}]',
        True,
        [],
    ),
}


@pytest.mark.parametrize("kind", SIGNED_REQUESTS)
async def test_a_signed_request_counts_once_as_long_as_its_timestamp_is_fresh_however_soon_names_are_forgotten(
    world: World, kind: str
) -> None:
    await keyed(world)
    source = await world.credentials.source("hmac")
    body, is_batch, named = SIGNED_REQUESTS[kind]
    # a timestamp may be 300 s ahead, and is fresh until it is as far behind
    headers = [*signed(source.name, source.secret, body, at=time.time() + 295), *named]
    async with World.over(world.dsn, vault=world.vault, key_retention_seconds=60.0) as short:
        post = short.post_batch if is_batch else short.post
        first = await post(body, *headers)
        assert first.status == 202
        stored = await world.count("journal")
        for _ in range(2):
            await pass_time(world, 298.0)
            assert (await post(body, *headers)).body == first.body
    assert await world.count("journal") == stored


@pytest.mark.parametrize("kind", [kind for kind in SIGNED_REQUESTS if "name" in kind])
async def test_a_name_that_is_signed_anew_is_not_forgotten_before_that_signature(world: World, kind: str) -> None:
    await keyed(world)
    source = await world.credentials.source("hmac")
    body, is_batch, named = SIGNED_REQUESTS[kind]
    post = world.post_batch if is_batch else world.post
    first = await post(body, *signed(source.name, source.secret, body, at=time.time() - 250), *named)
    stored = await world.count("journal")
    await pass_time(world, 86_400.0 - 30)
    anew = [*signed(source.name, source.secret, body, at=time.time() + 295), *named]
    assert (await post(body, *anew)).body == first.body
    await pass_time(world, 590.0)
    assert (await post(body, *anew)).body == first.body
    assert await world.count("journal") == stored


async def test_names_of_requests_that_are_not_signed_are_forgotten_when_the_setting_says(world: World) -> None:
    key = await keyed(world)
    async with World.over(world.dsn, vault=world.vault, key_retention_seconds=60.0) as short:
        for _ in range(2):
            reply = await short.post(event(), bearer(key.secret), ("Idempotency-Key", "k"))
            assert reply.status == 202
            await pass_time(world, 61.0)
    assert await world.count("journal") == 2


async def test_many_alike_at_once_are_one(world: World) -> None:
    await keyed(world)
    source, body, at = await world.credentials.source("hmac"), event(), time.time()
    async with World.over(world.dsn, vault=world.vault) as other:
        posts = [post_signed(gateway, source, body, at=at) for gateway in (world, other) for _ in range(30)]
        named = [post_signed(gateway, source, body, ("Idempotency-Key", "k"), at=at) for gateway in (world, other)]
        replies = await asyncio.gather(*posts, *named)
    assert await world.count("journal") == 1
    assert len({reply.body for reply in replies if reply.status == 202}) == 1


async def test_a_refused_signed_request_leaves_no_trace(world: World) -> None:
    await keyed(world)
    source = await world.credentials.source("hmac")
    assert refused(await post_signed(world, source, b"{}")) == (400, "type_missing")
    assert await world.stored_nothing()
    assert await world.count("signed_requests") == 0


async def test_a_rotated_secret_counts_at_once_and_the_one_before_it_until_its_time_is_over(world: World) -> None:
    await keyed(world)
    first = await world.credentials.source("hmac", name="billing")
    async with World.over(world.dsn, vault=world.vault) as other:
        assert (await post_signed(other, first, event(n=1))).status == 202
        second = await world.credentials.rotate(first)
        for number, secret in enumerate([first, second]):
            assert (await post_signed(other, secret, event(n=f"both {number}"))).status == 202
        third = await world.credentials.rotate(second, overlap_seconds=0.0)
        assert refused(await post_signed(other, first, event(n=2))) == (401, "signature_invalid")
        assert refused(await post_signed(other, second, event(n=3))) == (401, "signature_invalid")
        assert (await post_signed(other, third, event(n=4))).status == 202


@pytest.mark.parametrize(("proof", "code"), [("bearer", "credential_invalid"), ("hmac", "signature_invalid")])
async def test_a_secret_whose_time_is_over_is_refused_by_a_gateway_that_took_it_before(
    world: World, proof: str, code: str
) -> None:
    """Nothing changes in the database at that moment, so nothing there makes what the gateway knows stale."""
    ahead = [0.0]
    ambient = replace(real_ambient(), monotonic=lambda: time.monotonic() + ahead[0])
    await keyed(world)
    first = await world.credentials.source(proof, name="billing")
    await world.credentials.rotate(first, overlap_seconds=3600.0)

    async def post(number: int) -> Reply:
        shown = [bearer(first.secret)] if proof == "bearer" else signed("billing", first.secret, event(n=number))
        return await gateway.post(event(n=number), *shown)

    async with World.over(world.dsn, vault=world.vault, ambient=ambient) as gateway:
        assert [(await post(number)).status for number in range(2)] == [202, 202]
        ahead[0] = 3601.0
        assert refused(await post(2)) == (401, code)


async def test_rotating_under_load_refuses_nobody_who_has_one_of_the_two(world: World) -> None:
    """Half of the senders switch at once, half of them only right before the next rotation."""
    await keyed(world)
    made = await world.credentials.source("bearer", name="billing")
    over, secrets, done = asyncio.Event(), [made.secret] * 4, [0] * 4

    async def load(gateway: World, number: int) -> set[int]:
        statuses = set()
        while not over.is_set():
            statuses.add((await gateway.post(event(n=number), bearer(secrets[number]))).status)
            done[number] += 1
        return statuses

    async def a_while() -> None:
        before = list(done)

        async def all_went_on() -> bool:
            return all(now >= then + 3 for now, then in zip(done, before, strict=True))

        await eventually(all_went_on, 30.0, "every sender got some answers")

    async with World.over(world.dsn, vault=world.vault) as other:
        senders = [asyncio.create_task(load(gateway, n)) for n, gateway in enumerate([world, other] * 2)]
        for _ in range(5):
            made = await world.credentials.rotate(made)
            secrets[:2] = [made.secret] * 2
            await a_while()
            secrets[2:] = [made.secret] * 2
            await a_while()
        over.set()
        assert await asyncio.gather(*senders) == [{202}] * 4


async def test_a_source_that_asks_for_two_proofs_is_proved_by_both_alone(world: World) -> None:
    await keyed(world)
    source = await world.credentials.source("bearer", "hmac", name="billing")
    key = await world.credentials.key("ingest", source="billing")
    body = event()
    signature = signed("billing", source.secret, body)
    for headers in ([bearer(key.secret)], signature, []):
        assert refused(await world.post(body, *headers)) == (401, "credential_missing")
    other = await world.credentials.key("ingest")
    for secret in (source.secret, other.secret, "nobody's"):
        assert refused(await world.post(body, bearer(secret), *signature)) == (401, "credential_invalid")
    assert await world.stored_nothing()
    assert (await world.post(body, bearer(key.secret), *signature)).status == 202


async def test_one_name_of_two_tenants_is_two_requests(world: World) -> None:
    """Case C56: another tenant's K is independent, with the same body and with another."""
    await keyed(world)
    await world.credentials.tenant(B)
    ours, theirs = await world.credentials.key("ingest"), await world.credentials.key("ingest", tenant=B)
    named = ("Idempotency-Key", "K")
    first = await world.post(event(n=1), named, bearer(ours.secret))
    second = await world.post(event(n=1), named, bearer(theirs.secret))
    assert first.json()["receipt_id"] != second.json()["receipt_id"]
    assert refused(await world.post(event(n=2), named, bearer(ours.secret))) == (409, "idempotency_key_reused")
    assert (await world.post(event(n=1), named, bearer(theirs.secret))).body == second.body
    assert {tenant for tenant, _ in await whose(world)} == {A, B}


async def test_an_operator_sends_for_the_tenant_that_it_names_and_nobody_else_does(world: World) -> None:
    operator, admin = await world.credentials.key("operator"), await keyed(world)
    await world.credentials.tenant(B)
    for_b = ("Relay-Tenant", B)
    assert (await world.post(event(), bearer(operator.secret), for_b)).status == 202
    assert (await world.post(event(), bearer(admin.secret), ("Relay-Tenant", A))).status == 202
    assert refused(await world.post(event(), bearer(admin.secret), for_b)) == (403, "scope_missing")
    nowhere = ("Relay-Tenant", "acct_nobody")
    assert refused(await world.post(event(), bearer(operator.secret), nowhere)) == (403, "scope_missing")
    assert sorted(tenant for tenant, _ in await whose(world)) == [B, A]


async def test_an_operator_and_a_key_of_the_tenant_with_the_same_name_are_two_senders(world: World) -> None:
    operator, name = await world.credentials.key("operator", name="ops"), ("Idempotency-Key", "k")
    await world.credentials.tenant(B)
    namesake = await world.credentials.key("ingest", tenant=B, name="ops")
    theirs = await world.post(event(n=1), bearer(namesake.secret), name)
    ours = await world.post(event(n=2), bearer(operator.secret), ("Relay-Tenant", B), name)
    assert (theirs.status, ours.status) == (202, 202)
    assert await whose(world) == [(B, "key:ops"), (B, "operator:ops")]
    # also when it was identified by older credentials, and at home it is what it was
    await world.credentials.key("read")
    again = await world.post(event(n=2), bearer(operator.secret), ("Relay-Tenant", B), name)
    assert again.body == ours.body
    assert (await world.post(event(n=3), bearer(operator.secret))).status == 202
    assert set(await whose(world)) == {(B, "key:ops"), (B, "operator:ops"), (A, "key:ops")}


async def test_an_operator_sends_for_a_tenant_as_soon_as_it_is_made_also_where_a_gateway_has_not_heard_of_it(
    world: World,
) -> None:
    operator = await world.credentials.key("operator")
    assert (await world.post(event(), bearer(operator.secret))).status == 202
    await world.credentials.tenant(B)
    assert (await world.post(event(), bearer(operator.secret), ("Relay-Tenant", B))).status == 202
    assert [tenant for tenant, _ in await whose(world)] == [A, B]


async def test_nobody_sends_for_a_tenant_that_has_ended_also_where_a_gateway_has_not_heard_of_it(world: World) -> None:
    operator = await world.credentials.key("operator")
    await world.credentials.tenant(B)
    for_b = ("Relay-Tenant", B)
    assert (await world.post(event(), bearer(operator.secret), for_b)).status == 202
    await world.credentials.issuer.remove_tenant(B, seen=await world.credentials.version())
    assert refused(await world.post(event(), bearer(operator.secret), for_b)) == (401, "credential_invalid")
    assert refused(await world.post(event(), bearer(operator.secret), for_b)) == (403, "scope_missing")
    assert await world.count("journal") == 1


async def test_a_tenants_events_go_to_its_own_endpoints(world: World) -> None:
    await world.subscribe("*")
    await keyed(world)
    await world.credentials.tenant(B)
    theirs = await world.credentials.key("ingest", tenant=B)
    assert (await world.post(event(), bearer(theirs.secret))).json()["deliveries"] == []


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer ", "Bearer a b", "Bearer a, Bearer b", "bearer é", "Bearer " + "x" * 10_000, "Bearer nobody's"],
)
async def test_a_bearer_that_is_none_is_invalid(world: World, header: str) -> None:
    await keyed(world)
    reply = await world.post(event(), ("Authorization", header))
    assert refused(reply) == (401, "credential_invalid")
    assert reply.headers["www-authenticate"] == 'Bearer realm="relay", error="invalid_token"'


@pytest.mark.parametrize("header", ["Basic YTpi", "Digest x", ""])
async def test_another_scheme_is_as_good_as_no_credential(world: World, header: str) -> None:
    await keyed(world)
    reply = await world.post(event(), ("Authorization", header))
    assert refused(reply) == (401, "credential_missing")
    assert reply.headers["www-authenticate"] == 'Bearer realm="relay"'


async def test_the_same_words_refuse_a_source_that_is_not_there_and_one_whose_signature_is_wrong(world: World) -> None:
    await keyed(world)
    source = await world.credentials.source("hmac")
    by_bearer = await world.credentials.source("bearer")
    nobody = Made(source.id, "nobody", "x" * 48)
    replies = [await post_signed(world, who, event(), secret="y" * 48) for who in (source, by_bearer, nobody)]
    assert len({reply.body for reply in replies}) == 1
    assert refused(replies[0]) == (401, "signature_invalid")


async def test_a_database_that_is_away_is_told_as_such(world: World) -> None:
    key = await keyed(world)
    assert (await world.post(event(), bearer(key.secret))).status == 202
    await world.database.close()
    assert refused(await world.post(event(), bearer("nobody"))) == (503, "database_unavailable")


async def test_a_forged_flood_asks_the_database_a_few_times(world: World) -> None:
    """However many bad keys come at once, one question is under way."""
    await keyed(world)
    asked = 0
    register = world.gateway.register
    read = register._read

    async def counted(known: int | None) -> object:
        nonlocal asked
        asked += 1
        return await read(known)

    register._read = counted  # type: ignore[assignment]  # only to be counted
    replies = await asyncio.gather(*(world.post(event(), bearer(f"forged-{n}")) for n in range(300)))
    assert {refused(reply) for reply in replies} == {(401, "credential_invalid")}
    assert asked < 30
    assert json.loads(replies[0].body)["detail"]
