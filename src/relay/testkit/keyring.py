"""The secrets that `/verify` accepts.

Owns which secret counts for which path: `/verify/<name>` uses the secrets given to that name if it has any,
else those given to all. Invariant: newest first, each once, and bounded; the oldest is forgotten first.
"""

from __future__ import annotations

from relay.domain.secret import Secret

SECRETS_PER_NAME = 100
NAMES = 1_000
EVERYONE = ""
"""The name whose secrets count for every path that has none of its own."""


class Keyring:
    """Secrets by name, newest first."""

    def __init__(self, *secrets: Secret) -> None:
        self._by_name: dict[str, tuple[Secret, ...]] = {EVERYONE: secrets}

    def add(self, secret: Secret, name: str = EVERYONE) -> None:
        """Accept this secret from now on, for one name or for everyone, before the older ones."""
        older = tuple(known for known in self._by_name.get(name, ()) if known != secret)
        self._by_name[name] = (secret, *older)[:SECRETS_PER_NAME]
        if len(self._by_name) > NAMES:
            del self._by_name[next(known for known in self._by_name if known != EVERYONE)]

    def secrets_for(self, name: str) -> tuple[Secret, ...]:
        """The secrets that count for this name, newest first; empty if there is none at all."""
        return self._by_name.get(name) or self._by_name[EVERYONE]

    def forget(self, name: str | None = None) -> None:
        """Forget the secrets of one name, or of all of them and of everyone."""
        if name is None:
            self._by_name = {EVERYONE: ()}
        elif name == EVERYONE:
            self._by_name[EVERYONE] = ()
        else:
            self._by_name.pop(name, None)
