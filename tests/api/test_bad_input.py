"""Claims about what is no good: each a problem document with a stable code, and nothing half-written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.world import ENDPOINTS, JSON, MAX_BODY_BYTES, URL, World
from tests.support.asgi import Reply, call

INVALID: list[tuple[str, dict[str, Any]]] = [
    ("/url", {}),
    ("/url", {"url": None}),
    ("/url", {"url": 7}),
    ("/url", {"url": ["https://example.com"]}),
    ("/nmae", {"url": URL, "nmae": "x"}),
    ("/name", {"url": URL, "name": ""}),
    ("/name", {"url": URL, "name": " x"}),
    ("/name", {"url": URL, "name": "a\x00b"}),
    ("/name", {"url": URL, "name": "a\nb"}),
    ("/name", {"url": URL, "name": "x" * 101}),
    ("/name", {"url": URL, "name": 7}),
    ("/transport", {"url": URL, "transport": "smtp"}),
    ("/ack", {"url": URL, "ack": "later"}),
    ("/ack", {"url": URL, "ack": True}),
    ("/signature", {"url": URL, "signature": "md5"}),
    ("/event_types", {"url": URL, "event_types": []}),
    ("/event_types", {"url": URL, "event_types": "*"}),
    ("/event_types", {"url": URL, "event_types": None}),
    ("/event_types", {"url": URL, "event_types": ["a"] * 101}),
    ("/event_types/1", {"url": URL, "event_types": ["a", "a..b"]}),
    ("/event_types/0", {"url": URL, "event_types": ["order.creat?"]}),
    ("/event_types/0", {"url": URL, "event_types": ["order.*.paid"]}),
    ("/event_types/0", {"url": URL, "event_types": ["order.%"]}),
    ("/event_types/0", {"url": URL, "event_types": [""]}),
    ("/event_types/0", {"url": URL, "event_types": [None]}),
    ("/rate_per_second", {"url": URL, "rate_per_second": 0}),
    ("/rate_per_second", {"url": URL, "rate_per_second": 1e-300}),
    ("/rate_per_second", {"url": URL, "rate_per_second": 100_001}),
    ("/rate_per_second", {"url": URL, "rate_per_second": 10**400}),
    ("/rate_per_second", {"url": URL, "rate_per_second": "10"}),
    ("/rate_per_second", {"url": URL, "rate_per_second": True}),
    ("/rate_per_second", {"url": URL, "rate_per_second": None}),
    ("/burst", {"url": URL, "burst": 0}),
    ("/burst", {"url": URL, "burst": 100_001}),
    ("/burst", {"url": URL, "burst": 1.5}),
    ("/burst", {"url": URL, "burst": 10**30}),
    ("/max_in_flight", {"url": URL, "max_in_flight": 0}),
    ("/max_in_flight", {"url": URL, "max_in_flight": 257}),
    ("/timeout_seconds", {"url": URL, "timeout_seconds": 0}),
    ("/timeout_seconds", {"url": URL, "timeout_seconds": 55.1}),
    ("/timeout_seconds", {"url": URL, "timeout_seconds": "5"}),
    ("/retry", {"url": URL, "retry": {}}),
    ("/retry", {"url": URL, "retry": "patient"}),
    ("/retry", {"url": URL, "retry": {"preset": "patient", "max_attempts": 3}}),
    ("/retry", {"url": URL, "retry": {"base_seconds": 5, "max_seconds": 4}}),
    ("/retry", {"url": URL, "retry": {"max_seconds": 1}}),
    ("/retry", {"url": URL, "retry": {"window_seconds": 1}}),
    ("/retry", {"url": URL, "retry": {"base_seconds": 3600}}),
    ("/retry", {"url": URL, "retry": {"base_seconds": 20, "window_seconds": 10}}),
    ("/retry/preset", {"url": URL, "retry": {"preset": "hasty"}}),
    ("/retry/max_attempts", {"url": URL, "retry": {"max_attempts": 0}}),
    ("/retry/max_attempts", {"url": URL, "retry": {"max_attempts": 1001}}),
    ("/retry/base_seconds", {"url": URL, "retry": {"base_seconds": 86_400.1}}),
    ("/retry/base_seconds", {"url": URL, "retry": {"base_seconds": 30 * 86_400}}),
    ("/retry/base_seconds", {"url": URL, "retry": {"base_seconds": 0}}),
    ("/retry/max_seconds", {"url": URL, "retry": {"max_seconds": 604_800.1}}),
    ("/retry/max_attempts", {"url": URL, "retry": {"max_attempts": None}}),
    ("/retry/max_attempts", {"url": URL, "retry": {"max_attempts": 1.0}}),
    ("/retry/window_seconds", {"url": URL, "retry": {"window_seconds": 1e300}}),
    ("/retry/jitter", {"url": URL, "retry": {"jitter": 0.5}}),
    ("/headers", {"url": URL, "headers": []}),
    ("/headers", {"url": URL, "headers": {"Relay-Timestamp": "1"}}),
    ("/headers", {"url": URL, "headers": {"Host": "example.com"}}),
    ("/headers", {"url": URL, "headers": {"Content-Type": "text/plain"}}),
    ("/headers", {"url": URL, "headers": {"X": "a\r\nY: b"}}),
    ("/headers", {"url": URL, "headers": {"X": "\x00"}}),
    ("/headers", {"url": URL, "headers": {"X ": "a"}}),
    ("/headers/X", {"url": URL, "headers": {"X": 7}}),
    ("/secret", {"url": URL, "secret": "short"}),
    ("/secret", {"url": URL, "secret": "x" * 20 + "\x00"}),
    ("/secret", {"url": URL, "secret": "no base64 in here at all", "signature": "standard"}),
    ("/secret", {"url": URL, "secret": 7}),
    ("/state", {"url": URL, "state": "paused"}),
    ("/id", {"url": URL, "id": "ep_1"}),
]

REFUSED_URLS = {
    "http://example.com/": "scheme",
    "ftp://example.com/": "scheme",
    "javascript:alert(1)": "malformed",
    "": "malformed",
    "example.com": "malformed",
    "https://": "malformed",
    "https://user:pass@example.com/": "userinfo",
    "https://example.com/#x": "fragment",
    "https://example.com:8443/": "port",
    "https://example.com:0/": "port",
    "https://127.0.0.1/": "loopback",
    "https://localhost/": "loopback",
    "https://[::1]/": "loopback",
    "https://[::ffff:127.0.0.1]/": "loopback",
    "https://2130706433/": "host",
    "https://0x7f000001/": "host",
    "https://10.0.0.1/": "private",
    "https://169.254.169.254/latest": "metadata",
    "https://0.0.0.0/": "unspecified",
    "https://exa mple.com/": "malformed",
    "https://example.com/\x00": "malformed",
    "https://example.com\\@evil.test/": "malformed",
    "https://example.com/" + "x" * 5000: "too_long",
}


def assert_problem(reply: Reply) -> None:
    """A refusal of the client's doing, told as one."""
    assert 400 <= reply.status < 500, reply
    assert reply.code


async def stored(world: World) -> list[int]:
    """How much there is of everything that an endpoint consists of."""
    return [await world.count(table) for table in ("endpoints", "endpoint_state", "secrets")]


@pytest.mark.parametrize(("pointer", "body"), INVALID)
async def test_a_bad_field_is_named(shared_world: World, pointer: str, body: dict[str, Any]) -> None:
    """Case C161 among others: what is no pattern (`order.%`, `order.creat?`, `order.*.paid`) is refused."""
    before = await stored(shared_world)
    reply = await shared_world.send("POST", ENDPOINTS, body)
    assert (reply.status, reply.code) == (422, "invalid")
    assert pointer in [error["pointer"] for error in reply.json()["errors"]]
    assert await stored(shared_world) == before


@pytest.mark.parametrize(("pointer", "body"), [each for each in INVALID if each[0] not in ("/url", "/secret", "/name")])
async def test_a_bad_change_changes_nothing(shared_world: World, pointer: str, body: dict[str, Any]) -> None:
    endpoint = await shared_world.create()
    del endpoint["secret"]
    path = f"{ENDPOINTS}/{endpoint['id']}"
    reply = await shared_world.send("PATCH", path, {**body, "burst": body.get("burst", 7)})
    assert (reply.status, reply.code) == (422, "invalid")
    assert pointer in [error["pointer"] for error in reply.json()["errors"]]
    assert (await shared_world.get(path)).json() == endpoint


@pytest.mark.parametrize(
    "field", ["url", "name", "event_types", "rate_per_second", "burst", "max_in_flight", "ack", "headers"]
)
async def test_a_change_to_null_is_refused_where_null_means_nothing(shared_world: World, field: str) -> None:
    path = f"{ENDPOINTS}/{(await shared_world.create())['id']}"
    reply = await shared_world.send("PATCH", path, {field: None})
    assert reply.json()["errors"] == [{"pointer": f"/{field}", "detail": "cannot be null; leave it out instead"}]


@pytest.mark.parametrize("field", ["transport", "secret", "id", "state", "created_at"])
async def test_what_cannot_be_changed_is_no_field_of_a_change(shared_world: World, field: str) -> None:
    path = f"{ENDPOINTS}/{(await shared_world.create())['id']}"
    reply = await shared_world.send("PATCH", path, {field: "http"})
    assert reply.json()["errors"] == [{"pointer": f"/{field}", "detail": "there is no such field"}]


@pytest.mark.parametrize(("url", "reason"), REFUSED_URLS.items())
async def test_a_url_that_is_not_sent_to_is_refused_with_its_reason(shared_world: World, url: str, reason: str) -> None:
    before = await stored(shared_world)
    reply = await shared_world.send("POST", ENDPOINTS, {"url": url})
    assert (reply.status, reply.code, reply.json()["reason"]) == (422, "url_refused", reason)
    assert await stored(shared_world) == before


async def test_a_url_is_judged_when_it_is_changed(shared_world: World) -> None:
    path = f"{ENDPOINTS}/{(await shared_world.create())['id']}"
    reply = await shared_world.send("PATCH", path, {"url": "https://127.0.0.1/"})
    assert (reply.status, reply.code) == (422, "url_refused")
    assert (await shared_world.get(path)).json()["url"] == URL


async def test_a_name_that_does_not_resolve_is_accepted(shared_world: World) -> None:
    assert (await shared_world.create(url="https://no-such-host.invalid/"))["url"] == "https://no-such-host.invalid/"


async def test_all_faults_are_told_at_once(shared_world: World) -> None:
    reply = await shared_world.send(
        "POST", ENDPOINTS, {"url": URL, "burst": 0, "x": 1, "event_types": ["a..b", "*", "?"]}
    )
    assert sorted(error["pointer"] for error in reply.json()["errors"]) == [
        "/burst",
        "/event_types/0",
        "/event_types/2",
        "/x",
    ]


async def test_no_answer_repeats_a_secret(shared_world: World) -> None:
    for body in (
        {"url": URL, "secret": "hunter2hunter2 "},
        {"url": 7, "secret": "hunter2hunter2hunter2", "burst": "x"},
    ):
        reply = await shared_world.send("POST", ENDPOINTS, body)
        assert reply.status == 422
        assert b"hunter2" not in reply.body


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed"),
        (b"{", 400, "malformed"),
        (b"nonsense", 400, "malformed"),
        (b'{"url":"\xff"}', 400, "malformed"),
        (b'\xef\xbb\xbf{"url":"https://example.com/"}', 400, "malformed"),
        (b'{"url":"\\ud800"}', 400, "malformed"),
        (b'{"burst":NaN}', 400, "malformed"),
        (b'{"burst":1e400}', 400, "malformed"),
        (b'{"burst":' + b"9" * 5000 + b"}", 400, "malformed"),
        (b"[" * 60_000, 400, "malformed"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, 400, "malformed"),
        (b"[]", 422, "invalid"),
        (b"null", 422, "invalid"),
        (b'"x"', 422, "invalid"),
        (b"7", 422, "invalid"),
        (b"{" + b",".join(b'"f%d":1' % n for n in range(5000)) + b"}", 422, "invalid"),
        (b" " * (MAX_BODY_BYTES + 1), 413, "payload_too_large"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_a_body_that_is_no_object_is_refused(
    shared_world: World, method: str, body: bytes, status: int, code: str
) -> None:
    path = ENDPOINTS if method == "POST" else f"{ENDPOINTS}/ep_{'0' * 32}"
    for pieces in ([body], [body[:5], body[5:]]):
        reply = await call(shared_world.app, method, path, headers=[JSON], body=pieces, declared=len(pieces) == 1)
        assert (reply.status, reply.code) == (status, code)
        assert len(reply.body) < 10_000


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/json; charset=test", "multipart/form-data; boundary=z"]
)
async def test_a_body_of_another_content_type_is_refused_unread(shared_world: World, content_type: str) -> None:
    headers = [("Content-Type", content_type)] if content_type else []
    reply = await call(shared_world.app, "POST", ENDPOINTS, headers=headers, body=b'{"url":"https://example.com/"}')
    assert (reply.status, reply.code, reply.headers["connection"]) == (415, "content_type", "close")


async def test_a_content_coding_is_refused(shared_world: World) -> None:
    reply = await call(shared_world.app, "POST", ENDPOINTS, headers=[JSON, ("Content-Encoding", "gzip")], body=b"x")
    assert reply.code == "content_type"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", ENDPOINTS, "GET, POST"),
        ("DELETE", ENDPOINTS, "GET, POST"),
        ("POST", f"{ENDPOINTS}/ep_1", "DELETE, GET, PATCH"),
        ("GET", f"{ENDPOINTS}/ep_1/pause", "POST"),
        ("POST", "/healthz", "GET"),
        ("GET", "/v1/events", "POST"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(shared_world: World, method: str, path: str, allowed: str) -> None:
    reply = await call(shared_world.app, method, path)
    assert (reply.status, reply.code, reply.headers["allow"]) == (405, "method_not_allowed", allowed)


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/endpoints/", "/v1/event", "//", "/v1/endpoints/a/b/c", "/redoc", "/é"]
)
async def test_an_unknown_path_is_not_found(shared_world: World, path: str) -> None:
    reply = await call(shared_world.app, "GET", path.encode().decode("latin-1"))
    assert (reply.status, reply.code) == (404, "not_found")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    "url", "name", "transport", "event_types", "rate_per_second", "burst", "max_in_flight", "retry", "ack", "signature",
    "headers", "secret", "timeout_seconds", "preset", "max_attempts", "\x00", "é",
]  # fmt: skip
objects = st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=5)
likely = st.fixed_dictionaries({"url": st.just(URL)}).flatmap(lambda base: objects.map(lambda more: {**more, **base}))
raw_bodies = (
    st.binary(max_size=100)
    | objects.map(lambda value: json.dumps(value).encode())
    | likely.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.text(max_size=4), json_values, max_size=3).map(lambda value: json.dumps(value).encode())
)

fuzzed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)


@fuzzed
@given(body=raw_bodies)
async def test_whatever_is_posted_as_an_endpoint_it_is_created_or_refused(shared_world: World, body: bytes) -> None:
    before = await stored(shared_world)
    reply = await call(shared_world.app, "POST", ENDPOINTS, headers=[JSON], body=body)
    if reply.status == 201:
        assert (await shared_world.send("DELETE", f"{ENDPOINTS}/{reply.json()['id']}")).status == 204
    else:
        assert_problem(reply)
        assert await stored(shared_world) == before


@fuzzed
@given(bodies=st.lists(raw_bodies, min_size=1, max_size=3))
async def test_whatever_an_endpoint_is_changed_to_it_can_be_shown(shared_world: World, bodies: list[bytes]) -> None:
    path = f"{ENDPOINTS}/{(await shared_world.create())['id']}"
    for body in bodies:
        reply = await call(shared_world.app, "PATCH", path, headers=[JSON], body=body)
        if reply.status != 200:
            assert_problem(reply)
    assert (await shared_world.get(path)).status == 200


@fuzzed
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]),
    path=st.text(st.characters(codec="latin-1"), max_size=30).map(lambda tail: f"/v1/{tail}")
    | st.text(st.characters(codec="latin-1"), max_size=30).map(lambda tail: f"/v1/endpoints/{tail}")
    | st.text(st.characters(codec="latin-1"), max_size=30).map(lambda tail: f"/v1/receipts/{tail}"),
    body=st.binary(max_size=30),
)
async def test_whatever_path_is_asked_for_the_answer_is_no_fault_of_relays(
    shared_world: World, method: str, path: str, body: bytes
) -> None:
    reply = await call(shared_world.app, method, path, headers=[JSON], body=body)
    assert reply.status == 200 or 400 <= reply.status < 500
