"""The keys of a person who watches.

Owns the mode of the terminal while somebody does. Invariant: the terminal is as it was when the watching ends, also by
a signal.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_QUIT = (b"q", b"Q", b"\x04", b"")
"""Ctrl-D and a terminal that is gone are as good as a q."""


class Keyboard:
    """Keys from this descriptor; None where nobody types."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def quits_within(self, seconds: float) -> bool:
        """Wait so long; answers at once if a q comes."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._descriptor is None:
                time.sleep(left)
            elif select.select([self._descriptor], [], [], left)[0] and os.read(self._descriptor, 1) in _QUIT:
                return True
        return False


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Take keys one by one and unseen inside the block. SIGTERM and SIGHUP end it as Ctrl-C does."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        if not sys.stdin.isatty():
            yield Keyboard(None)
            return
        descriptor = sys.stdin.fileno()
        mode = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor)
            yield Keyboard(descriptor)
        finally:
            with contextlib.suppress(termios.error):  # a terminal that is gone needs no mode
                termios.tcsetattr(descriptor, termios.TCSADRAIN, mode)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
