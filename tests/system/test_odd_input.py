"""Odd input that is none the less right: it is accepted, kept and sent on as the bytes that came in."""

from __future__ import annotations

import pytest

from tests.support.installation import Installation, add_endpoint, api, post
from tests.support.receiver import Receiver

DEADLINE = 60.0

BODIES: dict[str, bytes] = {
    "a number past every float": b'{"type": "odd.one", "n": 1e400}',
    "an integer of 5,000 digits": b'{"type": "odd.one", "n": ' + b"9" * 5_000 + b"}",
    "a name twice": b'{"type": "odd.one", "a": 1, "a": 2}',
    "a type twice": b'{"type": "odd.two", "type": "odd.one"}',
    "a whole-number float": b'{"type": "odd.one", "n": 1.0, "m": 1.10, "z": -0.0}',
    "more digits than a float has": b'{"type": "odd.one", "n": 0.1000000000000000055511151231257827}',
    "an integer past every float": b'{"type": "odd.one", "n": 9007199254740993}',
    "an escaped zero character": b'{"type": "odd.one", "s": "\\u0000"}',
    "half a surrogate pair": b'{"type": "odd.one", "s": "\\ud800"}',
    "half a pair as a name": b'{"type": "odd.one", "\\ud800": "\\udc00\\ud800"}',
    "escapes in the type's name": b'{"t\\u0079pe": "odd.one"}',
    "a character past the basic plane": '{"type": "odd.one", "s": "😀 e\u0301 \u202e"}'.encode(),
    "space in odd places": b' \t\r\n{ "type"\n:\t"odd.one" } \n\n',
    "a long string": b'{"type": "odd.one", "s": "' + b"x" * 500_000 + b'"}',
    "some depth": b'{"type": "odd.one", "d": ' + b"[" * 100 + b"]" * 100 + b"}",
}


@pytest.mark.usefixtures("patient")
async def test_odd_but_valid_payloads_are_kept_and_delivered_byte_for_byte(
    installation: Installation, receiver: Receiver
) -> None:
    """Cases C68 and C70: whatever a reader would make of them, no number is rounded and no half of a pair replaced."""
    gateway = installation.gateway()
    installation.dispatcher()
    add_endpoint(gateway, receiver.url(), event_types=["odd.one"])
    for name, body in BODIES.items():
        answer = post(gateway, body)
        assert answer.status_code == 202, (name, answer.text)
        with api(gateway) as client:
            assert client.get(f"/v1/receipts/{answer.json()['receipt_id']}/payload").content == body, name
    await installation.all_closed(len(BODIES), DEADLINE)
    assert sorted(receiver.bodies()) == sorted(BODIES.values())


@pytest.mark.usefixtures("patient")
async def test_with_a_type_in_the_header_any_bytes_of_any_content_type_are_an_event(
    installation: Installation, receiver: Receiver
) -> None:
    gateway = installation.gateway()
    installation.dispatcher()
    add_endpoint(gateway, receiver.url())
    sent = {
        "application/octet-stream": bytes(range(256)) * 8,
        "text/plain; charset=latin-1": b"caf\xe9",
        "image/png": b"",
    }
    for content_type, body in sent.items():
        answer = post(gateway, body, content_type=content_type, relay_event_type="odd.bytes")
        assert answer.status_code == 202, answer.text
    await installation.all_closed(len(sent), DEADLINE)
    arrived = {
        next(value for name, value in arrival.headers if name.lower() == "content-type"): arrival.body
        for arrival in receiver.received()
    }
    assert arrived == sent
