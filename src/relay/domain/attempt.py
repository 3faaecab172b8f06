"""The record of one attempt: what was tried, what came of it, and what it does to its delivery.

Owns the shape that the dispatcher hands to the store. Invariant: the record names the claim it belongs to (token and
instant), so it can be written twice and can never move a delivery that somebody else has claimed since.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from relay.domain.delivery import DeadReason, DeliveryMove
from relay.domain.outcome import LaneNotice, OutcomeClass
from relay.domain.sending import ErrorClass, Phases


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One finished attempt.

    `move` is one of ACK, RECEIVE, RETRY (then `delay_seconds` counts) and BURY (then `dead_reason` is set). `reason`
    says in a few words why it was not an ack, for people; `snippet` is what `snippet_text` made of the body's head.
    `lane` is what the endpoint's lane learns, None where nothing was learned.
    """

    delivery_id: UUID
    lease_token: UUID
    receipt_id: UUID
    endpoint_id: UUID
    claimed_at: datetime
    attempt: int
    generation: int
    outcome_class: OutcomeClass
    move: DeliveryMove
    delay_seconds: float
    dead_reason: DeadReason | None
    reason: str | None
    status_code: int | None
    error_class: ErrorClass | None
    snippet: str
    phases: Phases
    display_url: str
    lane: LaneNotice | None = None


def snippet_text(body: bytes) -> str:
    """The head of a response body as text that any database and page can hold.

    The declared charset is not believed: bytes are read as UTF-8, what is not becomes U+FFFD, and NUL is left out.
    """
    return body.decode("utf-8", "replace").replace("\x00", "")
