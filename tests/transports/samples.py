"""A destination and a delivery claimed for it, from which tests vary one thing at a time."""

import hashlib
from datetime import UTC, datetime
from uuid import UUID

from relay.domain.backoff import RetryPolicy
from relay.domain.delivery import ClaimedDelivery
from relay.domain.endpoint import AckMode, Destination, SignatureProfile, Transport
from relay.domain.envelope import JournalPosition
from relay.domain.signing import new_secret
from relay.domain.trace import TRACE_ENTROPY_BYTES

AT = 1_764_480_000
ENTROPY = bytes(range(TRACE_ENTROPY_BYTES))
BODY = b'{"b":1.0,"a":0.0,"esc":"\\u001B","e":1E400,"dup":1,"dup":2,"u":"\xc3\xa9"}\x00'

DESTINATION = Destination(
    endpoint_id=UUID(int=5),
    tenant="acct_default",
    revision=1,
    name="billing",
    url="https://example.com/hook?token=abc",
    transport=Transport.HTTP,
    signature=SignatureProfile.RELAY,
    ack=AckMode.RESPONSE,
    secret=new_secret(bytes(range(32))),
    previous_secret=new_secret(bytes(range(1, 33))),
    headers=(("Authorization", "Bearer a.b-c"), ("X-Api-Key", "k")),
    retry=RetryPolicy(max_attempts=12, base_seconds=2, max_seconds=300, window_seconds=1800, jitter=0.2),
    timeout_seconds=None,
)
CLAIMED = ClaimedDelivery(
    id=UUID("0197c0de-0000-7000-8000-000000000001"),
    lease_token=UUID(int=9),
    receipt_id=UUID("0197c0de-0000-7000-8000-000000000000"),
    endpoint_id=UUID(int=5),
    endpoint_revision=1,
    sign_with_previous=False,
    attempt=3,
    generation=1,
    generation_attempt=2,
    generation_age=4.5,
    claimed_at=datetime(2026, 11, 30, 12, 0, 1, tzinfo=UTC),
    event_id="order-4711",
    type="invoice.paid",
    received_at=datetime(2026, 11, 30, 12, 0, 0, 42_999, tzinfo=UTC),
    position=JournalPosition(7, 18_442_913),
    content_type="application/json",
    payload=BODY,
    payload_sha256=hashlib.sha256(BODY).digest(),
    forwarded=(),
    hops=2,
)
