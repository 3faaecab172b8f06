"""What the world supplies: the time, chance, and the passing of time.

Owns only the shape. The rules never call these; the rooms that act get them from the composition root, so that a test
can put its own in. Invariant: instants that are stored come from PostgreSQL, except an event's `received_at`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Ambient:
    """`now` is the wall clock in UTC, `monotonic` seconds that only grow, `entropy` that many random bytes, `draw` a
    number in [0, 1), `sleep` waits for seconds."""

    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    entropy: Callable[[int], bytes]
    draw: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
