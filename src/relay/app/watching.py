"""What a process loses of its own accounts of itself: log lines and spans that nobody takes.

Owns the look at their number, and the end of the spans. Whoever drops them does so on a thread that must not touch the
numbers; here it becomes a happening, on the event loop. Invariant: what was dropped by the end of the block has been
told, and that end waits for a collector no longer than `FLUSH_SECONDS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

from relay import __version__
from relay.domain.broadcast import Broadcast
from relay.domain.telemetry import Listener, LogLinesDropped, Process, SpansDropped
from relay.metrics import Metrics
from relay.metrics.lines import log_listener
from relay.metrics.logs import Lines
from relay.metrics.spans import Export, Spans

LOOK_SECONDS = 5.0
"""How often it is looked at."""

FLUSH_SECONDS = 2.0
"""How long the end of a process waits for the collector to take the last spans."""


def spans_of(process: Process, endpoint: str | None) -> Spans | None:
    """The spans of this process, if a collector is set. What they need is imported only then, on their own thread."""

    def connect() -> Export:
        collector: Export = import_module("relay.metrics.otlp").Collector(
            endpoint, process=process.value, version=__version__
        )
        return collector

    return None if endpoint is None else Spans(connect)


def emit_to(metrics: Metrics, lines: Lines, spans: Spans | None) -> Broadcast:
    """Who is told of what happens in this process: its numbers, its log, and its spans, if it has any."""
    listeners: tuple[Listener, ...] = (metrics.listener, log_listener(tell=lines.tell))
    return Broadcast(listeners if spans is None else (*listeners, spans))


@asynccontextmanager
async def watched(lines: Lines, spans: Spans | None, emit: Listener) -> AsyncIterator[None]:
    """Tell inside the block, and at its end, what was dropped since this was last told."""
    watch = _Watch(lines, spans, emit)
    looking = asyncio.create_task(watch.run(), name="watching what is dropped")
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        if spans is not None:
            await asyncio.to_thread(spans.close, FLUSH_SECONDS)
        watch.look()


class _Watch:
    def __init__(self, lines: Lines, spans: Spans | None, emit: Listener) -> None:
        self._lines = lines
        self._spans = spans
        self._emit = emit
        self._lines_told = self._spans_told = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        lines = self._lines.dropped
        if lines > self._lines_told:
            self._emit(LogLinesDropped(lines - self._lines_told))
            self._lines_told = lines
        spans = 0 if self._spans is None else self._spans.dropped
        if spans > self._spans_told:
            self._emit(SpansDropped(spans - self._spans_told))
            self._spans_told = spans
