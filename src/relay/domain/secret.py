"""A secret that cannot be printed by accident.

Owns the one wrapper in which signing secrets, tokens and passwords travel. Invariant: no printable form of a
`Secret`, not even inside another object's `repr`, holds a byte of it; `expose` is the only way out.
"""

from __future__ import annotations

import hmac
from typing import NoReturn


class Secret:
    """Text that is shown as stars wherever it is formatted, logged or pickled (pickling is refused)."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def expose(self) -> str:
        """The text itself. Call it where the secret is used, never where it is described."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")
