"""Dead letters as JSON: the filter that bulk calls take as a body, and what clients get to see.

Owns the fields. A filter knows its members and takes no null: whoever misspells one, or leaves one unset by accident,
must not be taken to mean all dead letters. Invariant: a filter means in a body what it means in a query.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from relay.api.fields import DeliveryText, EndpointText, Instant, ReceiptText, document_without_null, refuse_null
from relay.api.filters import CONSUMER, TYPE, Consumer, TypePattern
from relay.api.filters import Instant as InstantGiven
from relay.domain.delivery import DeadReason
from relay.domain.receipt import Boundary
from relay.store.filters import DeadLetterFilter

USUAL_LIMIT = 1_000
LARGEST_LIMIT = 10_000


class DeadLettersWanted(BaseModel):
    """Which dead letters a bulk call is about; without any filter, all of them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=document_without_null())

    consumer: Consumer | None = Field(None, description=CONSUMER)
    reason: DeadReason | None = Field(None, description="Dead for this reason.")
    type: TypePattern | None = Field(None, description=TYPE)
    since: InstantGiven | None = Field(None, description="Dead since this instant (RFC 3339) or later.")
    dry_run: Annotated[bool, Field(strict=True)] = Field(False, description="Only count them.")
    limit: Annotated[int, Field(strict=True, ge=1, le=LARGEST_LIMIT)] = Field(
        USUAL_LIMIT, description="How many one call is about, at most; the answer's `more` tells whether to call again."
    )

    cursor: Annotated[str, Field(strict=True)] | None = Field(
        None, description="Where an earlier call with this filter ended: its `next_cursor`."
    )

    @field_validator("consumer", "reason", "type", "since", "cursor", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        return refuse_null(value)

    def filter(self) -> DeadLetterFilter:
        """The filter as the store takes it."""
        return DeadLetterFilter(consumer=self.consumer, reason=self.reason, type=self.type, since=self.since)


class DeadLettersCounted(BaseModel):
    """How many dead letters a call was about, or would be, and whether there are more of them."""

    dry_run: bool
    count: int
    more: bool
    next_cursor: str | None = Field(description="Where the next call goes on, as its `cursor`.")


class DeadLetterShown(BaseModel):
    """What waits for a person. An event that no endpoint wanted (`no_route`) has no delivery and no consumer."""

    receipt_id: ReceiptText
    delivery_id: DeliveryText | None
    endpoint_id: EndpointText | None
    consumer: str | None
    type: str
    event_id: str
    reason: DeadReason
    boundary: Boundary
    last_error: str | None
    attempts: int
    display_url: str | None = Field(description="What the last attempt was sent to.")
    dead_at: Instant


class DeadLetterPage(BaseModel):
    """A page of dead letters, newest first."""

    data: list[DeadLetterShown]
    next_cursor: str | None
