"""The record of one attempt: what was tried, what came of it, and what it does to its delivery.

Owns the shapes that the dispatcher hands to the store and to whoever tells of it. Invariant: the record names the claim
it belongs to (token and instant), so it can be written twice and can never move a delivery that somebody else has
claimed since.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from relay.domain.delivery import DeadReason, DeliveryMove
from relay.domain.outcome import LaneNotice, OutcomeClass, Verdict
from relay.domain.sending import ErrorClass, Phases

WORDS_LIMIT = 200
"""Characters of a refusal's own words that stand beside its status."""


class AttemptRecord(NamedTuple):
    """One finished attempt. A tuple, since one is made per delivery.

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


class AttemptFact(NamedTuple):
    """What is told of one recorded attempt. A tuple, since one is made per delivery: it costs a third of a frozen
    dataclass.

    Its time by the dispatcher's clock: `claim_seconds` took the claim that it was in, `gate_seconds` run from there
    until the sender had it (the quorum's proof, the wait for a permit), `send_seconds` to the end of the attempt, and
    `persist_seconds` until its outcome was recorded. `total_seconds` are since the event's acceptance, by the
    database's clock; `delivery_seconds` are the same where this attempt was the ack, else None.

    `forwarded` has the trace that the event came with, and `trace_entropy` made the span of the request from it (empty
    where there was no request); `display_url` is where that went, without credentials.
    """

    delivery_id: UUID
    receipt_id: UUID
    event_id: str
    event_type: str
    tenant: str
    consumer: str
    attempt: int
    generation: int
    outcome_class: OutcomeClass
    verdict: Verdict
    status_code: int | None
    error_class: ErrorClass | None
    claim_seconds: float
    gate_seconds: float
    send_seconds: float
    persist_seconds: float
    total_seconds: float
    delivery_seconds: float | None
    forwarded: tuple[tuple[str, str], ...]
    trace_entropy: bytes
    display_url: str


class AckFact(NamedTuple):
    """A delivery that was acked by a call of its own, so many seconds after the acceptance of its event."""

    delivery_id: UUID
    receipt_id: UUID
    consumer: str
    seconds: float


def snippet_text(body: bytes) -> str:
    """The head of a response body as text that any database and page can hold.

    The declared charset is not believed: bytes are read as UTF-8, what is not becomes U+FFFD, and NUL is left out.
    """
    return body.decode("utf-8", "replace").replace("\x00", "")


def words_of(body: bytes) -> str:
    """What a refusal says for itself, on one line and cut; empty where that is a page for a browser, or no text."""
    text = " ".join(snippet_text(body).split())
    if text.startswith("<") or not text.isprintable():
        return ""
    return text if len(text) <= WORDS_LIMIT else f"{text[: WORDS_LIMIT - 1]}…"
