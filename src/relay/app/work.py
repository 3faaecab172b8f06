"""What a worker is given to work with.

Owns one record. Invariant: the listening socket is bound and listens; `ready` is called once, when the worker does its
work."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from relay.metrics import Slot
from relay.metrics.logs import Lines
from relay.settings import Settings


@dataclass(frozen=True, slots=True)
class Work:
    """One worker's work. When `stop` is set it takes nothing new, has `drain_seconds` for what is under way, and
    returns.

    `slot` is where its numbers are kept; None keeps them in the process. `lines` is where its log goes.
    """

    settings: Settings
    listener: socket.socket
    slot: Slot | None
    drain_seconds: float
    stop: asyncio.Event
    lines: Lines
    ready: Callable[[], None]


Body = Callable[[Work], Awaitable[None]]
"""What a role does. Raises `CannotRun`, before it calls `ready`, if something outside has to change first."""
