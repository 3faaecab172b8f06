"""Bodies: whatever JSON looks like, and whatever is no JSON at all, arrives as the bytes that came in, and verifies.

Each of the four profiles has an endpoint whose receiver answers 204 only to what it could verify, and tells the hash of
the bytes that it saw. So a receipt that closed with equal hashes is the whole claim.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from tests.support.github_payloads import Payload
from tests.support.installation import add_endpoint, api, eventually, post
from tests.support.payload_styles import EMPTY, MARKED, ODD_BYTES, ODD_JSON, ODD_TEXT, STYLES, Body, restyled
from tests.support.producer import Event, Producer
from tests.support.vendors import (
    DOCUMENTED,
    GITHUB_DOCUMENTED,
    GITHUB_NPM,
    RELAY_DOCUMENTED,
    STANDARD_NPM,
    STANDARD_PYPI,
    STRIPE_NPM,
    STRIPE_PYPI,
    VENDORS,
    Hook,
    Library,
    Vendors,
)
from tests.system.conftest import Running

DEADLINE = 90.0

EACH_PROFILE = (RELAY_DOCUMENTED, STANDARD_NPM, STRIPE_NPM, GITHUB_NPM)
EACH_PROFILE_AGAIN = (RELAY_DOCUMENTED, STANDARD_PYPI, STRIPE_PYPI, GITHUB_DOCUMENTED)

BATCH_EVENTS = 500
BATCH_BYTES = 8_000_000

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Subscribed:
    """An endpoint that sends to a hook."""

    library: Library
    hook: Hook
    secret: str


def subscribe(running: Running, vendors: Vendors, libraries: Sequence[Library], *event_types: str) -> list[Subscribed]:
    """An endpoint for each library, for events of these types."""
    vendors.start(libraries)
    subscribed = []
    for library in libraries:
        name = f"bodies-{next(_numbers)}"
        hook = vendors.hook(library, name)
        wanted: dict[str, Any] = {"name": name, "signature": library.profile, "event_types": list(event_types)}
        secret = add_endpoint(running.gateway, hook.url, **wanted)["secret"]
        hook.trust(secret)
        subscribed.append(Subscribed(library, hook, secret))
    return subscribed


async def all_closed(running: Running, events: Iterable[Event]) -> None:
    """Return when the receipt of each event has closed as delivered."""
    keys = [event.key for event in events]
    sql = "select count(*) from receipts where event_id = any($1::text[]) and outcome = 'delivered'"

    async def closed() -> bool:
        return bool(await running.installation.value(sql, keys) == len(keys))

    await eventually(closed, DEADLINE, f"{len(keys)} receipts closed")


def arrived_as_posted(events: Sequence[Event], subscribed: Iterable[Subscribed]) -> None:
    """Each hook has seen each event, has seen nothing but the bytes that were posted, and has verified all of them."""
    posted = {(event.key, hashlib.sha256(event.body).hexdigest()) for event in events}
    for each in subscribed:
        seen = each.hook.seen()
        assert [f"{one.headers['relay-event-id']}: {one.why}" for one in seen if one.status != 204] == [], each.library
        assert {(one.headers["relay-event-id"], one.sha256) for one in seen} == posted, each.library


def batches(events: Iterable[Event]) -> Iterator[list[Event]]:
    """The events in groups that fit into one batch each."""
    group: list[Event] = []
    for event in events:
        if len(group) == BATCH_EVENTS or sum(len(each.body) for each in [*group, event]) > BATCH_BYTES:
            yield group
            group = []
        group.append(event)
    yield group


def post_batches(running: Running, events: Sequence[Event]) -> dict[str, str]:
    """Post the events through the batch call, the payloads as they are with space around; answers the receipts' ids."""
    receipts = {}
    with api(running.gateway) as client:
        for group in batches(events):
            elements = [
                b'{"type": "%b", "event_id": "%b", "payload":\t %b\r\n}'
                % (str(event.type).encode(), event.key.encode(), event.body)
                for event in group
            ]
            headers = {"content-type": "application/json"}
            answer = client.post("/v1/events/batch", content=b"[ %b ]" % b",\n".join(elements), headers=headers)
            assert answer.status_code == 202, answer.text
            results = answer.json()["data"]
            assert [result.get("event_id", result) for result in results] == [event.key for event in group]
            receipts.update({result["event_id"]: result["receipt_id"] for result in results})
    return receipts


def some_styles(number: int, other: int = 0) -> list[str]:
    """Every second style, beginning with another one for each payload in turn."""
    return [style for index, style in enumerate(STYLES) if (number + index + other) % 2 == 0]


async def test_real_payloads_in_every_style_of_json_arrive_byte_for_byte_and_verify_at_each_profile(
    running: Running, vendors: Vendors, payloads: list[Payload]
) -> None:
    subscribed = subscribe(running, vendors, EACH_PROFILE, "styles.*")
    events = [
        Event(f"{style}-{number}", restyled(payload.body, style), f"styles.{payload.event}")
        for number, payload in enumerate(payloads)
        for style in some_styles(number)
    ]
    assert len({event.body for event in events}) > len(events) * 0.9, "the styles differ"

    await Producer([running.gateway.url]).post(events, DEADLINE)
    await all_closed(running, events)
    arrived_as_posted(events, subscribed)


async def test_real_payloads_that_name_their_type_themselves_arrive_byte_for_byte_and_verify(
    running: Running, vendors: Vendors, payloads: list[Payload]
) -> None:
    subscribed = subscribe(running, vendors, EACH_PROFILE, "typed.*")
    styles = list(STYLES)
    events = []
    for number, payload in enumerate(payloads):
        typed = json.dumps({**json.loads(payload.body), "type": f"typed.{payload.event}"}).encode()
        events.append(Event(f"typed-{number}", restyled(typed, styles[number % len(styles)]), type=None))

    await Producer([running.gateway.url]).post(events, DEADLINE)
    await all_closed(running, events)
    arrived_as_posted(events, subscribed)


async def test_real_payloads_in_every_style_of_json_through_the_batch_call_arrive_as_the_bytes_of_their_slices(
    running: Running, vendors: Vendors, payloads: list[Payload]
) -> None:
    subscribed = subscribe(running, vendors, EACH_PROFILE_AGAIN, "batched.*")
    events = [
        Event(f"batched-{style}-{number}", restyled(payload.body, style).strip(), f"batched.{payload.event}")
        for number, payload in enumerate(payloads)
        for style in some_styles(number, other=1)
    ]

    post_batches(running, events)
    await all_closed(running, events)
    arrived_as_posted(events, subscribed)


async def test_values_that_any_re_encoding_would_change_are_kept_by_the_batch_call(
    running: Running, vendors: Vendors
) -> None:
    largest = ODD_TEXT["exactly the largest"]
    events = named({**ODD_JSON, "the largest": largest, "the largest again": largest}, "odd.batched")
    subscribed = subscribe(running, vendors, [*DOCUMENTED, *VENDORS], "odd.batched")
    receipts = post_batches(running, events)
    await all_closed(running, events)
    arrived_as_posted(events, subscribed)
    with api(running.gateway) as client:
        kept = {key: client.get(f"/v1/receipts/{receipt}/payload") for key, receipt in receipts.items()}
    assert {key: answer.content for key, answer in kept.items()} == {event.key: event.body for event in events}
    assert {answer.headers["content-type"] for answer in kept.values()} == {"application/json"}


def named(bodies: dict[str, Body], event_type: str) -> list[Event]:
    """An event for each body."""
    return [
        Event(f"{event_type}-{name}".replace(" ", "-"), body.bytes, event_type, body.content_type)
        for name, body in bodies.items()
    ]


async def test_text_that_any_re_encoding_would_change_verifies_at_each_vendors_library(
    running: Running, vendors: Vendors
) -> None:
    events = named({**ODD_JSON, **ODD_TEXT}, "odd.text")
    subscribed = subscribe(running, vendors, [*DOCUMENTED, *VENDORS], "odd.text")
    await Producer([running.gateway.url]).post(events, DEADLINE)
    await all_closed(running, events)
    arrived_as_posted(events, subscribed)


async def test_any_bytes_with_a_type_header_verify_at_each_profile_and_keep_their_content_type(
    running: Running, vendors: Vendors
) -> None:
    events = named({**ODD_BYTES, "marked": MARKED, "empty": EMPTY}, "odd.bytes")
    subscribed = subscribe(running, vendors, DOCUMENTED, "odd.bytes")
    producer = Producer([running.gateway.url])
    await producer.post(events, DEADLINE)
    await all_closed(running, events)
    arrived_as_posted(events, subscribed)

    content_types = {event.key: event.content_type for event in events}
    for each in subscribed:
        seen = {one.headers["relay-event-id"]: one.headers["content-type"] for one in each.hook.seen()}
        assert seen == content_types
    with api(running.gateway) as client:
        for event in events:
            receipt = producer.accepted[event.key].json()["receipt_id"]
            assert client.get(f"/v1/receipts/{receipt}/payload").content == event.body


NEED_UTF8 = set(ODD_BYTES)
CANNOT_TAKE = {
    "standard-pypi-standardwebhooks": NEED_UTF8,
    "standard-pypi-svix": NEED_UTF8,
    "stripe-pypi-stripe": NEED_UTF8,
    "standard-npm-standardwebhooks": NEED_UTF8,
    "stripe-npm-stripe": NEED_UTF8 | {"marked"},
    "github-npm-octokit": NEED_UTF8 | {"empty"},
}
"""What these libraries refuse although its signature is right: they make text of the body first. docs/receivers.md."""


@pytest.mark.parametrize("library", VENDORS, ids=str)
async def test_the_libraries_refuse_just_the_bytes_that_the_documentation_warns_of(
    running: Running, vendors: Vendors, library: Library
) -> None:
    bodies = {**ODD_BYTES, "marked": MARKED, "empty": EMPTY}
    documented = next(each for each in DOCUMENTED if each.profile == library.profile)
    event_type = f"limits.{library.registry}-{library.name}"
    (right,) = subscribe(running, vendors, [documented], event_type)
    events = named(bodies, event_type)
    await Producer([running.gateway.url]).post(events, DEADLINE)
    await all_closed(running, events)

    theirs = vendors.hook(library, event_type)
    theirs.trust(right.secret)
    headers = {one.headers["relay-event-id"]: one.headers for one in right.hook.seen()}
    statuses = {
        name: theirs.deliver(headers[event.key], event.body) for name, event in zip(bodies, events, strict=True)
    }
    assert {name for name, status in statuses.items() if status == 401} == CANNOT_TAKE[str(library)]


RAW_FORMS: dict[str, tuple[dict[str, str], list[bytes]]] = {
    "a newline at the end": ({"content-type": "application/json"}, [b'{"type": "raw.form"}\n']),
    "spaces": ({"content-type": "application/json"}, [b' { "type" : "raw.form" }  ']),
    "a content type in odd case": ({"content-type": "Application/JSON; Charset=UTF-8"}, [b'{"type":"raw.form","n":1}']),
    "chunks": ({"content-type": "application/json"}, [b'{"type": ', b'"raw.', b'form", "n": 1.0}', b"\n"]),
    "a form": ({"content-type": "application/x-www-form-urlencoded", "relay-event-type": "raw.form"}, [b"a=%20&b=+"]),
    "nothing": ({"content-type": "application/json", "relay-event-type": "raw.form"}, [b""]),
}
"""Case C47: bodies that differ from what a parser would write again, as they come over the wire."""


@pytest.mark.parametrize("chunked", [False, True], ids=["with-length", "chunked"])
async def test_what_is_signed_are_the_raw_bytes_however_they_came(
    running: Running, vendors: Vendors, chunked: bool
) -> None:
    subscribed = subscribe(running, vendors, DOCUMENTED, "raw.form")
    events = []
    with api(running.gateway) as client:
        for name, (headers, pieces) in RAW_FORMS.items():
            event = Event(
                f"raw-{chunked}-{name}".replace(" ", "-"), b"".join(pieces), content_type=headers["content-type"]
            )
            named_headers = {**headers, "idempotency-key": event.key}
            answer = client.post("/v1/events", content=iter(pieces) if chunked else event.body, headers=named_headers)
            assert answer.status_code == 202, answer.text
            events.append(event)
    await all_closed(running, events)
    arrived_as_posted(events, subscribed)
    content_types = {event.key: event.content_type for event in events}
    for each in subscribed:
        assert {one.headers["relay-event-id"]: one.headers["content-type"] for one in each.hook.seen()} == content_types


async def test_a_byte_order_mark_is_refused_where_the_type_would_be_read_from_the_body(running: Running) -> None:
    answer = post(running.gateway, b'\xef\xbb\xbf{"type": "odd.marked"}')
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


async def test_one_byte_more_than_the_largest_is_refused(running: Running) -> None:
    answer = post(running.gateway, ODD_TEXT["exactly the largest"].bytes + b" ", relay_event_type="odd.large")
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
