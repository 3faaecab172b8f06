"""Where a command's words go, whatever the streams are: terminals, pipes, full disks, nothing at all.

Owns stdout and stderr of the process, the choice between tables and JSON, and what is escaped. Invariants: text that
came from elsewhere cannot steer a terminal; output that cannot be written never makes a deed that is done look undone.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from relay.cli.failures import DONE, FAILED
from relay.cli.text import printable


class Streams:
    """What a command writes with. `json_asked` and `text_asked` say that one was asked for by name."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err
        self._is_terminal = out.isatty()
        self.json_asked = False
        self.text_asked = False
        self._loss: OSError | None = None
        self._deed: str | None = None

    @property
    def json(self) -> bool:
        """Whether the output is for a program: JSON was asked for, or stdout is no terminal and text was not."""
        return self.json_asked or not (self._is_terminal or self.text_asked)

    @property
    def watched(self) -> bool:
        """Whether a person looks at stdout, where what is shown may be shown anew in the same place."""
        return self._is_terminal and not self.json_asked

    def for_progress(self) -> TextIO | None:
        """Where a person watches how long work goes on; None if nobody does."""
        return self._err if self._err.isatty() and not self.json_asked else None

    def done(self, deed: str) -> None:
        """What was asked for is done, in a few words; only its description can still fail."""
        self._deed = deed

    def document(self, value: object) -> None:
        """Write a JSON document: ASCII, so that no locale can spoil it."""
        self.line(json.dumps(value, indent=2))

    def record(self, value: object) -> None:
        """Write a JSON document on a line of its own, as one of several."""
        self.line(json.dumps(value))

    def line(self, text: str) -> None:
        """Write a line as it is: the caller knows every character of it."""
        with self.written() as out:
            out.write(text + "\n")
            out.flush()

    def fault(self, text: str) -> None:
        """Say on stderr what went wrong, each line by itself."""
        for line in text.splitlines():
            self.note(line)

    def note(self, text: str) -> None:
        """Say a line on stderr. Nobody can be told if that fails."""
        with contextlib.suppress(OSError):
            self._err.write(f"relay: {printable(text)}\n")
            self._err.flush()

    def finish(self, code: int) -> int:
        """Write what is still buffered; answers the exit code, given that of the command."""
        with self.written():
            self._out.flush()
        if self._loss is None:
            return code
        if isinstance(self._loss, BrokenPipeError):
            return code  # the reader has seen enough
        if code != DONE:
            return code
        done = f"{self._deed}, but " if self._deed else ""
        self.note(f"{done}the output could not be written: {self._loss.strerror}")
        return DONE if self._deed else FAILED

    def lost(self, loss: OSError) -> None:
        """Note that stdout is gone; from now on what is written there goes nowhere."""
        self._loss = self._loss or loss
        _silence(self._out)

    @contextmanager
    def written(self) -> Iterator[TextIO]:
        """Write to stdout inside the block; what is lost there is told at the end, by `finish`."""
        try:
            yield self._out
        except OSError as loss:
            self.lost(loss)


@contextmanager
def prepared_streams() -> Iterator[Streams]:
    """The streams of this process, made fit: what a locale cannot say is escaped, what is closed swallows."""
    _fill_descriptors()
    yield Streams(_prepared("stdout"), _prepared("stderr"))


def _fill_descriptors() -> None:
    """Descriptors 0 to 2 that are closed would be given to the next socket or file, and whoever prints would write
    there."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest that is free, which is this one
            os.set_inheritable(descriptor, True)  # those who are started have the same need


def _prepared(name: str) -> TextIO:
    stream = getattr(sys, name)
    if stream is None:
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - it lives as long as the process
        setattr(sys, name, stream)
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream  # type: ignore[no-any-return]  # of sys, by a name that varies


def _silence(stream: TextIO) -> None:
    """Let what the interpreter flushes at its end go nowhere, instead of failing once more."""
    with contextlib.suppress(OSError, ValueError):
        swallow = os.open(os.devnull, os.O_WRONLY)
        os.dup2(swallow, stream.fileno())
        os.close(swallow)
