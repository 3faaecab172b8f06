"""Claims about `relay audit`: what was entered is shown, as it is to a program and as a table to a person."""

from __future__ import annotations

from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.cli.test_clients import receiver
from tests.support.installation import Service


def test_a_change_is_shown_with_who_asked_for_it(relay: Service, shell: Shell) -> None:
    endpoint = shell.document("endpoints", "add", receiver(relay, "/ok"), "--name", "audited", "--type", "audited")
    shell.document("endpoints", "pause", "audited")
    entries = shell.document("audit", "--subject", endpoint["id"])
    assert [each["action"] for each in entries] == ["endpoint.pause", "endpoint.create"]
    assert {each["actor"] for each in entries} == {"anonymous"}
    assert shell.document("audit", "--subject", endpoint["id"], "--action", "endpoint.pause") == entries[:1]
    assert shell.document("audit", "--subject", endpoint["id"], "--limit", "1") == entries[:1]


def test_a_person_sees_a_table(relay: Service, shell: Shell) -> None:
    endpoint = shell.document(
        "endpoints", "add", receiver(relay, "/ok"), "--name", "tabled", "--type", "tabled", "--burst", "7"
    )
    shell.document("endpoints", "change", "tabled", "--burst", "9")
    seen = on_a_terminal(shell, "audit", "--subject", endpoint["id"], "--action", "endpoint.change")
    assert f"anonymous  endpoint.change  {endpoint['id']}  tabled  burst: 7 -> 9" in seen


def test_a_list_without_entries_says_so(relay: Service, shell: Shell) -> None:
    assert "no such entries" in on_a_terminal(shell, "audit", "--actor", "key:nobody")
    assert shell.document("audit", "--actor", "key:nobody") == []


def test_an_unknown_action_is_wrong_usage(shell: Shell) -> None:
    done = shell.run("audit", "--action", "endpoint.destroy")
    assert done.returncode == 2
    assert "endpoint.remove" in only_line(done.stderr)
