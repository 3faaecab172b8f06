"""The secrets that `/verify` accepts.

Owns which secret counts for which path: `/verify/<name>` uses the secrets given to that name if it has any,
else those given to all. Where they are kept when the receiver stops is its owner's, who is told of each change.
Invariant: newest first, each once, and bounded; the oldest is forgotten first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relay.domain.secret import Secret

SECRETS_PER_NAME = 100
NAMES = 1_000
EVERYONE = ""
"""The name whose secrets count for every path that has none of its own."""

Taught = Mapping[str, tuple[Secret, ...]]
"""Secrets by name, newest first."""


def _nowhere(_: Taught) -> None:
    """They are kept nowhere."""


class Keyring:
    """Secrets by name, newest first.

    `given` count for everyone behind those that were taught. `taught` is what an earlier receiver was taught; `keep`
    is told all that is taught after each change, and what it raises the change raises, though it holds.
    """

    def __init__(self, *given: Secret, taught: Taught | None = None, keep: Callable[[Taught], None] = _nowhere) -> None:
        self._given = given
        self._by_name: dict[str, tuple[Secret, ...]] = {EVERYONE: (), **(taught or {})}
        self._keep = keep

    def add(self, secret: Secret, name: str = EVERYONE) -> None:
        """Accept this secret from now on, for one name or for everyone, before the older ones."""
        older = tuple(known for known in self._by_name.get(name, ()) if known != secret)
        self._by_name[name] = (secret, *older)[:SECRETS_PER_NAME]
        if len(self._by_name) > NAMES:
            del self._by_name[next(known for known in self._by_name if known != EVERYONE)]
        self._keep(self._by_name)

    def secrets_for(self, name: str) -> tuple[Secret, ...]:
        """The secrets that count for this name, newest first; empty if there is none at all."""
        own = self._by_name.get(name)
        if own and name != EVERYONE:
            return own
        taught = self._by_name[EVERYONE]
        return (*taught, *(each for each in self._given if each not in taught))

    def forget(self, name: str | None = None) -> None:
        """Forget the secrets of one name, or of all of them and of everyone."""
        if name is None:
            self._by_name = {EVERYONE: ()}
        elif name == EVERYONE:
            self._by_name[EVERYONE] = ()
        else:
            self._by_name.pop(name, None)
        if name is None or name == EVERYONE:
            self._given = ()
        self._keep(self._by_name)
