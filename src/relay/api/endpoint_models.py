"""Endpoints as JSON: what a client may set, and what it gets to see.

Owns the fields, their forms and their bounds; bounds that depend on settings are in `endpoint_rules`. Unknown fields
are refused, so that a misspelt one is not taken for a wish that came true. Invariant: no model but the two that hand
out a new secret has one in it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from relay.api.fields import EndpointText, Instant, document_without_null, refuse_null
from relay.domain.endpoint import AckMode, Endpoint, EndpointState, SignatureProfile, Transport
from relay.domain.headers import check_custom_headers, shown_headers
from relay.domain.ids import ENDPOINT, write
from relay.domain.routing import check_pattern
from relay.web import instants

LONGEST_NAME = 100
MOST_PATTERNS = 100
MOST_PER_SECOND = 100_000
LEAST_PER_SECOND = 0.001
LEAST_TIMEOUT_SECONDS = 0.05
_DAY = 86_400.0


def _check_name(text: str) -> str:
    if text != text.strip() or not text.isprintable():
        raise ValueError("a name is printable text, without spaces around it")
    return text


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    return dict(check_custom_headers(headers))


def _once_each(patterns: list[str]) -> list[str]:
    return list(dict.fromkeys(patterns))


Text = Annotated[str, Field(strict=True)]
Name = Annotated[Text, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(_check_name)]
Patterns = Annotated[
    list[Annotated[Text, AfterValidator(check_pattern)]],
    Field(min_length=1, max_length=MOST_PATTERNS),
    AfterValidator(_once_each),
]
Rate = Annotated[float, Field(strict=True, ge=LEAST_PER_SECOND, le=MOST_PER_SECOND)]
Burst = Annotated[int, Field(strict=True, ge=1, le=MOST_PER_SECOND)]
InFlight = Annotated[int, Field(strict=True, ge=1)]
CustomHeaders = Annotated[dict[Text, Text], AfterValidator(_check_headers)]
Timeout = Annotated[float, Field(strict=True, ge=LEAST_TIMEOUT_SECONDS)]


class RetryRule(BaseModel):
    """When deliveries to this endpoint are tried again: a preset, or any of the four numbers over the defaults."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=document_without_null())

    preset: Literal["patient"] | None = None
    max_attempts: Annotated[int, Field(strict=True, ge=1, le=1000)] | None = None
    base_seconds: Annotated[float, Field(strict=True, ge=0.001, le=_DAY)] | None = None
    max_seconds: Annotated[float, Field(strict=True, ge=0.001, le=7 * _DAY)] | None = None
    window_seconds: Annotated[float, Field(strict=True, ge=0.001, le=90 * _DAY)] | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        return refuse_null(value)

    @model_validator(mode="after")
    def _preset_alone(self) -> RetryRule:
        if not self.model_fields_set:
            raise ValueError("name a preset or at least one number, or use null for the defaults")
        if self.preset is not None and len(self.model_fields_set) > 1:
            raise ValueError("a preset stands alone")
        if self.base_seconds is not None and self.max_seconds is not None and self.base_seconds > self.max_seconds:
            raise ValueError("base_seconds is at most max_seconds")
        return self


class EndpointNew(BaseModel):
    """A new endpoint. Only `url` must be given."""

    model_config = ConfigDict(extra="forbid")

    url: Text = Field(
        description="Where events are sent; https unless the installation allows otherwise. A chat is"
        " `telegram://` and its number or a channel's @name, or `discord://` and the webhook's number."
    )
    name: Name | None = Field(None, description="Unique in the tenant; made from the url's host if left out.")
    transport: Transport = Field(Transport.HTTP, description="What the url's scheme says, if it is left out.")
    event_types: Patterns = Field(["*"], description="Types, `invoice.*` for all below, `*` for every type.")
    rate_per_second: Rate = Field(
        10.0,
        description="Sustained requests per second over all dispatchers together.",
    )
    burst: Burst = Field(20, description="Requests that may go at once after a pause.")
    max_in_flight: InFlight | None = Field(
        None,
        description="Requests under way at once, per dispatcher process. If it is left out"
        " `RELAY_ENDPOINT_CONCURRENCY`, 32 by default; 1 for a chat.",
    )
    retry: RetryRule | None = Field(None, description="When to try again; null for the installation's rule.")
    ack: AckMode = Field(
        AckMode.RESPONSE,
        description="What proves that an event was processed: the 2xx itself (`response`), or a call to"
        " `POST /v1/receipts/{id}/acks` after it (`explicit`).",
    )
    signature: SignatureProfile = Field(
        SignatureProfile.RELAY, description="Whose library verifies the requests; `none` for a chat."
    )
    headers: CustomHeaders = Field({}, description="Further request headers, such as Authorization; none for a chat.")
    secret: SecretStr | None = Field(
        None,
        description="The signing secret; a good one is made if left out. For a chat the bot's or the webhook's token,"
        " which must be given.",
    )
    timeout_seconds: Timeout | None = Field(
        None,
        description="For a whole attempt, and for its longest silence; null for the installation's, usually 10 and 5.",
    )


class EndpointChange(BaseModel):
    """What to change of an endpoint; what is left out stays. Only `retry` and `timeout_seconds` can become null."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=document_without_null("retry", "timeout_seconds"))

    url: Text | None = None
    name: Name | None = None
    event_types: Patterns | None = None
    rate_per_second: Rate | None = None
    burst: Burst | None = None
    max_in_flight: InFlight | None = None
    retry: RetryRule | None = None
    ack: AckMode | None = None
    signature: SignatureProfile | None = None
    headers: CustomHeaders | None = None
    timeout_seconds: Timeout | None = None

    @field_validator(
        "url", "name", "event_types", "rate_per_second", "burst", "max_in_flight", "ack", "signature", "headers",
        mode="before",
    )  # fmt: skip
    @classmethod
    def _not_null(cls, value: object) -> object:
        return refuse_null(value)


class EndpointShown(BaseModel):
    """An endpoint."""

    id: EndpointText
    name: str
    url: str
    transport: Transport
    event_types: list[str]
    rate_per_second: float
    burst: int
    max_in_flight: int
    retry: dict[str, Any] | None
    ack: AckMode
    signature: SignatureProfile
    headers: dict[str, str] = Field(
        description="With `***` for what may be a credential; sent back so, the value stays what it is."
    )
    timeout_seconds: float | None
    state: EndpointState
    state_reason: str | None
    closed_by: str | None = Field(description="The gate that keeps deliveries waiting now, as in `waiting_for`.")
    opens_at: Instant | None = Field(description="When that gate opens; null where time alone does not open it.")
    previous_secret_expires_at: Instant | None
    created_at: Instant
    updated_at: Instant

    @classmethod
    def of(cls, endpoint: Endpoint) -> EndpointShown:
        """The endpoint as its tenant sees it."""
        return cls(**_shown(endpoint))


class EndpointCreated(EndpointShown):
    """A new endpoint with its secret, which is shown this once."""

    secret: str


class SecretGiven(BaseModel):
    """The new token of a chat endpoint. For any other, the new secret is made here."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=document_without_null())

    secret: SecretStr | None = Field(None, description="The bot's or the webhook's new token.")

    @field_validator("secret", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        return refuse_null(value)


class SecretRotated(BaseModel):
    """The new secret, shown this once. Until the instant given, requests are signed with the old one as well; a chat's
    old token counts no more."""

    id: EndpointText
    secret: str
    previous_secret_expires_at: Instant | None


class EndpointPage(BaseModel):
    """A page of endpoints, newest first."""

    data: list[EndpointShown]
    next_cursor: str | None


def created(endpoint: Endpoint, secret: str) -> EndpointCreated:
    """The answer to a creation."""
    return EndpointCreated(**_shown(endpoint), secret=secret)


def _shown(endpoint: Endpoint) -> dict[str, Any]:
    config = endpoint.config
    return {
        "id": write(ENDPOINT, endpoint.id),
        "name": config.name,
        "url": config.url,
        "transport": config.transport,
        "event_types": list(config.event_types),
        "rate_per_second": config.rate_per_second,
        "burst": config.burst,
        "max_in_flight": config.max_in_flight,
        "retry": config.retry,
        "ack": config.ack,
        "signature": config.signature,
        "headers": shown_headers(config.headers),
        "timeout_seconds": config.timeout_seconds,
        "state": endpoint.state,
        "state_reason": endpoint.state_reason,
        "closed_by": endpoint.closed_by,
        "opens_at": instants.write_optional(endpoint.opens_at),
        "previous_secret_expires_at": instants.write_optional(endpoint.previous_secret_expires_at),
        "created_at": instants.write(endpoint.created_at),
        "updated_at": instants.write(endpoint.updated_at),
    }
