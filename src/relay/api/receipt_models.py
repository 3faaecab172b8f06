"""Receipts, deliveries and attempts as JSON.

Owns the fields; what they say is worked out in `receipt_views`. Invariant: none holds a payload or a credential.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from relay.api.fields import (
    DeliveryText,
    EndpointText,
    Instant,
    ReceiptText,
    document_without_null,
    refuse_null,
)
from relay.api.filters import CONSUMER, Consumer
from relay.domain.delivery import DeadReason
from relay.domain.outcome import OutcomeClass
from relay.domain.receipt import Boundary, ReceiptOutcome, TimelineWhat

Status = Literal["pending", "in_flight", "delivered", "dead"]
"""What users see of a delivery's status."""


class DeliveryShown(BaseModel):
    """An event owed to one endpoint."""

    id: DeliveryText
    endpoint_id: EndpointText
    consumer: str
    status: Status
    attempts: int = Field(description="How many were made, over all generations.")
    generation: int
    acked_at: Instant | None
    next_attempt_at: Instant | None = Field(description="When it is due; null where nothing says when its lane opens.")
    waiting_for: str | None = Field(description="null, `retry`, `ack`, or the gate that is closed.")
    reason: DeadReason | None = Field(description="Why it is a dead letter.")
    boundary: Boundary = Field(description="The handoff that it has to pass next, or where it ended.")
    last_error: str | None
    redriven_at: Instant | None = Field(description="When it was last sent again, on demand or for want of an ack.")
    discarded_at: Instant | None = Field(description="When a person gave this dead letter up.")


class DeliveryListed(DeliveryShown):
    """An event owed to one endpoint, with its receipt."""

    receipt_id: ReceiptText


class DeliveryPage(BaseModel):
    """A page of what was and is owed to an endpoint, newest first."""

    data: list[DeliveryListed]
    next_cursor: str | None


class Moment(BaseModel):
    """Something that happened; `at_ms` counts from the arrival of the request."""

    boundary: Boundary
    what: TimelineWhat
    at_ms: float
    consumer: str | None


class ReceiptShown(BaseModel):
    """What became of an event."""

    receipt_id: ReceiptText
    event_id: str
    type: str
    schema_: str | None = Field(serialization_alias="schema")
    tenant: str
    source: str
    received_at: Instant
    journal_pos: str
    content_type: str
    payload_sha256: str
    payload_bytes: int
    rules_version: int
    state: Literal["open", "closed"] = Field(
        description="`open` until everything that is owed is acked or given up, then `closed`."
    )
    outcome: ReceiptOutcome | None
    reason: DeadReason | None = Field(description="`no_route` where no endpoint wanted the event.")
    closed_at: Instant | None
    delivery_count: int = Field(description="How many there are; a list shows the first 100 of each receipt.")
    discarded: int = Field(description="How many dead letters of it a person gave up.")
    deliveries: list[DeliveryShown]
    timeline: list[Moment]


class ReceiptPage(BaseModel):
    """A page of receipts, newest first."""

    data: list[ReceiptShown]
    next_cursor: str | None


class ReceiptToRedrive(BaseModel):
    """To whom an event is sent again: to everybody who has not acked it, or to one alone."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=document_without_null())

    consumer: Consumer | None = Field(None, description=f"To this endpoint alone. {CONSUMER}")

    @field_validator("consumer", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        return refuse_null(value)


class RedrivenShown(BaseModel):
    """A delivery that is sent again."""

    id: DeliveryText
    endpoint_id: EndpointText
    consumer: str
    generation: int = Field(description="How many times it was sent again; 0 for an event routed anew.")


class ReceiptRedriven(BaseModel):
    """What is sent again of an event; empty where nothing was left to send."""

    receipt_id: ReceiptText
    redriven: list[RedrivenShown]


class AckGiven(BaseModel):
    """What is acked of an event: one delivery, by its id or by its consumer."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=document_without_null())

    delivery_id: DeliveryText | None = Field(None, description="The `Relay-Delivery-Id` that came with it.")
    consumer: Consumer | None = Field(None, description=f"What is owed to this endpoint. {CONSUMER}")

    @field_validator("delivery_id", "consumer", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        return refuse_null(value)

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.delivery_id is None) == (self.consumer is None):
            raise ValueError("either a delivery_id or a consumer must be given")
        return self


class AckShown(BaseModel):
    """A delivery that is acked, and how its receipt stands."""

    receipt_id: ReceiptText
    delivery_id: DeliveryText
    endpoint_id: EndpointText
    consumer: str
    acked_at: Instant = Field(description="When it was acked first.")
    state: Literal["open", "closed"]
    outcome: ReceiptOutcome | None


class AttemptShown(BaseModel):
    """One try, or (`deferred`) one wait behind a closed gate, which has the number of the last try and is told when the
    gate has opened. Times are in milliseconds."""

    attempt: int
    generation: int
    at: Instant
    outcome_class: OutcomeClass
    reason: str | None
    deferred_for_ms: int | None
    status_code: int | None
    error_class: str | None
    snippet: str | None
    wait_ms: float | None
    connect_ms: float | None
    send_ms: float | None
    first_byte_ms: float | None
    total_ms: float | None
    display_url: str | None


class DeliveryDetail(BaseModel):
    """One delivery with every attempt, the first one first."""

    id: DeliveryText
    receipt_id: ReceiptText
    endpoint_id: EndpointText
    consumer: str
    status: Status
    attempt_count: int
    generation: int
    acked_at: Instant | None
    next_attempt_at: Instant | None
    waiting_for: str | None
    reason: DeadReason | None
    boundary: Boundary
    last_error: str | None
    redriven_at: Instant | None
    discarded_at: Instant | None
    attempts: list[AttemptShown]
