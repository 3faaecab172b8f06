"""Who calls: what the HTTP rooms know of whoever made a request.

Owns the one shape of that knowledge. Invariant: whatever a request reads or changes belongs to its caller's tenant.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay.domain.credentials import Scope, held


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever made a request: the source and the tenant that it belongs to, and what it may do there.

    `actor` names the credential in words, for records of who changed what: `key:<name>`, `source:<name>` or
    `anonymous`. `scopes` are those that the credential holds, with all that they include.
    """

    tenant: str
    source: str
    actor: str
    scopes: frozenset[Scope]


ANONYMOUS = Caller("acct_default", "anonymous", "anonymous", held({Scope.OPERATOR}))
"""Everybody, as long as no credential is configured. The first migration writes both names."""
