"""What comes in by stdin, and who sits at it.

Owns reading it, and the question whether there is somebody to ask. Invariant: a command that waits for input says so.
"""

from __future__ import annotations

import os
import select
import stat
import sys

import click

from relay.cli.streams import Streams

STDIN = 0

PATIENCE_SECONDS = 1.0
"""How long input may be silent at first before a person is told what is waited for."""


def read_stdin(streams: Streams) -> bytes:
    """All of stdin. Raises `OSError`."""
    with open(STDIN, "rb", closefd=False) as stdin:
        if not select.select([stdin], [], [], PATIENCE_SECONDS)[0]:
            streams.note("waiting for input on stdin: end it with Ctrl-D, or redirect it from a file or /dev/null")
        return stdin.read()


def is_fed() -> bool:
    """Whether stdin is a file or a pipe, and so may hold something: no terminal, and not /dev/null."""
    mode = os.fstat(STDIN).st_mode
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def has_somebody() -> bool:
    """Whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def agrees(question: str) -> bool:
    """Ask the person at the terminal, on stderr, so that stdout holds the output alone."""
    return click.confirm(question, err=True)
