"""Claims about `relay tenants` where Relay does one half of what was asked."""

from __future__ import annotations

import re

from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.cli.scripted_api import Answer, Call, scripted

MADE = {"id": "acct_acme", "name": "Acme", "strict_schemas": False, "created_at": "2026-01-31T00:00:00.000Z"}


def test_a_tenant_that_was_made_and_could_not_be_made_strict_is_told_as_that() -> None:
    def answer(call: Call) -> Answer:
        return (201, MADE) if call.method == "POST" else (503, {"code": "database_unavailable", "title": "later"})

    with scripted(answer) as api:
        done = Shell(RELAY_URL=api.url).run("tenants", "create", "Acme", "--strict-schemas")
    assert done.returncode == 1
    assert only_line(done.stderr) == (
        "the tenant acct_acme is there, and not strict yet (later (database_unavailable)):"
        " try `relay tenants change acct_acme --strict-schemas`"
    )
    assert [(call.method, call.path) for call in api.calls] == [
        ("POST", "/v1/tenants"),
        ("PATCH", "/v1/tenants/acct_acme"),
    ]


def test_a_tenant_says_the_same_of_itself_as_the_list_of_tenants() -> None:
    with scripted(lambda _: (200, MADE)) as api:
        shown = on_a_terminal(Shell(RELAY_URL=api.url), "tenants", "change", "acct_acme", "--no-strict-schemas")
    assert re.search(r"^types without a schema +taken", shown, re.MULTILINE)
    assert "strict_schemas" not in shown
