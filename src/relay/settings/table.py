"""The one table of settings: each field of `Settings` is a row with its name, form, default and meaning.

Owns the rows and nothing that happens to them. A field's type is its kind's type, so the table and the
record cannot differ. Invariant: the variable of a field is `RELAY_` and the field's name in capitals,
`DATABASE_URL` excepted.
"""

# The calls in the defaults of `Settings` make dataclass fields, as `dataclasses.field` does.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from relay.domain.backoff import RetryPolicy
from relay.domain.breaker import BreakerPolicy
from relay.domain.secret import Secret
from relay.settings import kinds
from relay.settings.kinds import Bind, Kind, LogFormat, LogLevel, Network

T = TypeVar("T")

DAY = 86_400
MIB = 1_048_576


class Origin(StrEnum):
    """Where an effective value came from."""

    DEFAULT = "default"
    COMMAND_DEFAULT = "default of the command"
    FOLLOWS = "follows RELAY_ALLOW_PRIVATE_ENDPOINTS"
    ENVIRONMENT = "environment"
    FILE = "file that the environment names"
    COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class Row:
    """One setting. `default` is text as the environment would hold it, None for "unset"; `unset` says what
    that means.

    `private_default` is the default while private endpoints are allowed, for the settings that follow that
    switch.
    """

    field: str
    name: str
    kind: Kind[Any]
    default: str | None
    private_default: str | None
    unset: str
    about: str


def _field(kind: Kind[Any], default: str | None, private_default: str | None, unset: str, about: str) -> object:
    return field(
        metadata={
            "kind": kind,
            "default": default,
            "private_default": private_default,
            "unset": unset,
            "about": about,
        }
    )


def setting(kind: Kind[T], default: str, about: str, *, when_private: str | None = None) -> T:
    """A setting that always has a value."""
    return cast("T", _field(kind, default, when_private, "", about))


def optional(kind: Kind[T], unset: str, about: str) -> T | None:
    """A setting that may be absent; `unset` says what happens then."""
    return cast("T | None", _field(kind, None, None, unset, about))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything the environment decides. Durations are in the unit of their name; secrets travel as
    `Secret`."""

    database_url: Secret | None = optional(
        kinds.DATABASE_URL,
        "embedded server",
        "PostgreSQL 15 or newer. Several hosts with `target_session_attrs=read-write` follow a failover.",
    )
    database_pool: int = setting(
        kinds.whole(6, 1000),
        "9",
        "Database connections of each process, at most. Those of all workers must fit into the server's "
        "`max_connections`; the embedded server's follows from them.",
    )
    api_pooler_url: Secret | None = optional(
        kinds.DATABASE_URL,
        "as DATABASE_URL",
        "The same database through a pooler in transaction mode (PgBouncer), for the calls to a gateway's API alone.",
    )
    data_dir: Path = setting(kinds.PATH, ".relay", "Folder of the embedded server and its key; made if missing.")
    secret_keys: tuple[Secret, ...] | None = optional(
        kinds.SECRET_KEYS,
        "made in the data folder; required with DATABASE_URL",
        "Fernet keys that encrypt stored secrets, separated by commas, newest first. "
        "`relay secret-key` prints a new one.",
    )

    bind: Bind = setting(kinds.BIND, "127.0.0.1:8080", "Where the gateway listens.")
    metrics_bind: Bind = setting(
        kinds.BIND,
        "0.0.0.0:9091",
        "Where the dispatcher serves its metrics and health (`relay up`: 127.0.0.1:9091).",
    )
    testkit_bind: Bind = setting(kinds.BIND, "127.0.0.1:9099", "Where the testkit receiver listens.")
    shutdown_delay_secs: float = setting(
        kinds.decimal(0, 600),
        "0",
        "How long a gateway that was told to stop goes on accepting while `/readyz` says no, so that balancers take it"
        " out first. Whoever supervises it must wait for that much longer.",
    )
    workers: int = setting(kinds.whole(1, 64), "1", "Processes of each of gateway and dispatcher.")
    tls_cert: Path | None = optional(kinds.PATH, "plain HTTP", "Certificate chain of the gateway, PEM.")
    tls_key: Path | None = optional(kinds.PATH, "plain HTTP", "Private key of that certificate, PEM.")
    tls_client_ca: Path | None = optional(
        kinds.PATH,
        "no client certificates",
        "Authorities whose client certificates name a source, PEM.",
    )
    trusted_proxies: tuple[Network, ...] = setting(
        kinds.NETWORKS,
        "",
        "Proxies that end TLS for the gateway: what they say of a client's certificate (`Client-Cert`) is believed.",
    )

    max_payload_bytes: int = setting(
        kinds.whole(1, 64 * MIB),
        str(MIB),
        "Largest payload: a larger event is refused with 413, a stored one is not sent.",
    )
    max_batch_bytes: int = setting(kinds.whole(1, 256 * MIB), str(16 * MIB), "Largest body of a batch of events.")
    idempotency_retention_secs: float = setting(
        kinds.decimal(60, 90 * DAY),
        str(DAY),
        "How long an idempotency key is remembered, that of a signed request at least 15 minutes.",
    )
    journal_quorum: int = setting(
        kinds.whole(1, 9),
        "1",
        "Servers that must hold an event before its 202, the primary included.",
    )
    journal_timeout_ms: int = setting(
        kinds.whole(50, 60_000), "250", "How long an event may wait for its quorum before 503."
    )
    ready_late_secs: float = setting(
        kinds.decimal(1, DAY), "60", "How late the oldest due delivery may be before `/readyz` says no."
    )

    allow_private_endpoints: bool = setting(
        kinds.BOOLEAN,
        "false",
        "The development switch: endpoints may be on private, loopback and link-local addresses.",
    )
    require_https: bool = setting(kinds.BOOLEAN, "true", "Whether endpoint urls must be https.", when_private="false")
    allowed_ports: frozenset[int] | None = setting(
        kinds.PORTS, "443", "Ports that endpoints may listen on: a list, or `*` for any.", when_private="*"
    )
    egress_allow_cidrs: tuple[Network, ...] = setting(
        kinds.NETWORKS,
        "",
        "Networks that endpoints may be in although they are not public. A cloud's metadata service inside of one stays"
        " shut, unless it is named alone (/32, /128).",
    )

    claim_batch: int = setting(kinds.whole(1, 5000), "300", "Deliveries that one claim takes, at most.")
    poll_secs: float = setting(
        kinds.decimal(0.05, 60), "1", "How often the dispatcher looks for due work without being told of it."
    )
    connect_timeout_secs: float = setting(kinds.decimal(0.05, 600), "3", "For name resolution, TCP and TLS together.")
    read_timeout_secs: float = setting(
        kinds.decimal(0.05, 600),
        "5",
        "Longest silence of an endpoint; one with a longer `timeout_seconds` of its own may be silent for that long.",
    )
    total_timeout_secs: float = setting(
        kinds.decimal(0.05, 600), "10", "For a whole attempt, where the endpoint names no other."
    )
    lease_secs: float = setting(kinds.decimal(1, 3600), "60", "How long a dispatcher owns a delivery that it claimed.")
    response_cap_bytes: int = setting(
        kinds.whole(1, 16 * MIB), "65536", "How much of a response is read; then the connection is dropped."
    )
    global_concurrency: int = setting(
        kinds.whole(2, 10_000), "512", "Requests in flight in one dispatcher process, at most."
    )
    endpoint_concurrency: int = setting(
        kinds.whole(1, 5000),
        "32",
        "Requests in flight to one endpoint that names no other, per dispatcher process.",
    )

    retry_max_attempts: int = setting(kinds.whole(1, 1000), "12", "Attempts per generation.")
    retry_base_secs: float = setting(
        kinds.decimal(0.001, DAY), "2", "Delay before the first retry; it doubles from there."
    )
    retry_max_secs: float = setting(kinds.decimal(0.001, 7 * DAY), "300", "Longest delay.")
    retry_window_secs: float = setting(
        kinds.decimal(0.001, 90 * DAY),
        "1800",
        "How long after a generation's first attempt retries are made.",
    )
    retry_jitter: float = setting(kinds.decimal(0, 1), "0.2", "Share of a delay that chance adds or takes away.")
    breaker: bool = setting(kinds.BOOLEAN, "true", "Whether an endpoint that fails repeatedly is left alone.")
    breaker_threshold: int = setting(kinds.whole(1, 1000), "5", "Consecutive failures that open a breaker.")
    breaker_cooldown_secs: float = setting(
        kinds.decimal(0.05, DAY), "30", "First wait before a probe; it doubles per trip."
    )
    breaker_max_cooldown_secs: float = setting(kinds.decimal(0.05, DAY), "300", "Longest wait before a probe.")
    receipt_deadline_secs: float = setting(
        kinds.decimal(1, 7 * DAY),
        "300",
        "How long an explicit ack may take after the 2xx before the delivery is sent again.",
    )
    secret_overlap_secs: float = setting(
        kinds.decimal(0, 90 * DAY), str(DAY), "How long both secrets sign after a rotation."
    )

    heartbeat_secs: float = setting(
        kinds.decimal(0.1, 15),
        "5",
        "How often a dispatcher reports (`/readyz` misses it after 30 s), and a gateway compares clocks.",
    )
    retain_delivered_days: int = setting(
        kinds.whole(1, 3650),
        "30",
        "Days that events are kept, with receipts and deliveries, once everybody they were owed to has them.",
    )
    retain_dead_days: int = setting(
        kinds.whole(1, 3650), "90", "Days that a dead letter waits for a person; then its receipt closes as `expired`."
    )
    retain_attempts_days: int = setting(kinds.whole(1, 3650), "30", "Days that attempts are kept, by the day.")

    broker_url: Secret | None = optional(
        kinds.BROKER_URL,
        "no broker",
        "Redis or Valkey 7 or newer that carries the ids of due deliveries to a fleet of dispatchers; it holds nothing"
        " that may not be lost.",
    )
    broker_sweep_secs: float = setting(
        kinds.decimal(1, 3600),
        "15",
        "After how long a due delivery is announced to the broker again, and after how long without a word from it a"
        " dispatcher looks by itself.",
    )
    telegram_url: str = setting(
        kinds.BASE_URL,
        "https://api.telegram.org",
        "Base address of Telegram's Bot API. The rules for endpoint urls hold for it as well.",
    )
    discord_url: str = setting(
        kinds.BASE_URL,
        "https://discord.com/api",
        "Base address of Discord's API. The rules for endpoint urls hold for it as well.",
    )

    log_format: LogFormat | None = optional(
        kinds.choice(LogFormat),
        "json when stderr is a pipe, text on a terminal",
        "How log lines are written.",
    )
    log_level: LogLevel = setting(
        kinds.choice(LogLevel), "info", "Least important lines written; `info` has one for how each attempt ended."
    )
    metric_consumers: int = setting(
        kinds.whole(1, 100_000), "1000", "Consumers with metric series of their own; the rest share `other`."
    )
    otlp_endpoint: str | None = optional(
        kinds.BASE_URL,
        "no traces",
        "OpenTelemetry collector that spans are sent to (OTLP over HTTP); `/v1/traces` is added where it is not there.",
    )

    url: str = setting(kinds.BASE_URL, "http://127.0.0.1:8080", "Gateway that the client commands talk to.")
    api_key: Secret | None = optional(kinds.SECRET, "anonymous", "Key that the client commands present.")
    testkit_secret: Secret | None = optional(
        kinds.SECRET, "none until `POST /secret`", "Secret by which the testkit receiver verifies."
    )
    testkit_secrets_file: Path | None = optional(
        kinds.PATH,
        "in memory alone",
        "Where the testkit receiver keeps what `POST /secret` taught it (`relay up`: `receiver-secrets` in the data"
        " folder).",
    )

    origins: Mapping[str, Origin] = field(repr=False, compare=False)

    def origin(self, name: str) -> Origin:
        """Where the value of the variable `name` came from. Raises `KeyError` for a name that is no
        setting."""
        return self.origins[name]

    @property
    def retry(self) -> RetryPolicy:
        """The policy of endpoints that name none of their own."""
        return RetryPolicy(
            max_attempts=self.retry_max_attempts,
            base_seconds=self.retry_base_secs,
            max_seconds=self.retry_max_secs,
            window_seconds=self.retry_window_secs,
            jitter=self.retry_jitter,
        )

    @property
    def breaker_policy(self) -> BreakerPolicy | None:
        """When an endpoint is left alone, and for how long; None for never."""
        if not self.breaker:
            return None
        return BreakerPolicy(
            threshold=self.breaker_threshold,
            cooldown_seconds=self.breaker_cooldown_secs,
            max_cooldown_seconds=self.breaker_max_cooldown_secs,
        )


def variable(field_name: str) -> str:
    """The environment variable of a field."""
    return "DATABASE_URL" if field_name == "database_url" else f"RELAY_{field_name.upper()}"


@cache
def rows() -> tuple[Row, ...]:
    """Every setting, in the order of the documentation."""
    return tuple(
        Row(field=column.name, name=variable(column.name), **column.metadata)
        for column in fields(Settings)
        if column.metadata
    )
