"""Deliveries, addresses and answers for tests, with one field changed where a test cares."""

from __future__ import annotations

import hashlib
import os
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from relay.domain import ids
from relay.domain.backoff import DEFAULT
from relay.domain.delivery import ClaimedDelivery
from relay.domain.endpoint import AckMode, Destination, SignatureProfile, Transport
from relay.domain.envelope import JournalPosition
from relay.domain.secret import Secret

PAYLOAD = b'{"type":"order.paid","amount":4999}'


def new_id() -> UUID:
    """An id of now."""
    return ids.uuid7(time.time_ns() // 1_000_000, os.urandom(ids.ENTROPY_BYTES))


def claimed(**changes: Any) -> ClaimedDelivery:
    """A claimed delivery, first attempt, of now."""
    receipt = changes.get("receipt_id", new_id())
    fields: dict[str, Any] = {
        "id": ids.delivery_id(receipt, os.urandom(ids.SIBLING_BYTES)),
        "lease_token": new_id(),
        "receipt_id": receipt,
        "endpoint_id": new_id(),
        "endpoint_revision": 1,
        "sign_with_previous": False,
        "attempt": 1,
        "generation": 0,
        "generation_attempt": 1,
        "generation_age": 0.0,
        "claimed_at": datetime.now(UTC),
        "event_id": "evt_1",
        "type": "order.paid",
        "received_at": datetime.now(UTC),
        "position": JournalPosition(6, 1),
        "content_type": "application/json",
        "payload": PAYLOAD,
        "payload_sha256": hashlib.sha256(PAYLOAD).digest(),
        "forwarded": (),
        "hops": 0,
    }
    return ClaimedDelivery(**{**fields, **changes})


def destination(**changes: Any) -> Destination:
    """An endpoint on loopback with Relay's own signature."""
    fields: dict[str, Any] = {
        "endpoint_id": new_id(),
        "tenant": "acct_default",
        "revision": 1,
        "name": "ledger-writer",
        "url": "http://127.0.0.1:9099/ok",
        "transport": Transport.HTTP,
        "signature": SignatureProfile.RELAY,
        "ack": AckMode.RESPONSE,
        "secret": Secret("whsec_" + "A" * 43 + "="),
        "previous_secret": None,
        "headers": (),
        "retry": DEFAULT,
        "timeout_seconds": None,
    }
    return Destination(**{**fields, **changes})
