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
    returns. `leaving` is set with it or before it: who routes to this worker is to be told, and nothing else changes.

    `slot` is where its numbers are kept; None keeps them in the process. `lines` is where its log goes.
    """

    settings: Settings
    listener: socket.socket
    slot: Slot | None
    drain_seconds: float
    leaving: asyncio.Event
    stop: asyncio.Event
    lines: Lines
    ready: Callable[[], None]


Body = Callable[[Work], Awaitable[None]]
"""What a role does. Raises `CannotRun`, before it calls `ready`, if something outside has to change first."""
