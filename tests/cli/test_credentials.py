"""Claims about `relay keys`, `relay sources` and `relay tenants`: the first key without a gateway, all else by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.cli.scripted_api import scripted
from tests.support.installation import LOOPBACK, Installation, Service, free_port


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the Relay of this module lives."""
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="module")
def guarded(folder: Path) -> Iterator[tuple[Service, str]]:
    """A Relay that listens openly, since its first key was made before; and that key's secret."""
    installation = Installation(folder, None)
    try:
        lonely = Shell(RELAY_DATA_DIR=str(installation.folder / "data"))
        made = lonely.document("keys", "create", "--local", "--scope", "operator")
        service = installation.up("--dev", bind=f"0.0.0.0:{free_port()}")
        assert service.started
        yield service, made["secret"]
    finally:
        installation.close()


@pytest.fixture
def admin(guarded: tuple[Service, str]) -> Shell:
    """Commands that show the first key."""
    service, secret = guarded
    return Shell(RELAY_URL=service.url, RELAY_API_KEY=secret)


def test_without_a_key_a_command_says_what_to_set(guarded: tuple[Service, str]) -> None:
    done = Shell(RELAY_URL=guarded[0].url).run("keys", "list")
    assert done.returncode == 1
    assert only_line(done.stderr).endswith("(credential_missing); set RELAY_API_KEY to a valid key")


def test_a_key_is_made_shown_once_and_revoked(guarded: tuple[Service, str], admin: Shell) -> None:
    made = admin.document("keys", "create", "shop", "--scope", "ingest")
    shop = Shell(RELAY_URL=guarded[0].url, RELAY_API_KEY=made["secret"])
    assert shop.document("send", "invoice.paid", stdin=b"{}")["receipt_id"]
    assert shop.run("keys", "list").returncode == 1
    listed = admin.run("keys", "list")
    assert made["secret"].encode() not in listed.stdout
    assert made["id"] in [each["id"] for each in json.loads(listed.stdout)]
    assert admin.document("keys", "revoke", "shop", "--yes") == {"id": made["id"], "revoked": True}
    assert shop.run("send", "invoice.paid", stdin=b"{}").returncode == 1


def test_a_source_is_made_rotated_and_removed(admin: Shell) -> None:
    made = admin.document("sources", "create", "billing", "--auth", "bearer", "--auth", "hmac")
    key = admin.document("keys", "create", "billing-2", "--scope", "ingest", "--source", "billing")
    assert key["source"] == "billing"
    rotated = admin.document("sources", "rotate", "billing")
    assert rotated["secret"] != made["secret"]
    again = admin.run("sources", "rotate", "billing")
    assert again.returncode == 1
    assert only_line(again.stderr).endswith("would end now: wait until then, or add --force")
    assert admin.document("sources", "rotate", "billing", "--force")["secret"] != rotated["secret"]
    assert [each["name"] for each in admin.document("sources", "list")] == ["billing"]
    assert admin.document("sources", "remove", made["id"], "--yes") == {"id": made["id"], "removed": True}
    assert "billing-2" not in [each["name"] for each in admin.document("keys", "list")]


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("keys", "create", "x", "--scope", "read", "--source", "nobody"), "--source: "),
        (("keys", "create", "x", "--scope", "read", "--tenant", "acct_nobody"), "--tenant: "),
        (("sources", "create", "key:a", "--auth", "hmac"), "NAME: "),
        (("tenants", "create", "x", "--id", "acct_default"), "--id: "),
    ],
)
def test_what_is_refused_is_told_by_the_option_that_said_it(
    admin: Shell, arguments: tuple[str, ...], option: str
) -> None:
    done = admin.run(*arguments)
    assert done.returncode == 1
    assert only_line(done.stderr).startswith(option)


def test_who_lacks_an_operators_scope_is_told_how_such_a_key_is_made(
    guarded: tuple[Service, str], admin: Shell
) -> None:
    made = admin.document("keys", "create", "admin-alone", "--scope", "admin")
    done = Shell(RELAY_URL=guarded[0].url, RELAY_API_KEY=made["secret"]).run(
        "tenants", "change", "acct_default", "--strict-schemas"
    )
    assert done.returncode == 1
    assert "`relay keys create ops --local --scope operator`" in only_line(done.stderr)


def test_a_sources_certificate_is_changed_and_taken_off(admin: Shell) -> None:
    admin.document("sources", "create", "mesh", "--auth", "mtls", "--subject", "mesh.example.com")
    changed = admin.document("sources", "change", "mesh", "--subject", "Mesh-2.example.com")
    assert (changed["certificate_subject"], changed["secret"]) == ("mesh-2.example.com", None)
    bare = admin.run("sources", "change", "mesh", "--no-certificate")
    assert bare.returncode == 2
    assert "add --auth with what is left" in only_line(bare.stderr)
    shown = on_a_terminal(admin, "sources", "change", "mesh", "--no-certificate", "--auth", "hmac")
    assert "whsec_" in shown
    again = on_a_terminal(admin, "sources", "change", "mesh", "--auth", "hmac")
    assert "secret " not in again
    admin.document("sources", "remove", "mesh", "--yes")


def test_a_tenant_is_made_with_a_key_of_its_own_and_removed(guarded: tuple[Service, str], admin: Shell) -> None:
    made = admin.document("tenants", "create", "Acme", "--id", "acct_acme")
    assert (made["id"], made["name"], made["strict_schemas"]) == ("acct_acme", "Acme", False)
    key = admin.document("keys", "create", "acme", "--scope", "admin", "--tenant", "acct_acme")
    acme = Shell(RELAY_URL=guarded[0].url, RELAY_API_KEY=key["secret"])
    assert acme.document("tenants", "list") == [made]
    assert {"acct_default", "acct_acme"} <= {each["id"] for each in admin.document("tenants", "list")}
    in_use = admin.run("tenants", "remove", "acct_acme", "--yes")
    assert (in_use.returncode, "(tenant_in_use)" in only_line(in_use.stderr)) == (1, True)
    made = admin.document("tenants", "create", "Bolt")
    assert admin.document("tenants", "remove", made["id"], "--yes") == {"id": made["id"], "removed": True}
    assert made["id"] not in [each["id"] for each in admin.document("tenants", "list")]
    gone = admin.run("tenants", "remove", made["id"], "--yes")
    assert (gone.returncode, "(not_found)" in only_line(gone.stderr)) == (1, True)


def test_a_tenant_is_strict_from_its_creation_or_from_a_change_on(guarded: tuple[Service, str], admin: Shell) -> None:
    made = admin.document("tenants", "create", "Strict", "--id", "acct_strict", "--strict-schemas")
    assert made["strict_schemas"] is True
    key = admin.document("keys", "create", "strict", "--scope", "admin", "--tenant", "acct_strict")
    strict = Shell(RELAY_URL=guarded[0].url, RELAY_API_KEY=key["secret"])
    refused = strict.run("send", "never.described", stdin=b"{}")
    assert (refused.returncode, "schema" in only_line(refused.stderr)) == (1, True)
    assert admin.document("tenants", "change", "acct_strict", "--no-strict-schemas")["strict_schemas"] is False
    assert strict.document("send", "never.described", stdin=b"{}")["receipt_id"]
    assert admin.document("tenants", "change", "acct_strict", "--strict-schemas")["strict_schemas"] is True
    assert strict.run("send", "never.described", stdin=b"{}").returncode == 1


def test_only_an_operator_makes_tenants(guarded: tuple[Service, str], admin: Shell) -> None:
    key = admin.document("keys", "create", "no-operator", "--scope", "admin")
    done = Shell(RELAY_URL=guarded[0].url, RELAY_API_KEY=key["secret"]).run("tenants", "create", "Mine")
    assert (done.returncode, "(scope_missing)" in only_line(done.stderr)) == (1, True)


def test_a_person_sees_tables(admin: Shell) -> None:
    admin.document("sources", "create", "shown", "--auth", "hmac")
    assert "shown" in on_a_terminal(admin, "sources", "list")
    assert "operator" in on_a_terminal(admin, "keys", "list")
    assert "acct_default" in on_a_terminal(admin, "tenants", "list")
    assert "rlk_" in on_a_terminal(admin, "keys", "create", "for-a-person", "--scope", "read")


def test_a_name_that_there_is_not_is_told(admin: Shell) -> None:
    done = admin.run("keys", "revoke", "nobody", "--yes")
    assert (done.returncode, only_line(done.stderr)) == (1, "no key is called 'nobody': `relay keys list` shows them")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("keys", "create", "a"), "Say what the key may do"),
        (("keys", "create", "--local", "--source", "a"), "--local makes keys for people"),
        (("keys", "create", "a", "--scope", "root"), "'root' is not one of"),
        (("keys", "create", " a", "--local"), "a name has 1 to 100 printable characters"),
        (("keys", "create", "a", "--local", "--tenant", "acme"), "a tenant's id is acct_"),
        (("keys", "revoke", "a"), "There is nobody to ask: add --yes."),
        (("sources", "create", "a"), "Missing option '--auth'"),
        (("sources", "remove", "a"), "There is nobody to ask: add --yes."),
        (("sources", "change", "a"), "Say what to change: add --auth, --subject or --no-certificate."),
        (("sources", "change", "a", "--subject", "b", "--no-certificate"), "It has a certificate or none"),
        (("tenants", "remove", "acct_a"), "There is nobody to ask: add --yes."),
        (("tenants", "remove", "a", "--yes"), "a tenant's id is acct_"),
        (("tenants", "change", "acct_a"), "Say what to change: add --strict-schemas or"),
    ],
)
def test_a_wrong_usage_says_what_is_right(lonely: Shell, words: tuple[str, ...], says: str) -> None:
    done = lonely.run(*words)
    assert done.returncode == 2
    assert says in done.stderr.decode()


def test_a_local_key_is_made_beside_a_running_relay_and_works_there_at_once(
    guarded: tuple[Service, str], folder: Path
) -> None:
    service, _ = guarded
    shell = Shell(RELAY_DATA_DIR=str(folder / "data"))
    made = shell.document("keys", "create", "rescue", "--local")
    assert made["scopes"] == ["admin"]
    again = shell.run("keys", "create", "rescue", "--local")
    assert (again.returncode, "choose another name" in again.stderr.decode()) == (1, True)
    nowhere = shell.run("keys", "create", "--local", "--tenant", "acct_nobody")
    assert (nowhere.returncode, "there is no tenant acct_nobody" in nowhere.stderr.decode()) == (1, True)
    assert Shell(RELAY_URL=service.url, RELAY_API_KEY=made["secret"]).run("keys", "list").returncode == 0


def test_a_local_key_needs_a_database_and_says_so() -> None:
    shell = Shell(DATABASE_URL=f"postgresql://nobody@{LOOPBACK}:1/none", RELAY_SECRET_KEYS="A" * 43 + "=")
    done = shell.run("keys", "create", "--local")
    assert done.returncode == 1
    assert "DATABASE_URL" in only_line(done.stderr)


@pytest.mark.parametrize(
    ("words", "made", "says"),
    [
        (
            ("keys", "create", "shop", "--scope", "ingest"),
            {"scopes": ["ingest"], "source": None},
            ["Its secret is shown this once.", "export RELAY_API_KEY=s3cret"],
        ),
        (
            ("sources", "create", "shop", "--auth", "bearer"),
            {"auth": ["bearer"]},
            ["Its secret is shown this once: whoever sends puts it into the header Authorization, behind Bearer"],
        ),
        (("sources", "create", "shop", "--auth", "hmac"), {"auth": ["hmac"]}, ["shown this once: whoever sends signs"]),
    ],
)
def test_a_person_is_told_what_the_secret_is_for_and_that_it_is_shown_once(
    words: tuple[str, ...], made: dict[str, Any], says: list[str]
) -> None:
    with scripted(lambda _: (201, {"id": "x_1", "name": "shop", "secret": "s3cret", **made})) as api:
        shown = on_a_terminal(Shell(RELAY_URL=api.url), *words)
    for each in says:
        assert each in shown
