"""What a worker process can be.

Owns the names of the roles as they stand on a worker's command line, and how long each may take to start and to stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from relay.settings import Settings


class Role(StrEnum):
    """A kind of worker. The receiver is the testkit's."""

    GATEWAY = "gateway"
    DISPATCHER = "dispatcher"
    RECEIVER = "receiver"


START_SECONDS = 60.0
"""How long a worker may take until it is ready. It is far more than it needs; past it, something is stuck."""

GATEWAY_DRAIN_SECONDS = 10.0
"""How long the gateway finishes requests that are under way when it is told to stop."""

LAST_APPENDS_SECONDS = 5.0
"""How long the gateway then takes for what was taken in and is not answered yet: more than one append may take."""

MARGIN_SECONDS = 13.0
"""What a worker may take beyond its drain: a gateway `LAST_APPENDS_SECONDS`, a dispatcher one second for its sender,
`RECORD_GRACE_SECONDS` and one for who reads its metrics, and both `CLOSE_SECONDS` for each of their pools,
`FLUSH_SECONDS` for their last spans and one for their last lines. A broker is taken leave of beside the drain, in less
time than the sender and the last outcomes have after it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """`delay` seconds in which a worker that was told to stop goes on as before, then `drain` seconds for work under
    way, and `stop` seconds, all of this and a margin, after which it is killed."""

    drain: float
    stop: float
    delay: float = 0.0


def bounds(role: Role, settings: Settings) -> Bounds:
    """How long a worker of this role may take to stop.

    A request that a dispatcher has just sent may take its whole time; an endpoint that may take longer than the
    installation's timeout has its delivery handed back.
    """
    drain = settings.total_timeout_secs if role is Role.DISPATCHER else GATEWAY_DRAIN_SECONDS
    delay = settings.shutdown_delay_secs if role is Role.GATEWAY else 0.0
    return Bounds(drain, delay + drain + MARGIN_SECONDS, delay)
