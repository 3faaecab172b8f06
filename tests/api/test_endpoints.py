"""Claims about the calls on endpoints, against a real database."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from typing import Any

import pytest

from relay.api import endpoint_rules
from relay.domain import ids
from relay.domain.delivery import DeadReason
from relay.domain.endpoint import Destination
from relay.domain.telemetry import DeadLettered
from tests.api.world import ENDPOINTS, URL, World, new_id
from tests.support.odd_urls import REFUSED

SECRET = "whsec_" + "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
CHANGES: list[tuple[str, Any]] = [
    ("url", "https://example.org/other"),
    ("name", "ledger-writer"),
    ("event_types", ["invoice.*", "order.paid"]),
    ("rate_per_second", 0.5),
    ("burst", 100_000),
    ("max_in_flight", 256),
    ("retry", {"preset": "patient"}),
    ("retry", {"max_attempts": 3, "base_seconds": 0.5}),
    ("signature", "standard"),
    ("headers", {"X-Team": "billing", "Accept-Language": "de"}),
    ("timeout_seconds", 55),
]


async def destination(world: World, endpoint: Any) -> Destination:
    """What a dispatcher would know of the endpoint."""
    endpoint_id = ids.parse(ids.ENDPOINT, endpoint["id"])
    read = (await world.destinations.read([endpoint_id]))[endpoint_id]
    assert isinstance(read, Destination)
    return read


async def test_an_endpoint_needs_only_a_url(shared_world: World) -> None:
    reply = await shared_world.send("POST", ENDPOINTS, {"url": URL})
    endpoint = reply.json()
    assert reply.status == 201
    assert reply.headers["location"] == f"{ENDPOINTS}/{endpoint['id']}"
    assert re.fullmatch(r"ep_[0-9a-f]{32}", endpoint.pop("id"))
    assert re.fullmatch(r"example\.com-[0-9a-f]{6}", endpoint.pop("name"))
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", endpoint.pop("secret"))
    for instant in ("created_at", "updated_at"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", endpoint.pop(instant))
    assert endpoint == {
        "url": URL,
        "transport": "http",
        "event_types": ["*"],
        "rate_per_second": 10.0,
        "burst": 20,
        "max_in_flight": 32,
        "retry": None,
        "ack": "response",
        "signature": "relay",
        "headers": {},
        "timeout_seconds": None,
        "state": "active",
        "state_reason": None,
        "closed_by": None,
        "opens_at": None,
        "previous_secret_expires_at": None,
    }


async def test_a_secret_is_shown_at_its_creation_and_never_again(world: World) -> None:
    endpoint = await world.create()
    secret = endpoint.pop("secret")
    shown = await world.get(f"{ENDPOINTS}/{endpoint['id']}")
    listed = await world.get(ENDPOINTS)
    changed = await world.send("PATCH", f"{ENDPOINTS}/{endpoint['id']}", {"burst": 3})
    assert shown.json() == endpoint
    assert all(secret.encode() not in reply.body and b'secret"' not in reply.body for reply in (shown, listed, changed))


async def test_a_secret_of_ones_own_is_taken(shared_world: World) -> None:
    endpoint = await shared_world.create(secret=SECRET)
    assert endpoint["secret"] == SECRET
    assert (await destination(shared_world, endpoint)).secret.expose() == SECRET


async def test_a_url_of_two_meanings_is_refused_with_its_reason_and_never_breaks_the_call(shared_world: World) -> None:
    """C21, C45."""
    endpoint = await shared_world.create()
    for url, reason in REFUSED.items():
        made = await shared_world.send("POST", ENDPOINTS, {"url": url})
        changed = await shared_world.send("PATCH", f"{ENDPOINTS}/{endpoint['id']}", {"url": url})
        for reply in (made, changed):
            told = reply.json()
            # half of a character pair is no JSON text, and a text of no length or a giant one is no field's
            refused = (told["status"], told["code"]) in ((400, "malformed"), (422, "invalid"))
            assert refused or (told["status"], told["code"], told["reason"]) == (422, "url_refused", reason), url
    assert (await shared_world.get(f"{ENDPOINTS}/{endpoint['id']}")).json()["url"] == URL


CREDENTIALS = {"Authorization": "Bearer s3cret", "X-Api-Key": "s3cret", "X-Team": "billing"}
SHOWN = {"Authorization": "***", "X-Api-Key": "***", "X-Team": "billing"}


async def test_a_header_that_is_a_credential_is_in_no_answer(world: World) -> None:
    made = await world.send("POST", ENDPOINTS, {"url": URL, "headers": CREDENTIALS})
    path = f"{ENDPOINTS}/{made.json()['id']}"
    replies = [made, await world.get(path), await world.get(ENDPOINTS), await world.send("PATCH", path, {"burst": 3})]
    assert [b"s3cret" in reply.body for reply in replies] == [False] * 4
    assert made.json()["headers"] == SHOWN
    assert dict((await destination(world, made.json())).headers) == CREDENTIALS


async def test_headers_that_are_sent_back_as_they_were_shown_stay_what_they_are(shared_world: World) -> None:
    endpoint = await shared_world.create(headers=CREDENTIALS)
    changed = {"authorization": "***", "X-Api-Key": "another", "X-Team": "***"}
    reply = await shared_world.send("PATCH", f"{ENDPOINTS}/{endpoint['id']}", {"headers": changed})
    assert reply.status == 200
    kept = {"authorization": "Bearer s3cret", "X-Api-Key": "another", "X-Team": "***"}
    assert dict((await destination(shared_world, endpoint)).headers) == kept


async def test_stars_that_stand_for_no_value_are_refused(shared_world: World) -> None:
    endpoint = await shared_world.create(headers={"X-Team": "billing"})
    wanted = {"headers": {"Authorization": "***"}}
    changed = await shared_world.send("PATCH", f"{ENDPOINTS}/{endpoint['id']}", wanted)
    made = await shared_world.send("POST", ENDPOINTS, {"url": URL, **wanted})
    for reply in (changed, made):
        assert (reply.status, reply.json()["code"]) == (422, "invalid")
        assert reply.json()["errors"][0]["pointer"] == "/headers"
        assert "Authorization" in reply.json()["errors"][0]["detail"]


async def test_an_endpoint_is_stored_with_the_normal_form_of_its_url(shared_world: World) -> None:
    assert (await shared_world.create(url="HTTPS://Example.COM:443/Hook?q=1"))["url"] == "https://example.com/Hook?q=1"


@pytest.mark.parametrize(("field", "value"), CHANGES)
async def test_what_is_wanted_of_an_endpoint_is_what_is_shown(shared_world: World, field: str, value: object) -> None:
    endpoint = await shared_world.create(**{field: value})
    assert endpoint[field] == value


@pytest.mark.parametrize(("field", "value"), CHANGES)
async def test_a_change_changes_what_it_names_and_nothing_else(shared_world: World, field: str, value: object) -> None:
    before = await shared_world.create()
    del before["secret"]
    if field == "name":
        value = f"{value}-{before['id']}"
    reply = await shared_world.send("PATCH", f"{ENDPOINTS}/{before['id']}", {field: value})
    after = reply.json()
    assert reply.status == 200
    assert after.pop("updated_at") > before.pop("updated_at")
    assert after == {**before, field: value}


@pytest.mark.parametrize("field", ["retry", "timeout_seconds"])
async def test_null_goes_back_to_the_installations_own(shared_world: World, field: str) -> None:
    endpoint = await shared_world.create(retry={"max_attempts": 3}, timeout_seconds=3)
    assert (await shared_world.send("PATCH", f"{ENDPOINTS}/{endpoint['id']}", {field: None})).json()[field] is None


async def test_a_change_of_nothing_changes_nothing(shared_world: World) -> None:
    endpoint = await shared_world.create()
    reply = await shared_world.send("PATCH", f"{ENDPOINTS}/{endpoint['id']}", {})
    assert (reply.status, reply.json()["updated_at"]) == (200, endpoint["updated_at"])


async def test_patterns_that_repeat_count_once(shared_world: World) -> None:
    assert (await shared_world.create(event_types=["b", "a", "b"]))["event_types"] == ["b", "a"]


async def test_a_name_belongs_to_one_endpoint(world: World) -> None:
    await world.create(name="ledger")
    other = await world.create()
    made = await world.send("POST", ENDPOINTS, {"url": URL, "name": "ledger"})
    renamed = await world.send("PATCH", f"{ENDPOINTS}/{other['id']}", {"name": "ledger"})
    for reply in (made, renamed):
        assert (reply.status, reply.code) == (422, "invalid")
        assert reply.json()["errors"] == [{"pointer": "/name", "detail": "another endpoint has this name"}]
    assert await world.count("endpoints") == 2


async def test_a_drawn_name_that_is_taken_is_drawn_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["one", "one", "two"])
    monkeypatch.setattr(endpoint_rules, "_name_for", lambda *_: next(names))
    assert [(await world.create())["name"] for _ in range(2)] == ["one", "two"]


async def test_the_name_of_a_removed_endpoint_is_free_again(world: World) -> None:
    endpoint = await world.create(name="ledger")
    await world.send("DELETE", f"{ENDPOINTS}/{endpoint['id']}")
    assert (await world.create(name="ledger"))["name"] == "ledger"


async def test_a_long_host_makes_a_name_that_fits(shared_world: World) -> None:
    host = ".".join(["a" * 50] * 4) + ".com"
    assert len((await shared_world.create(url=f"https://{host}/"))["name"]) == 100


async def test_the_list_shows_every_endpoint_once_newest_first(world: World) -> None:
    made = [(await world.create())["id"] for _ in range(5)]
    seen: list[str] = []
    path = f"{ENDPOINTS}?limit=2"
    sizes: list[int] = []
    while path:
        page = (await world.get(path)).json()
        seen += [endpoint["id"] for endpoint in page["data"]]
        sizes.append(len(page["data"]))
        path = f"{ENDPOINTS}?limit=2&cursor={page['next_cursor']}" if page["next_cursor"] else ""
    assert seen == made[::-1]
    assert sizes == [2, 2, 1]


async def test_a_page_is_not_moved_by_what_is_made_and_removed_meanwhile(world: World) -> None:
    made = [(await world.create())["id"] for _ in range(4)]
    first = (await world.get(f"{ENDPOINTS}?limit=2")).json()
    await world.create()
    await world.send("DELETE", f"{ENDPOINTS}/{made[2]}")
    second = (await world.get(f"{ENDPOINTS}?limit=2&cursor={first['next_cursor']}")).json()
    assert [endpoint["id"] for endpoint in second["data"]] == [made[1], made[0]]


async def test_an_empty_list_is_a_page(world: World) -> None:
    assert (await world.get(ENDPOINTS)).json() == {"data": [], "next_cursor": None}


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=-1", "limit=101", "limit=1e9", "limit=abc", "limit=", "limt=5", "x"]
)
async def test_a_bad_filter_is_refused_with_the_valid_ones(shared_world: World, query: str) -> None:
    reply = await shared_world.get(f"{ENDPOINTS}?{query}=" if query == "x" else f"{ENDPOINTS}?{query}")
    assert (reply.status, reply.code) == (400, "bad_filter")
    assert "limit" in reply.json()["detail"]


@pytest.mark.parametrize("cursor", ["", "abc", "AAAA", "%00", "é", "x" * 5000])
async def test_a_bad_cursor_is_refused(shared_world: World, cursor: str) -> None:
    reply = await shared_world.get(f"{ENDPOINTS}?cursor={cursor}")
    assert (reply.status, reply.code) == (400, "bad_cursor")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/rotate-secret")],
)
async def test_an_id_that_nobody_has_is_not_found(shared_world: World, method: str, path: str) -> None:
    strangers = ["ep_" + "0" * 32, "ep_", "x", "rcp_" + "0" * 32, "ep_" + "A" * 32, "\x00", "ep_" + "0" * 5000]
    for stranger in strangers:
        body = {"burst": 1} if method == "PATCH" else None
        reply = await shared_world.send(method, f"{ENDPOINTS}/{stranger}{path}", body)
        assert (reply.status, reply.code) == (404, "not_found")


async def test_a_paused_endpoint_is_resumed(shared_world: World) -> None:
    path = f"{ENDPOINTS}/{(await shared_world.create())['id']}"
    states = [
        (await shared_world.send("POST", f"{path}/{call}")).json()["state"] for call in ("pause", "pause", "resume")
    ]
    assert states == ["paused", "paused", "active"]


@pytest.mark.parametrize(("method", "call", "body"), [("POST", "/resume", None), ("PATCH", "", {"burst": 7})])
async def test_what_may_open_a_lane_wakes_the_dispatchers(
    world: World, method: str, call: str, body: dict[str, Any] | None
) -> None:
    path = f"{ENDPOINTS}/{(await world.create())['id']}"
    await world.send("POST", f"{path}/pause")
    woken = world.wakeups.sent
    assert (await world.send(method, f"{path}{call}", body)).status == 200
    await world.wakeups.until_sent(woken + 1)


async def test_events_still_match_a_paused_endpoint(world: World) -> None:
    endpoint = await world.create()
    await world.send("POST", f"{ENDPOINTS}/{endpoint['id']}/pause")
    assert [each["endpoint_id"] for each in (await world.post_event())["deliveries"]] == [endpoint["id"]]


async def test_a_rotated_secret_is_new_and_the_old_one_counts_for_a_while(shared_world: World) -> None:
    endpoint = await shared_world.create(secret=SECRET)
    reply = await shared_world.send("POST", f"{ENDPOINTS}/{endpoint['id']}/rotate-secret")
    rotated = reply.json()
    assert (reply.status, rotated["id"]) == (200, endpoint["id"])
    assert rotated["secret"] != SECRET
    known = await destination(shared_world, endpoint)
    assert known.secret.expose() == rotated["secret"]
    assert known.previous_secret is not None
    assert known.previous_secret.expose() == SECRET
    shown = (await shared_world.get(f"{ENDPOINTS}/{endpoint['id']}")).json()
    assert shown["previous_secret_expires_at"] == rotated["previous_secret_expires_at"]
    expires, now = (
        datetime.fromisoformat(each) for each in (rotated["previous_secret_expires_at"], shown["updated_at"])
    )
    assert 3599 < (expires - now).total_seconds() < 3601


async def test_a_profile_that_the_secret_does_not_suit_needs_a_rotation_first(shared_world: World) -> None:
    endpoint = await shared_world.create(secret="a secret of some other kind")
    path = f"{ENDPOINTS}/{endpoint['id']}"
    refused = await shared_world.send("PATCH", path, {"signature": "standard"})
    assert (refused.status, refused.json()["errors"][0]["pointer"]) == (422, "/signature")
    await shared_world.send("POST", f"{path}/rotate-secret")
    still = await shared_world.send("PATCH", path, {"signature": "standard"})
    assert still.status == 422, "the previous secret signs as well"
    await shared_world.send("POST", f"{path}/rotate-secret")
    assert (await shared_world.send("PATCH", path, {"signature": "standard"})).json()["signature"] == "standard"


async def test_what_a_removed_endpoint_was_owed_becomes_dead_letters(world: World) -> None:
    endpoint = await world.create()
    for _ in range(3):
        await world.post_event()
    reply = await world.send("DELETE", f"{ENDPOINTS}/{endpoint['id']}")
    assert (reply.status, reply.body) == (204, b"")
    rows = await world.sql("select status::text, dead_reason::text as reason from deliveries")
    assert {(row["status"], row["reason"]) for row in rows} == {("dead", "endpoint_removed")}
    assert world.ear.of(DeadLettered) == [DeadLettered(endpoint["name"], DeadReason.ENDPOINT_REMOVED, 3)]
    assert (await world.get(f"{ENDPOINTS}/{endpoint['id']}")).status == 404
    assert (await world.post_event())["deliveries"] == []


async def test_the_deliveries_of_other_endpoints_are_left_alone(world: World) -> None:
    gone, stays = await world.create(), await world.create()
    await world.post_event()
    await world.send("DELETE", f"{ENDPOINTS}/{gone['id']}")
    kept = ids.parse(ids.ENDPOINT, stays["id"])
    rows = await world.sql("select status::text from deliveries where endpoint_id = $1", kept)
    assert [row["status"] for row in rows] == ["pending"]


async def test_endpoints_of_another_tenant_are_not_found(world: World) -> None:
    endpoint = await world.create()
    await world.sql("insert into tenants (id, name, partition) values ('acct_other', 'other', 1)")
    await world.sql("update endpoints set tenant = 'acct_other'")
    path = f"{ENDPOINTS}/{endpoint['id']}"
    replies = [
        await world.get(path),
        await world.send("PATCH", path, {"burst": 1}),
        await world.send("POST", f"{path}/pause"),
        await world.send("POST", f"{path}/rotate-secret"),
        await world.send("DELETE", path),
    ]
    assert {reply.status for reply in replies} == {404}
    assert (await world.get(ENDPOINTS)).json()["data"] == []


async def test_changes_at_once_lose_none(shared_world: World) -> None:
    path = f"{ENDPOINTS}/{(await shared_world.create())['id']}"
    changes: list[dict[str, object]] = [{"burst": 7}, {"rate_per_second": 3.0}, {"max_in_flight": 9}, {"name": "n"}]
    await asyncio.gather(*[shared_world.send("PATCH", path, change) for change in changes])
    shown = (await shared_world.get(path)).json()
    assert [shown[field] for change in changes for field in change] == [7, 3.0, 9, "n"]


async def test_a_database_that_is_away_is_a_503(world: World) -> None:
    await world.database.close()
    replies = [await world.send("POST", ENDPOINTS, {"url": URL}), await world.get(f"{ENDPOINTS}/ep_{new_id().hex}")]
    assert [(reply.code, reply.headers["retry-after"]) for reply in replies] == [("database_unavailable", "1")] * 2


async def test_a_gateway_of_retired_keys_makes_no_secret_that_nobody_could_open(world: World) -> None:
    endpoint = await world.create()
    await world.sql(
        "insert into key_marks (sealed, key_id, retired_at) select 'mark', key_id, now() from secrets limit 1"
    )
    for path, body in ((ENDPOINTS, {"url": URL}), (f"{ENDPOINTS}/{endpoint['id']}/rotate-secret", {})):
        reply = await world.send("POST", path, body)
        assert (reply.status, reply.code) == (503, "database_unavailable")
    assert (await world.sql("select count(*) from secrets"))[0][0] == 1
