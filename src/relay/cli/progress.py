"""How far long work has come, for a person who waits for it.

Owns the bar, on stderr so that stdout holds the output alone. Invariant: without a person to see it nothing is drawn,
and a bar that cannot be drawn stops no work.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Self

from rich import progress
from rich.console import Console

from relay.cli.streams import Streams


class Progress:
    """A bar for so many steps, None if nobody knows how many; work of `short` steps at most shows none."""

    def __init__(self, streams: Streams, what: str, steps: int | None, *, short: int) -> None:
        out = streams.for_progress() if steps is None or steps > short else None
        self._bar = None
        if out is not None:
            columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn())
            console = Console(file=out, highlight=False, markup=False, emoji=False)
            self._bar = progress.Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task(what, total=steps)

    def __enter__(self) -> Self:
        """Draw it."""
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.start()
        return self

    def to(self, step: int) -> None:
        """So many steps are done."""
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.update(self._task, completed=step, refresh=True)

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take it away."""
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.stop()


class LateBar:
    """A bar that is drawn once the number of steps is known."""

    def __init__(self, streams: Streams, what: str, *, short: int) -> None:
        self._streams = streams
        self._what = what
        self._short = short
        self._progress: Progress | None = None

    def tell(self, done: int, total: int) -> None:
        """So many steps of so many are done."""
        if self._progress is None:
            self._progress = Progress(self._streams, self._what, total, short=self._short).__enter__()
        self._progress.to(done)

    def close(self) -> None:
        """Take it away."""
        if self._progress is not None:
            self._progress.__exit__(None, None, None)
