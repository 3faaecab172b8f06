"""The mode: whether deliveries come through the broker now, or are polled for.

Owns the answer, which two loops give together: the one that reads the broker and the one that writes to it. Invariant:
each change is told once, and whoever waits for it is woken.
"""

from __future__ import annotations

from relay.dispatcher.alarm import Alarm
from relay.domain.telemetry import BrokerModeChanged, Listener, Loop


class Mode:
    """The mode of one process. Until the broker has answered for the first time, deliveries are polled for."""

    def __init__(self, *, alarm: Alarm, emit: Listener) -> None:
        self._alarm = alarm
        self._emit = emit
        self._in_trouble: dict[Loop, str] = {Loop.CLAIMER: ""}
        self._told: bool | None = None

    @property
    def is_active(self) -> bool:
        """Whether deliveries come through the broker."""
        return not self._in_trouble

    @property
    def trouble(self) -> str:
        """Why not, in words."""
        return next(iter(self._in_trouble.values()), "")

    def lost(self, loop: Loop, reason: str) -> None:
        """The broker does not serve this loop."""
        self._in_trouble[loop] = reason
        self._tell(reason)

    def served(self, loop: Loop) -> None:
        """The broker serves this loop, or nothing is asked of it."""
        self._in_trouble.pop(loop, None)
        self._tell("")

    def _tell(self, reason: str) -> None:
        if self._told is self.is_active or (self._told is None and not self.is_active and not reason):
            return
        self._told = self.is_active
        self._emit(BrokerModeChanged(self.is_active, reason))
        self._alarm.ring()
