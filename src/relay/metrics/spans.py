"""Spans on their way to a collector: what happened is kept until a thread of its own makes spans of it and sends them.

Owns the queue and the thread. What a span looks like and how it is sent is `otlp`'s, which is not even imported unless
there is a collector. Invariant: whoever emits never waits for the collector; what waits for it is bounded; what it does
not take is counted; and the end of a process waits for it no longer than it is told to.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from relay.domain import telemetry as t

MOST = 8_192
"""Attempts and requests that may wait for the collector; a busy process makes as many in a second or two."""

BATCH = 512
"""How many of them are made into one request to the collector."""

PACE_SECONDS = 1.0
"""How long the first one waits for others to share its request."""

SPANS_EACH = 2
"""How many spans an attempt or a request has."""


logger = logging.getLogger("relay")


class Seen(NamedTuple):
    """Something that becomes spans; it ended at this moment, in nanoseconds of the machine's clock."""

    happening: t.AttemptsRecorded | t.RequestServed
    ended_ns: int


class Export(Protocol):
    """The way to a collector."""

    def send(self, seen: Sequence[Seen]) -> int:
        """Make spans and send them; answers how many were lost. Takes seconds at the most."""
        ...

    def stop(self) -> None:
        """Give up what is under way."""
        ...


class Spans:
    """The listener. It may be called from one thread, and closed from another."""

    def __init__(self, connect: Callable[[], Export], clock: Callable[[], int] = time.time_ns) -> None:
        self._connect = connect
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[Seen] = deque()
        self._held = 0
        self._closed = False
        self._export: Export | None = None
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()
        self.dropped = 0
        """How many spans did not get to the collector."""

    def __call__(self, happening: t.Happening) -> None:
        """Keep what becomes spans."""
        if type(happening) is t.AttemptsRecorded:
            self._take(happening, len(happening.attempts))
        elif type(happening) is t.RequestServed and happening.trace is not None and happening.trace.server.is_sampled:
            self._take(happening, 1)

    def close(self, within: float) -> None:
        """Send what is left, for `within` seconds at most; the rest is dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(within)
        with self._changed:
            self.dropped += self._held * SPANS_EACH
            self._held = 0
            self._waiting.clear()
            export = self._export
        if export is not None:
            export.stop()

    def _take(self, happening: t.AttemptsRecorded | t.RequestServed, count: int) -> None:
        with self._changed:
            if self._closed or self._held + count > MOST:
                self.dropped += count * SPANS_EACH
                return
            self._waiting.append(Seen(happening, self._clock()))
            self._held += count
            if len(self._waiting) == 1 or self._held >= BATCH:
                self._changed.notify_all()

    def _run(self) -> None:
        export = self._connect()
        with self._changed:
            self._export = export
        while batch := self._next():
            try:
                lost = export.send(batch)
            except Exception:
                logger.exception("spans_met_bug")
                lost = sum(map(_count, batch)) * SPANS_EACH
            with self._changed:
                # of what was given up meanwhile, the end has counted every span
                if self._held:
                    self._held -= sum(map(_count, batch))
                    self.dropped += lost

    def _next(self) -> list[Seen]:
        """What shares the next request; nothing at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            self._changed.wait_for(lambda: self._held >= BATCH or self._closed, PACE_SECONDS)
            batch: list[Seen] = []
            count = 0
            while self._waiting and count < BATCH:
                batch.append(self._waiting.popleft())
                count += _count(batch[-1])
            return batch


def _count(seen: Seen) -> int:
    happening = seen.happening
    return len(happening.attempts) if isinstance(happening, t.AttemptsRecorded) else 1
