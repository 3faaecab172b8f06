"""A delivery's life: the statuses, the table of moves between them, and the record that a claim hands out.

Owns the transition table (`MOVES`) from which the diagram in the documentation is drawn. Invariant: every write that
changes a status is one of these moves, and each move after a claim compares the lease token made at that claim.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from relay.domain.envelope import JournalPosition


class DeliveryStatus(StrEnum):
    """Where a delivery stands. `void` is never shown: its event was not acknowledged to its sender."""

    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    DELIVERED = "delivered"
    DEAD = "dead"
    VOID = "void"


class DeliveryMove(StrEnum):
    """What moves a delivery from one status to the next."""

    CLAIM = "claim"
    HAND_BACK = "hand_back"
    REAP = "reap"
    RECEIVE = "receive"
    """A 2xx came; the endpoint's explicit ack is still to come."""
    ACK = "ack"
    RETRY = "retry"
    BURY = "bury"
    REDRIVE = "redrive"
    VOID = "void"
    REVIVE = "revive"


MOVES: dict[tuple[DeliveryStatus, DeliveryMove], DeliveryStatus] = {
    (DeliveryStatus.PENDING, DeliveryMove.CLAIM): DeliveryStatus.IN_FLIGHT,
    (DeliveryStatus.IN_FLIGHT, DeliveryMove.HAND_BACK): DeliveryStatus.PENDING,
    (DeliveryStatus.IN_FLIGHT, DeliveryMove.REAP): DeliveryStatus.PENDING,
    (DeliveryStatus.IN_FLIGHT, DeliveryMove.RECEIVE): DeliveryStatus.IN_FLIGHT,
    (DeliveryStatus.IN_FLIGHT, DeliveryMove.ACK): DeliveryStatus.DELIVERED,
    (DeliveryStatus.IN_FLIGHT, DeliveryMove.RETRY): DeliveryStatus.PENDING,
    (DeliveryStatus.IN_FLIGHT, DeliveryMove.BURY): DeliveryStatus.DEAD,
    (DeliveryStatus.IN_FLIGHT, DeliveryMove.REDRIVE): DeliveryStatus.PENDING,
    (DeliveryStatus.PENDING, DeliveryMove.BURY): DeliveryStatus.DEAD,
    # A person who asks for it need not wait for the next retry; and may have what was delivered sent once more.
    (DeliveryStatus.PENDING, DeliveryMove.REDRIVE): DeliveryStatus.PENDING,
    (DeliveryStatus.DELIVERED, DeliveryMove.REDRIVE): DeliveryStatus.PENDING,
    # An explicit ack is proof whenever it comes: before the retry that a lost answer caused, or after giving up.
    (DeliveryStatus.PENDING, DeliveryMove.ACK): DeliveryStatus.DELIVERED,
    (DeliveryStatus.DEAD, DeliveryMove.ACK): DeliveryStatus.DELIVERED,
    (DeliveryStatus.DEAD, DeliveryMove.REDRIVE): DeliveryStatus.PENDING,
    (DeliveryStatus.PENDING, DeliveryMove.VOID): DeliveryStatus.VOID,
    # Claimed but unsent: what is not proved to be on the quorum is not sent.
    (DeliveryStatus.IN_FLIGHT, DeliveryMove.VOID): DeliveryStatus.VOID,
    (DeliveryStatus.VOID, DeliveryMove.REVIVE): DeliveryStatus.PENDING,
}


class IllegalMove(ValueError):
    """The move does not exist from that status."""


def move(status: DeliveryStatus, by: DeliveryMove) -> DeliveryStatus:
    """The status after the move. Raises `IllegalMove` where the table has none."""
    try:
        return MOVES[status, by]
    except KeyError:
        raise IllegalMove(f"a delivery that is {status} cannot {by}") from None


class DeadReason(StrEnum):
    """Why a delivery waits for a person."""

    EXHAUSTED = "exhausted"
    PERMANENT_FAILURE = "permanent_failure"
    REFUSED = "refused"
    NO_ROUTE = "no_route"
    TOO_LARGE = "too_large"
    ENDPOINT_REMOVED = "endpoint_removed"


class ClaimedDelivery(NamedTuple):
    """One delivery in the hands of a dispatcher, with everything of its envelope that an attempt sends. A tuple, since
    it is made each time.

    `attempt` is the number of the attempt that this claim is for (from 1, over the delivery's whole life);
    `generation_attempt` counts within the generation and is what retry policies bound. `generation_age` is the seconds
    from the generation's first attempt to this claim, by the database's clock. `sign_with_previous` says whether a
    rotated secret is still in its overlap. `claimed_at` is the database's instant of the claim.
    """

    id: UUID
    lease_token: UUID
    receipt_id: UUID
    endpoint_id: UUID
    endpoint_revision: int
    sign_with_previous: bool
    attempt: int
    generation: int
    generation_attempt: int
    generation_age: float
    claimed_at: datetime
    event_id: str
    type: str
    received_at: datetime
    position: JournalPosition
    content_type: str
    payload: bytes
    payload_sha256: bytes
    forwarded: tuple[tuple[str, str], ...]
    hops: int
