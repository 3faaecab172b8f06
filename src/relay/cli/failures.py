"""Why a command did not do what it was asked, and with which exit code it says so.

Owns the exception. Invariant: each of its lines says what to do.
"""

from __future__ import annotations

DONE, FAILED, WRONG_USAGE = 0, 1, 2

INTERRUPTED = 130
"""What a shell makes of a command that Ctrl-C ended."""


class CommandFailed(Exception):
    """The command could not do it; the text is for stderr, a line for each fault."""

    def __init__(self, text: str, exit_code: int = FAILED) -> None:
        super().__init__(text)
        self.exit_code = exit_code
