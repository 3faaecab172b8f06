"""The consumers that have series of their own, numbered in the order in which they were first seen.

Owns the numbering, which all workers of one instance share through a file. There is no lock, since a worker
that is stopped while it holds one would stop them all: each appends the name it misses in one write, then
reads the file again, and the first line with that name is the number. Invariant: a number, once given, is
never another consumer's for as long as the file lives, and no more names are numbered than the roster may
hold.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from relay.metrics.names import OTHER

FILE = "consumers.jsonl"


class Roster:
    """The names and their numbers. Without a folder, the roster of a process that is alone."""

    def __init__(self, limit: int, folder: Path | None = None) -> None:
        self._limit = limit
        self._path = None if folder is None else folder / FILE
        self._read = 0
        self._numbers: dict[str, int] = {}
        self.refresh()

    @property
    def numbers(self) -> dict[str, int]:
        """The consumers known so far, with their numbers. To be read, not changed."""
        return self._numbers

    @property
    def is_full(self) -> bool:
        """Whether any further consumer is one of the others."""
        return len(self._numbers) >= self._limit

    def number(self, consumer: str) -> int:
        """The consumer's number, given now if it had none; the limit itself stands for all the others."""
        known = self._numbers.get(consumer)
        if known is not None:
            return known
        if self.is_full or consumer == OTHER:
            return self._limit
        try:
            self._enter(consumer)
        except OSError:  # a full disk must not stop deliveries: one of the others until the next try
            return self._limit
        return self._numbers.get(consumer, self._limit)

    def refresh(self) -> None:
        """Learn what other workers have entered. A line that is still being written waits for the next
        time."""
        if self._path is None or not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        for line in whole.split(b"\n"):
            self._learn(line)

    def _enter(self, consumer: str) -> None:
        """The line begins with a line break too: it ends what a killed worker may have left unfinished."""
        if self._path is None:
            self._numbers[consumer] = len(self._numbers)
            return
        line = b"\n" + json.dumps(consumer).encode() + b"\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
        self.refresh()

    def _learn(self, line: bytes) -> None:
        try:
            name = json.loads(line)
        except ValueError:
            return  # blank, or cut short when its writer was killed: nobody has that number
        if isinstance(name, str) and name not in self._numbers and not self.is_full:
            self._numbers[name] = len(self._numbers)
