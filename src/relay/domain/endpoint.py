"""An endpoint's configuration: where to send, how to sign, how often, how long.

Owns the closed sets of choices and the limits on them. What an endpoint is *doing* (breaker, bucket, holds) is kept
apart, in `endpoint_state`. Invariant: a configuration that was accepted can be sent to without further checks of form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from relay.domain.backoff import RetryPolicy
from relay.domain.secret import Secret


class Transport(StrEnum):
    """How a delivery becomes a request."""

    HTTP = "http"
    TELEGRAM = "telegram"
    DISCORD = "discord"


class SignatureProfile(StrEnum):
    """Whose verification library the receiver uses."""

    RELAY = "relay"
    STANDARD = "standard"
    STRIPE = "stripe"
    GITHUB = "github"
    NONE = "none"


class AckMode(StrEnum):
    """What proves that the endpoint processed the event: its 2xx, or a call of its own."""

    RESPONSE = "response"
    EXPLICIT = "explicit"


class EndpointState(StrEnum):
    """Whether deliveries leave (`active`), or are held by a person (`paused`) or by the endpoint's own word
    that it is gone (`disabled`)."""

    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Destination:
    """What the dispatcher needs to know of an endpoint in order to send to it.

    `revision` grows with every change, so a destination can be kept until a claim names a newer one. `previous_secret`
    signs beside `secret` while a claim says that the overlap of a rotation still runs. `timeout_seconds` is None where
    the installation's total timeout counts.
    """

    endpoint_id: UUID
    tenant: str
    revision: int
    name: str
    url: str
    transport: Transport
    signature: SignatureProfile
    ack: AckMode
    secret: Secret
    previous_secret: Secret | None
    headers: tuple[tuple[str, str], ...]
    retry: RetryPolicy
    timeout_seconds: float | None


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """What a user chooses about an endpoint, already checked.

    `rate_per_second` and `burst` shape its token bucket; `max_in_flight` bounds its requests under way per dispatcher
    process. `retry` is None where the installation's policy counts, else the object that the user wrote, checked.
    """

    name: str
    url: str
    transport: Transport = Transport.HTTP
    event_types: tuple[str, ...] = ("*",)
    rate_per_second: float = 10.0
    burst: int = 20
    max_in_flight: int = 32
    timeout_seconds: float | None = None
    retry: dict[str, object] | None = None
    ack: AckMode = AckMode.RESPONSE
    signature: SignatureProfile = SignatureProfile.RELAY
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint as its tenant sees it; no secret in it. `closed_by` is the gate of its lane that is closed (a
    `DeferralReason`), None while deliveries leave, and `opens_at` when time opens it."""

    id: UUID
    tenant: str
    config: EndpointConfig
    state: EndpointState
    state_reason: str | None
    closed_by: str | None
    opens_at: datetime | None
    previous_secret_expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
