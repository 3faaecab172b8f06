"""What a credential is good for.

Owns the closed set of scopes and which of them another one includes. Invariant: a scope that is not held, by itself or
inside another one, permits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Scope(StrEnum):
    """What a credential may do: the first three inside its tenant, `operator` across tenants."""

    INGEST = "ingest"
    READ = "read"
    ADMIN = "admin"
    OPERATOR = "operator"


ADMINISTERING = frozenset({Scope.ADMIN, Scope.OPERATOR})
"""Whoever holds one of these may make credentials."""

_INCLUDED = {
    Scope.INGEST: frozenset({Scope.INGEST}),
    Scope.READ: frozenset({Scope.READ}),
    # whoever makes keys could make one for each of these
    Scope.ADMIN: frozenset({Scope.INGEST, Scope.READ, Scope.ADMIN}),
    Scope.OPERATOR: frozenset(Scope),
}


def held(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """The scopes with all that they include."""
    return frozenset().union(*(_INCLUDED[scope] for scope in scopes))
