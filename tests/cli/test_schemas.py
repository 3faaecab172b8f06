"""Claims about `relay schemas`: what is put comes back, what is wrong is told, and where."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.support.installation import Service

SCHEMA = b'{ "type": "object",\n  "required": ["amount"], "title": "Z\xc3\xbcrich" }\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "invoice.schema.json"
    path.write_bytes(SCHEMA)
    return path


def test_a_schema_is_put_listed_shown_and_in_force(relay: Service, shell: Shell, file: Path) -> None:
    put = shell.document("schemas", "put", "cli.paid/v2", str(file))
    assert (put["name"], put["size_bytes"]) == ("cli.paid/v2", len(SCHEMA))
    assert shell.document("schemas", "put", "cli.paid/v2", str(file)) == put
    assert shell.document("schemas", "list", "--type", "cli.paid") == [put]
    assert shell.run("schemas", "show", "cli.paid/v2").stdout == SCHEMA
    refused = shell.run("send", "cli.paid")
    assert refused.returncode == 1
    assert '"amount" is a required property (schema_violation)' in only_line(refused.stderr)


def test_an_older_version_that_is_put_late_is_not_called_in_force(relay: Service, shell: Shell, file: Path) -> None:
    assert "cli.late/v10 is in the catalogue and in force" in on_a_terminal(
        shell, "schemas", "put", "cli.late/v10", str(file)
    )
    assert "cli.late/v9 is in the catalogue; v10 counts unless a sender names v9" in on_a_terminal(
        shell, "schemas", "put", "cli.late/v9", str(file)
    )


def test_a_violation_is_told_once_and_as_a_document_to_who_asks_for_one(
    relay: Service, shell: Shell, file: Path
) -> None:
    file.write_bytes(b'{"required": ["amount"], "properties": {"to": {"type": "string"}, "by": {"type": "string"}}}')
    shell.document("schemas", "put", "cli.several/v1", str(file))
    done = shell.run("send", "cli.several", "--json", stdin=b'{"to": 1, "by": 2}')
    says = only_line(done.stderr)
    assert "  " not in says
    assert says.count('"amount" is a required property') == 1
    assert says.count("(schema_violation): ") == 1
    problem = json.loads(done.stdout)
    assert (problem["code"], len(problem["errors"])) == ("schema_violation", 3)


def test_an_event_is_checked_against_the_schema_that_is_named(relay: Service, shell: Shell, file: Path) -> None:
    shell.document("schemas", "put", "cli.named/v1", str(file))
    file.write_bytes(b"true")
    shell.document("schemas", "put", "cli.named/v2", str(file))
    assert shell.run("send", "cli.named").returncode == 0
    for name in ("v1", "cli.named/v1"):
        refused = shell.run("send", "cli.named", "--schema", name)
        assert (refused.returncode, "(schema_violation)" in only_line(refused.stderr)) == (1, True)
    accepted = shell.document("send", "cli.named", "--schema", "v1", stdin=b'{"amount": 1}')
    assert shell.document("receipt", accepted["receipt_id"])["schema"] == "cli.named/v1"
    unknown = shell.run("send", "cli.named", "--schema", "newest")
    assert (unknown.returncode, "Relay-Schema" in only_line(unknown.stderr)) == (1, True)


def test_a_person_sees_a_table(relay: Service, shell: Shell, file: Path) -> None:
    shell.document("schemas", "put", "cli.table/v1", str(file))
    seen = on_a_terminal(shell, "schemas", "list", "--type", "cli.table")
    assert re.search(rf"cli\.table/v1 +{len(SCHEMA)} +[0-9a-f]{{64}} ", seen)


def test_another_schema_of_a_name_is_refused(relay: Service, shell: Shell, file: Path) -> None:
    shell.document("schemas", "put", "cli.other/v1", str(file))
    file.write_bytes(b"true")
    done = shell.run("schemas", "put", "cli.other/v1", str(file))
    assert done.returncode == 1
    assert "put a new version (schema_exists)" in only_line(done.stderr)


def test_a_bad_schema_is_refused_with_the_place(relay: Service, shell: Shell, file: Path) -> None:
    file.write_bytes(json.dumps({"items": {"$ref": "http://127.0.0.1/x"}}).encode())
    done = shell.run("schemas", "put", "cli.bad/v1", str(file))
    assert done.returncode == 1
    assert "/items/$ref: refers to something outside" in only_line(done.stderr)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("put", "invoice.paid", "x.json"), "type and version: invoice.paid/v3"),
        (("show", "v3"), "type and version: invoice.paid/v3"),
        (("put", "a/v1", "/nonexistent/x.json"), "cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_usage_says_what_is_wanted(lonely: Shell, words: tuple[str, ...], says: str) -> None:
    done = lonely.run("schemas", *words)
    assert done.returncode == 2
    assert says in only_line(done.stderr)
