"""Telling several listeners of what happens.

Owns the fan-out and its order. Invariant: each listener is told of everything, in the order in which it happened.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay.domain.telemetry import Happening, Listener


@dataclass(frozen=True, slots=True)
class Broadcast:
    """A listener that tells several others, in order."""

    listeners: tuple[Listener, ...]

    def __call__(self, happening: Happening) -> None:
        """Tell each listener."""
        for listener in self.listeners:
            listener(happening)
