"""The envelope: what a request and one event of it become before the journal.

Owns the ids, the digest and the times of an event. Invariant: everything in an envelope is settled here, once, and what
was sent under an idempotency key has its fingerprint.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import NamedTuple

from relay.domain import ids
from relay.domain.ambient import Ambient
from relay.domain.envelope import Envelope
from relay.domain.idempotency import fingerprint
from relay.domain.schema import SchemaName
from relay.gateway.submission import Checked, Submission
from relay.web.credentials import Caller

CHANCE_BYTES = ids.ENTROPY_BYTES
"""How many random bytes one event takes."""

Forwarded = tuple[tuple[str, str], ...]


class Origin(NamedTuple):
    """What all events of one request have in common.

    `received_at` is the gateway's clock; `arrived` and `checked`, when the request came and when it had been checked,
    are seconds of the process's monotonic one.
    """

    sender: Caller
    received_at: datetime
    arrived: float
    checked: float
    hops: int


class Posted(NamedTuple):
    """One event as its sender posted it; a `key` makes it repeatable, `wanted` names a schema for it.

    Without an `event_id` it gets one that is its receipt's id under another prefix: it is found by that without an
    index of its own.
    """

    type: str
    event_id: str | None
    key: str | None
    content_type: str
    payload: bytes
    forwarded: Forwarded
    wanted: SchemaName | None = None


def wrap(origin: Origin, posted: Posted, checked: Checked, chance: bytes, ambient: Ambient) -> Submission:
    """The event in its envelope, ready to be appended; `chance` is `CHANCE_BYTES` random bytes."""
    received_at = origin.received_at
    made_ms = int(received_at.timestamp()) * 1000 + received_at.microsecond // 1000
    receipt_id = ids.uuid7(made_ms, chance)
    sha256 = hashlib.sha256(posted.payload).digest()
    assigned = ambient.monotonic()
    sender = origin.sender
    envelope = Envelope(
        receipt_id=receipt_id,
        event_id=posted.event_id or ids.write(ids.EVENT, receipt_id),
        type=posted.type,
        schema=checked.schema,
        tenant=sender.tenant,
        source=sender.source,
        received_at=received_at,
        content_type=posted.content_type,
        payload=posted.payload,
        payload_sha256=sha256,
        forwarded=posted.forwarded,
        hops=origin.hops,
        checked_us=_microseconds(origin.checked - origin.arrived),
        assigned_us=_microseconds(assigned - origin.arrived),
    )
    key = posted.key
    return Submission(
        envelope,
        sender,
        key,
        None if key is None else fingerprint(posted.type, sha256),
        assigned,
        wanted=posted.wanted,
        checked_by=checked.by,
    )


def _microseconds(seconds: float) -> int:
    # the column is an integer, and no request that took longer has anything to tell
    return min(int(seconds * 1e6), 2**31 - 1)
