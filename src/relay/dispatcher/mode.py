"""The mode: whether deliveries come through the broker now, or are polled for.

Owns the answer, which two loops give together, the one that reads the broker and the one that writes to it, and the
brake on every way back: a broker that takes one thing and refuses the next would have a process change its mind many
times a second. Invariants: each change is told once, and whoever waits for it is woken; after a loss the broker rests,
for twice as long where it had not served steadily before, up to the longest.
"""

from __future__ import annotations

from collections.abc import Callable

from relay.dispatcher.alarm import Alarm
from relay.domain.telemetry import BrokerModeChanged, Listener, Loop

REST_SECONDS, LONGEST_REST_SECONDS, STEADY_SECONDS = 1.0, 60.0, 30.0
"""How long a broker is left alone that was lost, at the least and at the most, and after how long in use it counts as
one that serves."""


class Mode:
    """The mode of one process. Until the broker has answered for the first time, deliveries are polled for."""

    def __init__(self, *, alarm: Alarm, clock: Callable[[], float], emit: Listener) -> None:
        self._alarm = alarm
        self._clock = clock
        self._emit = emit
        self._in_trouble: dict[Loop, str] = {Loop.CLAIMER: ""}
        self._told: bool | None = None
        self._reason = ""
        self._rest = 0.0
        self._changed_at = clock()

    @property
    def is_active(self) -> bool:
        """Whether deliveries come through the broker."""
        return self._told is True

    @property
    def trouble(self) -> str:
        """Why not, in words; of a broker that rests, why it was lost."""
        return "" if self.is_active else next(iter(self._in_trouble.values()), "") or self._reason

    @property
    def rest_seconds(self) -> float:
        """For how long the broker is left alone from now on, whatever it answers."""
        return 0.0 if self.is_active else max(0.0, self._changed_at + self._rest - self._clock())

    def lost(self, loop: Loop, reason: str) -> None:
        """The broker does not serve this loop."""
        self._in_trouble[loop] = self._reason = reason
        if self._told is False:
            return
        has_served = self._told is None or self._clock() - self._changed_at >= STEADY_SECONDS
        self._rest = REST_SECONDS if has_served else min(max(2 * self._rest, REST_SECONDS), LONGEST_REST_SECONDS)
        self._change(to=False)

    def served(self, loop: Loop) -> None:
        """The broker serves this loop, or nothing is asked of it. What comes while it rests is to be said again."""
        self._in_trouble.pop(loop, None)
        if not (self.is_active or self._in_trouble or self.rest_seconds):
            self._reason = ""
            self._change(to=True)

    def _change(self, *, to: bool) -> None:
        self._told, self._changed_at = to, self._clock()
        self._emit(BrokerModeChanged(to, self._reason))
        self._alarm.ring()
