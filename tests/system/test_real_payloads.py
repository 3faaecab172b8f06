"""Real input: what GitHub really sent, through the whole of Relay, to one endpoint for each signature profile.

The verifiers are the vendors' own libraries, and for GitHub the few lines that its documentation asks of receivers.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest
import standardwebhooks
import stripe
import svix.webhooks

from tests.support.github_payloads import Payload
from tests.support.installation import Installation, add_endpoint, api
from tests.support.producer import Event, Producer
from tests.support.receiver import Receiver

DELIVERED_SECONDS = 60.0
FRESH_SECONDS = 300

Verify = Callable[[bytes, Mapping[str, str], str], None]
"""Raises something if these bytes with these headers do not bear the signature of this secret."""

SIGNATURE_HEADERS = {"relay-signature", "webhook-signature", "stripe-signature", "x-hub-signature-256"}


def by_relays_own_scheme(body: bytes, headers: Mapping[str, str], secret: str) -> None:
    signed = headers["relay-timestamp"].encode() + b"." + body
    code = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["relay-signature"] == f"v1={code}"


def by_standardwebhooks_and_svix(body: bytes, headers: Mapping[str, str], secret: str) -> None:
    standardwebhooks.Webhook(secret).verify(body, dict(headers))
    svix.webhooks.Webhook(secret).verify(body, dict(headers))


def by_stripe(body: bytes, headers: Mapping[str, str], secret: str) -> None:
    stripe.WebhookSignature.verify_header(body.decode(), headers["stripe-signature"], secret, FRESH_SECONDS)


def by_githubs_scheme(body: bytes, headers: Mapping[str, str], secret: str) -> None:
    code = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    assert headers["x-hub-signature-256"] == f"sha256={code}"
    assert headers["x-github-event"] == headers["relay-event-type"]
    assert UUID(headers["x-github-delivery"]) == UUID(headers["relay-delivery-id"])


def by_nothing(body: bytes, headers: Mapping[str, str], secret: str) -> None:
    assert not SIGNATURE_HEADERS & set(headers)


PROFILES: Mapping[str, Verify] = {
    "relay": by_relays_own_scheme,
    "standard": by_standardwebhooks_and_svix,
    "stripe": by_stripe,
    "github": by_githubs_scheme,
    "none": by_nothing,
}


def schemas_of(payloads: Sequence[Payload]) -> dict[str, dict[str, Any]]:
    """A schema for each type that all of its payloads fit, and others' hardly do: their members and what those are."""
    bodies: dict[str, list[Any]] = {}
    for payload in payloads:
        bodies.setdefault(payload.event, []).append(json.loads(payload.body))
    return {event_type: shape_of(values) for event_type, values in bodies.items()}


def shape_of(values: Sequence[Any]) -> dict[str, Any]:
    objects = [value for value in values if isinstance(value, dict)]
    shape: dict[str, Any] = {"type": sorted({KINDS[type(value)] for value in values})}
    if objects:
        names = sorted({name for each in objects for name in each})
        shape["required"] = [name for name in names if all(name in each for each in objects)]
        shape["properties"] = {name: shape_of([each[name] for each in objects if name in each]) for name in names}
        shape["additionalProperties"] = False
    items = [item for value in values if isinstance(value, list) for item in value]
    if items:
        shape["items"] = shape_of(items)
    return shape


KINDS = {dict: "object", list: "array", str: "string", int: "number", float: "number", bool: "boolean"}
KINDS[type(None)] = "null"


@pytest.mark.parametrize("with_schemas", [False, True], ids=["without_schemas", "with_schemas"])
@pytest.mark.usefixtures("patient")
async def test_real_payloads_reach_an_endpoint_of_each_profile_byte_for_byte_and_verify(
    installation: Installation, receiver: Receiver, payloads: list[Payload], with_schemas: bool
) -> None:
    assert len(payloads) > 300
    gateway = installation.gateway()
    if with_schemas:
        with api(gateway) as client:
            for event_type, schema in schemas_of(payloads).items():
                client.put(f"/v1/schemas/{event_type}/v1", json=schema).raise_for_status()
    installation.dispatcher()
    secrets = {
        profile: add_endpoint(gateway, receiver.url(f"/ok/{profile}"), name=profile, signature=profile)["secret"]
        for profile in PROFILES
    }
    sent = {
        f"github-{number}": Event(f"github-{number}", payload.body, payload.event)
        for number, payload in enumerate(payloads)
    }

    producer = Producer([gateway.url])
    await producer.post(sent.values(), DELIVERED_SECONDS)
    await receiver.arrive(len(sent) * len(PROFILES), DELIVERED_SECONDS)
    await installation.all_closed(len(sent), DELIVERED_SECONDS)

    for profile, verify in PROFILES.items():
        arrivals = receiver.received(f"/ok/{profile}")
        assert len(arrivals) == len(sent)
        by_event: dict[str, Any] = {}
        for arrival in arrivals:
            headers = {name.lower(): value for name, value in arrival.headers}
            event = sent[headers["relay-event-id"]]
            by_event[event.key] = arrival
            assert arrival.body == event.body
            assert headers["relay-event-type"] == event.type
            assert headers["content-type"] == "application/json"
            verify(arrival.body, headers, secrets[profile])
        assert by_event.keys() == sent.keys()

    with api(gateway) as client:
        for key, reply in producer.accepted.items():
            receipt = f"/v1/receipts/{reply.json()['receipt_id']}"
            assert client.get(f"{receipt}/payload").content == sent[key].body
            assert client.get(receipt).json()["schema"] == (f"{sent[key].type}/v1" if with_schemas else None)
