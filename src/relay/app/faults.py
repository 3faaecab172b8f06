"""Why a process cannot start or go on, in a sentence for the person who started it.

Owns the exception and the translation of the rooms' faults. Invariant: the text is one line and says what to do.
"""

from __future__ import annotations


class CannotRun(Exception):
    """Something outside of the program has to change first: a port is taken, the database is away, a key is missing."""
