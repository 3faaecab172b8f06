"""Why a process cannot start or go on, in a sentence for the person who started it.

Owns the exception and the translation of the rooms' faults. Invariant: the text is one line and says what to do.
"""

from __future__ import annotations

import sys


class CannotRun(Exception):
    """Something outside of the program has to change first: a port is taken, the database is away, a key is missing."""


def cannot_import(missing: ImportError) -> str:
    """What to do where a library cannot be imported: the environment is not what was locked."""
    told = " ".join(str(missing).split())
    return f"a library cannot be imported ({told}): install requirements.lock into the environment of {sys.executable}"
