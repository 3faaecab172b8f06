"""The envelope: what is fixed about an event once it is journaled.

Owns the shape and the text form of a journal position. The payload is bytes and stays bytes: it is hashed, stored,
signed and sent as it came. Invariant: nothing in an envelope changes after the append.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

PARTITIONS = 16
"""How many numbered journal partitions there are; a tenant keeps to one."""

_POSITION = re.compile(r"p([0-9]{2}):([1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """A place in the journal: partition (0–15) and gapless number (from 1), assigned at commit."""

    partition: int
    number: int

    def __str__(self) -> str:
        return f"p{self.partition:02d}:{self.number}"

    @classmethod
    def parse(cls, text: str) -> JournalPosition:
        """Read `p07:18442913`. Raises `ValueError` for anything else."""
        match = _POSITION.fullmatch(text)
        if match is None or int(match[1]) >= PARTITIONS:
            raise ValueError("a journal position looks like p07:18442913")
        return cls(int(match[1]), int(match[2]))


class Envelope(NamedTuple):
    """An event as the gateway wraps it, before the journal gives it a position.

    `received_at` is the gateway's clock in UTC; `checked_us` and `assigned_us` are microseconds from the request's
    arrival until it was checked and until it had its receipt id. `forwarded` holds headers that travel on to each
    attempt unchanged in meaning (`traceparent`, `tracestate`, `ce-*`), names in lower case; `hops` counts the relays
    that the event went through before this one. A tuple, since one is made per event.
    """

    receipt_id: UUID
    event_id: str
    type: str
    schema: str | None
    tenant: str
    source: str
    received_at: datetime
    content_type: str
    payload: bytes
    payload_sha256: bytes
    forwarded: tuple[tuple[str, str], ...] = ()
    hops: int = 0
    checked_us: int = 0
    assigned_us: int = 0
