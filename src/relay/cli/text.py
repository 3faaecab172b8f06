"""Text that came from elsewhere, made fit to be shown.

Owns what counts as harmless. Invariant: what `printable` answers is one line and cannot steer a terminal.
"""

from __future__ import annotations

import unicodedata

_STEERS_NOTHING = "\u200c\u200d"
"""Joiners: format characters of which words and emoji are made, unlike those that turn the direction of writing."""


def printable(text: str) -> str:
    """Text on one line, with what could steer a terminal or deceive a reader as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if _is_harmless(letter) else _escaped(letter) for letter in text)


def _is_harmless(letter: str) -> bool:
    return letter.isprintable() or letter in _STEERS_NOTHING or unicodedata.category(letter) == "Zs"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii") if letter != "\\" else letter
