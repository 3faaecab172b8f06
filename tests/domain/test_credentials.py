"""Claims about what a credential is good for."""

from __future__ import annotations

import pytest

from relay.domain.credentials import ADMINISTERING, Scope, held


@pytest.mark.parametrize(
    ("scopes", "permits"),
    [
        ([], set()),
        (["ingest"], {"ingest"}),
        (["read"], {"read"}),
        (["ingest", "read"], {"ingest", "read"}),
        (["admin"], {"ingest", "read", "admin"}),
        (["operator"], {"ingest", "read", "admin", "operator"}),
    ],
)
def test_a_scope_permits_what_it_includes_and_nothing_else(scopes: list[str], permits: set[str]) -> None:
    assert held(map(Scope, scopes)) == permits


def test_only_who_may_make_credentials_administers() -> None:
    assert {scope for scope in Scope if Scope.ADMIN in held([scope])} == ADMINISTERING
