"""The 202: what a sender learns about its event.

Owns the wording. The journal position is the one part that the append itself assigns, so the body is made in two
pieces around it, and the same two pieces are stored for later requests of the same name. Invariant: a replay's body is
the first answer's, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

import msgspec

from relay.domain import ids
from relay.domain.envelope import Envelope
from relay.domain.routing import Rule
from relay.store.barrier import Durability
from relay.web import instants
from relay.web.answers import JSON, Answer

REPLAY = (b"relay-idempotent-replay", b"true")


def accepted(body: bytes) -> Answer:
    """The answer to a new event."""
    return Answer(202, JSON, body)


def replayed(body: bytes) -> Answer:
    """The answer to a request that repeats an earlier one."""
    return Answer(202, JSON, body, (REPLAY,))


def head(envelope: Envelope) -> bytes:
    """The body up to the journal position."""
    return (
        f'{{"receipt_id":"{ids.write(ids.RECEIPT, envelope.receipt_id)}",'
        f'"event_id":{_text(envelope.event_id)},"journal_pos":"'
    ).encode()


def tail(received_at: datetime, durability: Durability, deliveries: Iterable[tuple[UUID, str]]) -> bytes:
    """The body from behind the journal position: `deliveries` pairs each id with what `target` made."""
    owed = ",".join([f'{{"id":"{delivery}",{about}' for delivery, about in deliveries])
    return (
        f'","received_at":"{instants.write(received_at)}",'
        f'"durability":{{"confirmed":{durability.confirmed},"of":{durability.of}}},"deliveries":[{owed}]}}'
    ).encode()


def target(rule: Rule) -> str:
    """What the answer says of the endpoint that a delivery is for; the same for every event that it gets."""
    return f'"endpoint_id":"{ids.write(ids.ENDPOINT, rule.endpoint_id)}","consumer":{_text(rule.consumer)}}}'


def _text(value: str) -> str:
    return msgspec.json.encode(value).decode()
