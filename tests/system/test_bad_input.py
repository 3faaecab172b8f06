"""Bad input to a running Relay: a problem document with a stable code, never a 500, and nothing of it is stored.

One installation serves the whole module; every test looks at all tables before and after.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from relay.web.problems import ERRORS, ErrorCode
from tests.support.database import Server
from tests.support.installation import Installation, Service
from tests.support.wire import Cut, Reply, Wire, request
from tests.system.conftest import ended, fresh_database

LARGEST_PAYLOAD = 65_536
JSON = {"content-type": "application/json"}
NOBODY = "0" * 32
ROWS = """
    select 'journal', count(*) from journal union all select 'receipts', count(*) from receipts
    union all select 'deliveries', count(*) from deliveries union all select 'keys', count(*) from idempotency_keys
    union all select 'endpoints', count(*) from endpoints union all select 'secrets', count(*) from secrets
"""

EventCase = tuple[Mapping[str, str], bytes, ErrorCode]

EVENTS: dict[str, EventCase] = {
    "no body": (JSON, b"", ErrorCode.MALFORMED),
    "half an object": (JSON, b'{"type": "a.b"', ErrorCode.MALFORMED),
    "two objects": (JSON, b'{"type": "a.b"}{}', ErrorCode.MALFORMED),
    "an array": (JSON, b'[{"type": "a.b"}]', ErrorCode.MALFORMED),
    "a string": (JSON, b'"a.b"', ErrorCode.MALFORMED),
    "null": (JSON, b"null", ErrorCode.MALFORMED),
    "NaN": (JSON, b'{"type": "a.b", "n": NaN}', ErrorCode.MALFORMED),
    "single quotes": (JSON, b"{'type': 'a.b'}", ErrorCode.MALFORMED),
    "a comment": (JSON, b'{"type": "a.b" /* */}', ErrorCode.MALFORMED),
    "a raw line break in a string": (JSON, b'{"type": "a.b", "s": "\n"}', ErrorCode.MALFORMED),
    "a zero byte": (JSON, b'{"type": "a.b"}\0', ErrorCode.MALFORMED),
    "broken UTF-8": (JSON, b'{"type": "a.b", "s": "\xff\xfe"}', ErrorCode.MALFORMED),
    "half a character": (JSON, b'{"type": "a.b", "s": "\xc3"}', ErrorCode.MALFORMED),
    "a surrogate in UTF-8": (JSON, b'{"type": "a.b", "s": "\xed\xa0\x80"}', ErrorCode.MALFORMED),
    "a byte order mark": (JSON, b'\xef\xbb\xbf{"type": "a.b"}', ErrorCode.MALFORMED),
    "UTF-16": (JSON, '{"type": "a.b"}'.encode("utf-16"), ErrorCode.MALFORMED),
    "deep arrays": (JSON, b'{"type": "a.b", "d": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", ErrorCode.MALFORMED),
    "deep objects": (JSON, b'{"d":' * 10_000 + b"1" + b"}" * 10_000, ErrorCode.MALFORMED),
    "deep and unclosed": (JSON, b'{"d":[' * 10_000, ErrorCode.MALFORMED),
    "no type": (JSON, b"{}", ErrorCode.TYPE_MISSING),
    "a type that is a number": (JSON, b'{"type": 5}', ErrorCode.TYPE_MISSING),
    "a type that is null": (JSON, b'{"type": null}', ErrorCode.TYPE_MISSING),
    "a type that is an object": (JSON, b'{"type": {"type": "a.b"}}', ErrorCode.TYPE_MISSING),
    "an empty type": (JSON, b'{"type": ""}', ErrorCode.TYPE_MISSING),
    "a type inside only": (JSON, b'{"data": {"type": "a.b"}}', ErrorCode.TYPE_MISSING),
    "a type with a space": (JSON, b'{"type": "a b"}', ErrorCode.MALFORMED),
    "a type with an empty segment": (JSON, b'{"type": "a..b"}', ErrorCode.MALFORMED),
    "a type that is a pattern": (JSON, b'{"type": "a.*"}', ErrorCode.MALFORMED),
    "a type with a zero character": (JSON, b'{"type": "a\\u0000b"}', ErrorCode.MALFORMED),
    "a type in another script": (JSON, '{"type": "счёт.оплачен"}'.encode(), ErrorCode.MALFORMED),
    "a type of 129 characters": (JSON, b'{"type": "%b"}' % (b"a" * 129), ErrorCode.MALFORMED),
    "an empty type header": (JSON | {"relay-event-type": ""}, b"{}", ErrorCode.TYPE_MISSING),
    "a bad type header": (JSON | {"relay-event-type": "a b"}, b"{}", ErrorCode.MALFORMED),
    "a type header in Latin-1": (JSON | {"relay-event-type": "caf\xe9"}, b"{}", ErrorCode.MALFORMED),
    "no content type": ({}, b'{"type": "a.b"}', ErrorCode.CONTENT_TYPE),
    "text": ({"content-type": "text/plain"}, b'{"type": "a.b"}', ErrorCode.CONTENT_TYPE),
    "a form": ({"content-type": "application/x-www-form-urlencoded"}, b"type=a.b", ErrorCode.CONTENT_TYPE),
    "no media type": ({"content-type": ";;;"}, b'{"type": "a.b"}', ErrorCode.CONTENT_TYPE),
    "Latin-1": ({"content-type": "application/json; charset=latin-1"}, b'{"type": "a.b"}', ErrorCode.CONTENT_TYPE),
    "no charset": ({"content-type": "application/json; charset=\xe9"}, b'{"type": "a.b"}', ErrorCode.CONTENT_TYPE),
    "packed": (JSON | {"content-encoding": "gzip"}, b'{"type": "a.b"}', ErrorCode.CONTENT_TYPE),
    "an empty key": (JSON | {"idempotency-key": '""'}, b'{"type": "a.b"}', ErrorCode.MALFORMED),
    "a key of 256": (JSON | {"idempotency-key": "k" * 256}, b'{"type": "a.b"}', ErrorCode.MALFORMED),
    "a key in Latin-1": (JSON | {"idempotency-key": "caf\xe9"}, b'{"type": "a.b"}', ErrorCode.MALFORMED),
    "a key that is half quoted": (JSON | {"idempotency-key": '"k'}, b'{"type": "a.b"}', ErrorCode.MALFORMED),
    "hops that are no number": (JSON | {"relay-hops": "many"}, b'{"type": "a.b"}', ErrorCode.MALFORMED),
    "hops below zero": (JSON | {"relay-hops": "-1"}, b'{"type": "a.b"}', ErrorCode.MALFORMED),
    "nine hops": (JSON | {"relay-hops": "9"}, b'{"type": "a.b"}', ErrorCode.RELAY_LOOP),
    "hops without end": (JSON | {"relay-hops": "9" * 5_000}, b'{"type": "a.b"}', ErrorCode.RELAY_LOOP),
    "a byte too much": (JSON, b'{"type": "a.b"}'.ljust(LARGEST_PAYLOAD + 1), ErrorCode.PAYLOAD_TOO_LARGE),
    "far too much": (JSON, b'{"type": "a.b"}'.ljust(8 * LARGEST_PAYLOAD), ErrorCode.PAYLOAD_TOO_LARGE),
}

OK_URL = "http://127.0.0.1:9/hook"

FIELDS: dict[str, object] = {
    "nothing": {},
    "an array": [],
    "a string": "url",
    "null": None,
    "a url that is a number": {"url": 5},
    "a url that is null": {"url": None},
    "an unknown field": {"url": OK_URL, "colour": "red"},
    "a misspelt field": {"url": OK_URL, "eventTypes": ["a.b"]},
    "an id": {"url": OK_URL, "id": f"ep_{NOBODY}"},
    "a tenant": {"url": OK_URL, "tenant": "acct_other"},
    "a rate of zero": {"url": OK_URL, "rate_per_second": 0},
    "a rate below zero": {"url": OK_URL, "rate_per_second": -1},
    "a rate past the limit": {"url": OK_URL, "rate_per_second": 100_001},
    "a rate as text": {"url": OK_URL, "rate_per_second": "10"},
    "a rate that is true": {"url": OK_URL, "rate_per_second": True},
    "a burst of zero": {"url": OK_URL, "burst": 0},
    "half a burst": {"url": OK_URL, "burst": 1.5},
    "a burst without end": {"url": OK_URL, "burst": 10**18},
    "none in flight": {"url": OK_URL, "max_in_flight": 0},
    "too many in flight": {"url": OK_URL, "max_in_flight": 257},
    "no types": {"url": OK_URL, "event_types": []},
    "types that are text": {"url": OK_URL, "event_types": "a.b"},
    "a type that is a number": {"url": OK_URL, "event_types": [5]},
    "a bad pattern": {"url": OK_URL, "event_types": ["*.paid"]},
    "a pattern with a zero character": {"url": OK_URL, "event_types": ["a\0b"]},
    "too many patterns": {"url": OK_URL, "event_types": [f"a.b{n}" for n in range(200)]},
    "an unknown transport": {"url": OK_URL, "transport": "ftp"},
    "an unknown ack": {"url": OK_URL, "ack": "never"},
    "an unknown signature": {"url": OK_URL, "signature": "rsa"},
    "a header of the connection": {"url": OK_URL, "headers": {"Host": "elsewhere"}},
    "a header of Relay's": {"url": OK_URL, "headers": {"Relay-Signature": "v1=0"}},
    "a header with a line break": {"url": OK_URL, "headers": {"X-A": "1\r\nX-B: 2"}},
    "a header name with a colon": {"url": OK_URL, "headers": {"X-A: 1\r\nX-B": "2"}},
    "a header that is a number": {"url": OK_URL, "headers": {"X-A": 5}},
    "headers that are an array": {"url": OK_URL, "headers": [["X-A", "1"]]},
    "a weak secret": {"url": OK_URL, "secret": "x"},
    "a secret that is no base64": {"url": OK_URL, "signature": "standard", "secret": "whsec_!!!!"},
    "a secret with a zero character": {"url": OK_URL, "secret": "whsec_\0" + "a" * 40},
    "no time": {"url": OK_URL, "timeout_seconds": 0},
    "too much time": {"url": OK_URL, "timeout_seconds": 1e9},
    "an unknown preset": {"url": OK_URL, "retry": {"preset": "endless"}},
    "no attempts": {"url": OK_URL, "retry": {"max_attempts": 0}},
    "an unknown part of retry": {"url": OK_URL, "retry": {"tries": 3}},
    "an empty retry": {"url": OK_URL, "retry": {}},
    "an empty name": {"url": OK_URL, "name": ""},
    "a name without end": {"url": OK_URL, "name": "n" * 5_000},
    "a name with a zero character": {"url": OK_URL, "name": "a\0b"},
    "a name with a line break": {"url": OK_URL, "name": "a\nb"},
}

BODIES: dict[str, tuple[bytes, ErrorCode]] = {
    "no body": (b"", ErrorCode.MALFORMED),
    "half an object": (b'{"url": ', ErrorCode.MALFORMED),
    "NaN": (b'{"url": "%b", "burst": NaN}' % OK_URL.encode(), ErrorCode.MALFORMED),
    "broken UTF-8": (b'{"url": "\xff"}', ErrorCode.MALFORMED),
    "half a surrogate pair": (b'{"url": "%b", "name": "\\ud800"}' % OK_URL.encode(), ErrorCode.MALFORMED),
    "deep nesting": (b'{"headers":' * 5_000, ErrorCode.MALFORMED),
    "deep and whole": (b'{"retry":' * 5_000 + b"1" + b"}" * 5_000, ErrorCode.MALFORMED),
}

URLS: dict[str, str] = {
    "an empty one": "",
    "no url": "not a url",
    "a path": "/hook",
    "no scheme": "//example.com/hook",
    "no host": "http://",
    "another scheme": "ftp://example.com/",
    "a script": "javascript:alert(1)",
    "a file": "file:///etc/passwd",
    "a user": "http://user:password@example.com/",
    "half an address": "http://[::1/",
    "a port past the last": "http://example.com:99999/",
    "a port that is no number": "http://example.com:http/",
    "a space": "http://exa mple.com/",
    "a line break": "http://example.com/\r\nX-A: 1",
    "a zero character": "http://example.com/\0",
    "an address past the last": "http://256.256.256.256/",
    "a host without end": f"http://{'a' * 5_000}.example/",
}

PRIVATE_URLS: dict[str, str] = {
    "plain http": "http://example.com/",
    "another port": "https://example.com:22/",
    "loopback": "https://127.0.0.1/",
    "loopback as a number": "https://2130706433/",
    "loopback in short": "https://0x7f.1/",
    "loopback in octal": "https://0177.0.0.1/",
    "loopback, version 6": "https://[::1]/",
    "loopback, mapped": "https://[::ffff:127.0.0.1]/",
    "this machine": "https://0.0.0.0/",
    "a private network": "https://10.0.0.1/",
    "the metadata of clouds": "https://169.254.169.254/latest/meta-data",
}

UNKNOWN: dict[str, tuple[str, str, ErrorCode]] = {
    "a receipt": ("GET", f"/v1/receipts/rcp_{NOBODY}", ErrorCode.NOT_FOUND),
    "a payload": ("GET", f"/v1/receipts/rcp_{NOBODY}/payload", ErrorCode.NOT_FOUND),
    "a delivery": ("GET", f"/v1/deliveries/{NOBODY[:8]}-0000-7000-8000-{NOBODY[:12]}", ErrorCode.NOT_FOUND),
    "an endpoint": ("GET", f"/v1/endpoints/ep_{NOBODY}", ErrorCode.NOT_FOUND),
    "an endpoint to remove": ("DELETE", f"/v1/endpoints/ep_{NOBODY}", ErrorCode.NOT_FOUND),
    "an endpoint to pause": ("POST", f"/v1/endpoints/ep_{NOBODY}/pause", ErrorCode.NOT_FOUND),
    "an endpoint to resume": ("POST", f"/v1/endpoints/ep_{NOBODY}/resume", ErrorCode.NOT_FOUND),
    "an endpoint to rotate": ("POST", f"/v1/endpoints/ep_{NOBODY}/rotate-secret", ErrorCode.NOT_FOUND),
    "an id of another kind": ("GET", f"/v1/receipts/ep_{NOBODY}", ErrorCode.NOT_FOUND),
    "an id that is none": ("GET", "/v1/receipts/1%27%20or%201=1", ErrorCode.NOT_FOUND),
    "an id with a zero byte": ("GET", "/v1/endpoints/%00", ErrorCode.NOT_FOUND),
    "an id in broken UTF-8": ("GET", "/v1/deliveries/%ff%fe", ErrorCode.NOT_FOUND),
    "an id without end": ("GET", "/v1/receipts/" + "a" * 5_000, ErrorCode.NOT_FOUND),
    "a path": ("GET", "/v1/nothing", ErrorCode.NOT_FOUND),
    "a path upwards": ("GET", "/v1/../../etc/passwd", ErrorCode.NOT_FOUND),
    "a method of events": ("GET", "/v1/events", ErrorCode.METHOD_NOT_ALLOWED),
    "a method of endpoints": ("PUT", "/v1/endpoints", ErrorCode.METHOD_NOT_ALLOWED),
    "a limit of zero": ("GET", "/v1/endpoints?limit=0", ErrorCode.BAD_FILTER),
    "a limit past the last": ("GET", "/v1/endpoints?limit=101", ErrorCode.BAD_FILTER),
    "a limit that is no number": ("GET", "/v1/endpoints?limit=ten", ErrorCode.BAD_FILTER),
    "a limit without end": ("GET", "/v1/endpoints?limit=" + "9" * 5_000, ErrorCode.BAD_FILTER),
    "a cursor": ("GET", "/v1/endpoints?cursor=abc", ErrorCode.BAD_CURSOR),
    "a filter": ("GET", "/v1/endpoints?colour=red", ErrorCode.BAD_FILTER),
}

SHOUTS: dict[str, bytes] = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "half a line": b"POST\r\n\r\n",
    "two lengths": b"POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    "a length below zero": b"POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\nhello",
    "a length that is no number": b"POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-length: five\r\n\r\nhello",
    "a length and chunks": (
        b"POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "chunks of no size": b"POST /v1/events HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n",
    "a head without end": b"GET /healthz HTTP/1.1\r\n" + b"x-padding: " + b"a" * 200_000,
}


def each(cases: Mapping[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


@pytest.fixture(scope="module")
def shared(
    database_server: Server,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Installation]:
    with fresh_database(database_server, template_database) as dsn:
        folder = tmp_path_factory.mktemp("shared")
        yield from ended(
            Installation(folder, dsn, {"RELAY_MAX_PAYLOAD_BYTES": str(LARGEST_PAYLOAD)}),
            request,
        )


@pytest.fixture(scope="module")
def gateway(shared: Installation) -> Service:
    return shared.gateway()


@pytest.fixture(scope="module")
def strict_gateway(shared: Installation) -> Service:
    """A gateway as in production: endpoints have to be public."""
    return shared.gateway(allow_private_endpoints="false")


@pytest.fixture(autouse=True)
async def nothing_is_stored(shared: Installation) -> AsyncIterator[None]:
    before = await shared.fetch(ROWS)
    yield
    assert await shared.fetch(ROWS) == before


async def ask(service: Service, data: bytes) -> Reply:
    async with await Wire.connect(service.url) as wire:
        return await wire.ask(data)


def assert_problem(reply: Reply, code: ErrorCode) -> None:
    assert reply.headers["content-type"] == "application/problem+json"
    document = reply.json()
    assert (document["code"], document["status"]) == (code, ERRORS[code].status), document
    assert reply.status == ERRORS[code].status
    assert document["title"]
    assert document["detail"]


async def create(service: Service, body: bytes) -> Reply:
    return await ask(service, request("POST", "/v1/endpoints", headers=JSON, body=body))


@each(EVENTS)
async def test_a_bad_event_is_a_problem(gateway: Service, case: EventCase) -> None:
    headers, body, code = case
    assert_problem(await ask(gateway, request("POST", "/v1/events", headers=headers, body=body)), code)


@each(FIELDS)
async def test_a_bad_endpoint_is_invalid_and_says_where(gateway: Service, case: object) -> None:
    reply = await create(gateway, json.dumps(case).encode())
    assert_problem(reply, ErrorCode.INVALID)
    assert all({"pointer", "detail"} == fault.keys() for fault in reply.json()["errors"])


@each(BODIES)
async def test_an_endpoint_body_that_is_no_json_is_malformed(gateway: Service, case: tuple[bytes, ErrorCode]) -> None:
    body, code = case
    assert_problem(await create(gateway, body), code)


@pytest.mark.parametrize("number", [b"1e999", b"9" * 5_000, b"-0.0", b"1" + b"0" * 400, b"1e-999"])
@pytest.mark.parametrize("field", [b"burst", b"rate_per_second", b"max_in_flight", b"timeout_seconds"])
async def test_a_number_that_no_field_can_hold_is_a_problem(gateway: Service, field: bytes, number: bytes) -> None:
    reply = await create(gateway, b'{"url": "%b", "%b": %b}' % (OK_URL.encode(), field, number))
    assert reply.status in (400, 422)
    assert_problem(reply, ErrorCode(reply.json()["code"]))


@each(URLS)
async def test_a_bad_url_is_refused_with_a_reason(gateway: Service, case: str) -> None:
    reply = await create(gateway, json.dumps({"url": case}).encode())
    assert_problem(reply, ErrorCode.URL_REFUSED)
    assert reply.json()["reason"]


@each(PRIVATE_URLS)
async def test_a_url_that_is_not_public_is_refused_unless_allowed(strict_gateway: Service, case: str) -> None:
    reply = await create(strict_gateway, json.dumps({"url": case}).encode())
    assert_problem(reply, ErrorCode.URL_REFUSED)


@each(UNKNOWN)
async def test_what_is_not_there_is_a_problem(gateway: Service, case: tuple[str, str, ErrorCode]) -> None:
    method, path, code = case
    assert_problem(await ask(gateway, request(method, path)), code)


async def test_a_change_of_an_unknown_endpoint_is_not_found(gateway: Service) -> None:
    change = request("PATCH", f"/v1/endpoints/ep_{NOBODY}", headers=JSON, body=b'{"name": "new"}')
    assert_problem(await ask(gateway, change), ErrorCode.NOT_FOUND)


@each(SHOUTS)
async def test_what_is_no_request_is_refused_and_the_connection_closed(gateway: Service, case: bytes) -> None:
    async with await Wire.connect(gateway.url) as wire:
        with suppress(OSError):
            await wire.write(case)
        with suppress(Cut):
            reply = await wire.reply()
            assert 400 <= reply.status < 500, reply
        await wire.closed()
    assert (await ask(gateway, request("GET", "/healthz"))).status == 200


@pytest.mark.parametrize(
    "call",
    [
        "POST /v1/events",
        "POST /v1/events/batch",
        "POST /v1/endpoints",
        "POST /v1/dead-letters/redrive",
        "POST /v1/sources",
        "PUT /v1/schemas/a.b/v1",
    ],
)
async def test_a_body_that_never_ends_is_refused_soon_after_the_limit(gateway: Service, call: str) -> None:
    """Case C149: the answer comes while the body goes on, and then the connection is closed."""
    head = f"{call} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    most = 64 * 1024 * 1024
    async with await Wire.connect(gateway.url) as wire:
        await wire.write(head.encode())

        async def pour() -> int:
            poured = 0
            with suppress(OSError):
                while poured < most:
                    await wire.write(chunk)
                    poured += len(chunk)
            return poured

        pouring = asyncio.create_task(pour())
        assert_problem(await wire.reply(), ErrorCode.PAYLOAD_TOO_LARGE)
        assert await pouring < most, "the connection was closed under who went on"


async def test_a_declared_length_past_the_limit_is_refused_before_the_body_comes(gateway: Service) -> None:
    head = b"POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    async with await Wire.connect(gateway.url) as wire:
        assert_problem(await wire.ask(head % 10**15), ErrorCode.PAYLOAD_TOO_LARGE)


async def test_a_sender_that_leaves_in_the_middle_leaves_nothing_behind(gateway: Service) -> None:
    whole = request("POST", "/v1/events", headers=JSON, body=b'{"type": "a.b"}')
    for length in (10, len(whole) // 2, len(whole) - 1):
        async with await Wire.connect(gateway.url) as wire:
            await wire.write(whole[:length])
            wire.end()
            await wire.closed()
    assert (await ask(gateway, request("GET", "/healthz"))).status == 200
