"""A backlog to drain: endpoints, and events appended the way the gateway appends them.

Owns the shape of the synthetic events. Invariant: the rows are those that posts over HTTP would have made.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from relay.domain import ids
from relay.domain.endpoint import EndpointConfig
from relay.domain.envelope import Envelope
from relay.domain.secret import Secret
from relay.store.database import Database
from relay.store.endpoints import Endpoints
from relay.store.journal import Addition, Journal
from relay.store.queue import Queue
from relay.store.vault import Vault

TENANT = "acct_default"
SOURCE = "anonymous"
EVENT_TYPE = "bench.event"
GROUP = 500
BURIED = 5_000


@dataclass(frozen=True, slots=True)
class Shape:
    """How many events of how many payload bytes, spread over how many endpoints in turn (`fan_out` deliveries each)."""

    events: int
    endpoints: int
    payload_bytes: int
    fan_out: int = 1

    @property
    def deliveries(self) -> int:
        """How many are owed."""
        return self.events * self.fan_out


def event_type(place: int) -> str:
    """The type of events that are for one endpoint alone, the one in this place."""
    return f"{EVENT_TYPE}.{place}"


def payload(size: int, event_type: str = EVENT_TYPE) -> bytes:
    """A JSON event of exactly `size` bytes (at least 40)."""
    head = b'{"type":"' + event_type.encode() + b'","data":"'
    return head + b"x" * (size - len(head) - 2) + b'"}'


def numbered(body: bytes, number: int) -> bytes:
    """The same event, as long as before, unlike that of each other number below 10⁸."""
    end = b'%08d"}' % number
    return body[: -len(end)] + end


def new_id() -> UUID:
    """An id of now."""
    return ids.uuid7(time.time_ns() // 1_000_000, os.urandom(ids.ENTROPY_BYTES))


async def add_endpoints(
    database: Database,
    vault: Vault,
    urls: Sequence[str],
    *,
    name: str,
    max_in_flight: int,
    of_a_type: int | None = None,
) -> list[UUID]:
    """Create an endpoint per url without any limit but `max_in_flight`, for all events or so many for each type."""
    store = Endpoints(database, vault)
    made = []
    for place, url in enumerate(urls):
        config = EndpointConfig(
            name=f"{name}-{place}",
            url=url,
            event_types=(event_type(place // of_a_type) if of_a_type else EVENT_TYPE,),
            rate_per_second=100_000,
            burst=100_000,
            max_in_flight=max_in_flight,
        )
        secret = Secret("whsec_" + "A" * 43 + "=")
        made.append((await store.create(TENANT, new_id(), config, secret_id=new_id(), secret=secret)).id)
    return made


async def remove_endpoints(database: Database, vault: Vault) -> None:
    """Remove every endpoint there is and what it is owed, so that nothing else is routed or claimed."""
    store = Endpoints(database, vault)
    while found := await store.list(TENANT, limit=100):
        for endpoint in found:
            await store.remove(TENANT, endpoint.id)
    while await Queue(database, database).bury_removed(batch=BURIED):
        pass


async def fill(database: Database, vault: Vault, endpoints: Sequence[UUID], shape: Shape) -> None:
    """Append the events, each owed to the next endpoints in turn."""
    snapshot = await Endpoints(database, vault).snapshot()
    journal = Journal(database, key_retention_seconds=86_400)
    body = payload(shape.payload_bytes)
    digest = hashlib.sha256(body).digest()
    at_once = max(1, GROUP // shape.fan_out)
    for start in range(0, shape.events, at_once):
        numbers = range(start, min(start + at_once, shape.events))
        group = [_addition(_owed(endpoints, n, shape), body, digest, snapshot.partitions[TENANT]) for n in numbers]
        await journal.append(snapshot.versions, group)


def _owed(endpoints: Sequence[UUID], number: int, shape: Shape) -> list[UUID]:
    first = number * shape.fan_out
    return [endpoints[place % len(endpoints)] for place in range(first, first + shape.fan_out)]


def _addition(endpoints: Sequence[UUID], body: bytes, digest: bytes, partition: int) -> Addition:
    receipt = new_id()
    envelope = Envelope(
        receipt_id=receipt,
        event_id=ids.write(ids.EVENT, receipt),
        type=EVENT_TYPE,
        schema=None,
        tenant=TENANT,
        source=SOURCE,
        received_at=datetime.fromtimestamp(ids.unix_ms(receipt) / 1000, UTC),
        content_type="application/json",
        payload=body,
        payload_sha256=digest,
    )
    owed = zip(ids.delivery_ids(receipt, len(endpoints), os.urandom), endpoints, strict=True)
    return Addition(envelope, partition, None, tuple(owed))
