"""How finished lines reach a file, a pipe or a terminal: on a thread of their own, so that no reader can stop Relay.

Owns the queue between whoever logs and the stream. Whoever reads a pipe slowly, or not at all, costs lines and nothing
else: past a bound of bytes they are dropped and counted, and the place of the gap is told in the stream itself. Lines
stay whole beside those of other processes on the same pipe, since no write is longer than what a pipe takes in one
piece (a single longer line excepted). Invariant: `write` never waits for the stream, and what is held for it never
passes `MOST_BYTES` by more than `RESERVED_BYTES`.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator

MOST_BYTES = 4 * 1024 * 1024
"""What may wait for the stream: some seconds of a busy process's lines."""

RESERVED_BYTES = 1024 * 1024
"""Room beyond that for warnings and errors alone, which a flood of other lines must not keep out."""

PIECE_BYTES = select.PIPE_BUF
"""The longest write that no other process's comes in between."""

LOOK_SECONDS = 1.0
"""How often a stream that takes nothing is looked at again."""


class LineWriter:
    """Writes lines to a file descriptor that stays its owner's. `gap` makes the line that says how many are missing."""

    def __init__(self, descriptor: int, gap: Callable[[int], bytes]) -> None:
        self._descriptor = descriptor
        self._gap = gap
        self._changed = threading.Condition()
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._held_bytes = 0
        self._untold = 0
        self._thread: threading.Thread | None = None
        self._closed = False
        self.dropped = 0
        """How many lines were not written, for want of room or because the stream failed."""

    def write(self, lines: bytes, count: int = 1, *, important: bool = False) -> None:
        """Have `count` whole lines written soon, or drop all of them where there is no room."""
        with self._changed:
            most = MOST_BYTES + RESERVED_BYTES if important else MOST_BYTES
            if self._closed or (self._held_bytes and self._held_bytes + len(lines) > most):
                self._lost(count)
                return
            if self._untold:
                self._put(self._gap(self._untold), 1)
                self._untold = 0
            self._put(lines, count)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log lines", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, within: float) -> bool:
        """Wait until everything is written, `within` seconds at most; answers whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._held_bytes, within)

    def close(self, within: float) -> None:
        """Take nothing more and write what is left, `within` seconds at most; a stream that hangs is left to itself."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(within)

    def _put(self, lines: bytes, count: int) -> None:
        self._waiting.append((lines, count))
        self._held_bytes += len(lines)

    def _lost(self, count: int) -> None:
        self.dropped += count
        self._untold += count

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                taken = list(self._waiting)
                self._waiting.clear()
            works = self._write_all(b"".join([lines for lines, _ in taken]))
            with self._changed:
                if works and self._untold and not self._waiting:
                    # nobody may log for a long time: the gap is told behind what came before it
                    self._put(self._gap(self._untold), 1)
                    self._untold = 0
                self._changed.notify_all()

    def _write_all(self, lines: bytes) -> bool:
        """Write piece by piece; a piece that the stream refuses is lost. Answers whether the last one was taken."""
        works = True
        for piece in _pieces(lines):
            works = self._write_piece(piece)
            with self._changed:
                self._held_bytes -= len(piece)
                if not works:
                    self._lost(piece.count(b"\n"))
        return works

    def _write_piece(self, piece: bytes) -> bool:
        while piece:
            try:
                piece = piece[os.write(self._descriptor, piece) :]
            except BlockingIOError:
                # somebody who shares the stream has made it so: then waiting is for this side
                self._await_room()
            except OSError:
                return False
        return True

    def _await_room(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        poll.poll(LOOK_SECONDS * 1000)


def _pieces(lines: bytes) -> Iterator[bytes]:
    """Whole lines, as many as one write may have; a longer one alone."""
    start = 0
    while len(lines) - start > PIECE_BYTES:
        end = lines.rfind(b"\n", start, start + PIECE_BYTES)
        if end < 0:
            end = lines.find(b"\n", start)
        yield lines[start : end + 1]
        start = end + 1
    if start < len(lines):
        yield lines[start:]
