"""The reconciler: sends again what was received and then not acked, and gives up what never is.

Owns one loop. What is behind its deadline has neither an ack nor a retry to come; nobody else would ever touch it.
Invariant: an ack that is missing is asked for within `EVERY_SECONDS` of its deadline, of the endpoint that owes it and
of no other, and no more often than the generations allow.
"""

from __future__ import annotations

from relay.dispatcher.alarm import Alarm
from relay.domain.ambient import Ambient
from relay.domain.delivery import DeadReason
from relay.domain.telemetry import DeadLettered, Listener, Loop, LoopSucceeded, ReceiptsRedriven
from relay.store.acks import Acks

EVERY_SECONDS, LEAST_SECONDS = 5.0, 0.25
"""Between two rounds: a quarter of the deadline, within these bounds."""

BATCH = 500

MOST_GENERATIONS = 12
"""Generations that a delivery may have without an ack, from the last one on that a person asked for."""


class Reconciler:
    """Reconciles for the whole installation; any number may run beside each other."""

    def __init__(self, *, acks: Acks, deadline_seconds: float, alarm: Alarm, ambient: Ambient, emit: Listener) -> None:
        self._acks = acks
        self._deadline_seconds = deadline_seconds
        self._every_seconds = max(min(deadline_seconds / 4, EVERY_SECONDS), LEAST_SECONDS)
        self._alarm = alarm
        self._ambient = ambient
        self._emit = emit

    async def run(self) -> None:
        """Reconcile until cancelled. Raises `StoreUnavailable`."""
        while True:
            done = await self._acks.reconcile(
                batch=BATCH, deadline_seconds=self._deadline_seconds, most_generations=MOST_GENERATIONS
            )
            if done.redriven:
                self._emit(ReceiptsRedriven(done.receipts))
                self._alarm.ring()
            for consumer, deliveries in done.dead.items():
                self._emit(DeadLettered(consumer, DeadReason.EXHAUSTED, len(deliveries), tuple(deliveries)))
            moved = done.redriven + sum(map(len, done.dead.values()))
            self._emit(LoopSucceeded(Loop.RECONCILER, moved))
            if moved < BATCH:
                await self._ambient.sleep(self._every_seconds)
