"""Claims about re-driving and discarding from the command line, against a running Relay."""

from __future__ import annotations

import json
import re

import httpx
import pytest

from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.cli.test_clients import receiver
from tests.support.installation import Service


def refuses(relay: Service, shell: Shell, name: str) -> str:
    """An endpoint that takes nothing, for the type of its name; answers its id."""
    made = shell.document("endpoints", "add", receiver(relay, "/status/400"), "--name", name, "--type", name)
    return str(made["id"])


def mend(relay: Service, endpoint: str) -> None:
    """Have the endpoint take what it gets."""
    body = {"url": receiver(relay, "/ok/mended")}
    httpx.patch(f"{relay.url}/v1/endpoints/{endpoint}", json=body, trust_env=False).raise_for_status()


def dead(shell: Shell, event_type: str) -> str:
    """The receipt of an event that is a dead letter now."""
    receipt = str(shell.document("send", event_type)["receipt_id"])
    done = shell.run("receipt", receipt, "--watch")
    assert f"`relay redrive {receipt}`" in only_line(done.stderr)
    return receipt


def test_what_watching_advises_brings_a_receipt_to_its_end(relay: Service, shell: Shell) -> None:
    endpoint = refuses(relay, shell, "advised")
    receipt = dead(shell, "advised")
    mend(relay, endpoint)
    answer = shell.document("redrive", receipt)
    assert [(each["consumer"], each["generation"]) for each in answer["redriven"]] == [("advised", 1)]
    assert shell.document("receipt", receipt, "--watch")["outcome"] == "delivered_after_redrive"
    assert shell.document("redrive", receipt)["redriven"] == []


def test_an_event_that_nobody_wanted_is_routed_anew(relay: Service, shell: Shell) -> None:
    receipt = shell.document("send", "late.subscriber")["receipt_id"]
    shell.document("endpoints", "add", receiver(relay, "/ok"), "--name", "late", "--type", "late.subscriber")
    assert re.search(r"late +\d", on_a_terminal(shell, "redrive", receipt))
    assert shell.document("receipt", receipt, "--watch")["outcome"] == "delivered_after_redrive"


def test_one_delivery_is_replayed_although_it_was_delivered(relay: Service, shell: Shell) -> None:
    shell.document("endpoints", "add", receiver(relay, "/ok"), "--name", "replayed", "--type", "replayed")
    receipt = shell.document("send", "replayed")["receipt_id"]
    (delivery,) = shell.document("receipt", receipt, "--watch")["deliveries"]
    assert shell.document("redrive", delivery["id"])["generation"] == 1
    (again,) = shell.document("receipt", receipt, "--watch")["deliveries"]
    assert (again["id"], again["generation"], again["status"]) == (delivery["id"], 1, "delivered")


def test_dead_letters_are_listed_counted_and_sent_again(relay: Service, shell: Shell) -> None:
    endpoint = refuses(relay, shell, "counted")
    receipts = [dead(shell, "counted") for _ in range(3)]
    only = ("--consumer", "counted")
    assert [each["receipt_id"] for each in shell.document("dlq", "list", *only)] == receipts[::-1]
    assert shell.document("dlq", "list", *only, "--reason", "exhausted") == []
    shown = on_a_terminal(shell, "dlq", "list", *only)
    assert re.search(rf"Z +{receipts[0]} +\S+ +counted +counted +permanent_failure +1", shown)

    assert shell.document("dlq", "redrive", *only, "--dry-run")["count"] == 3
    mend(relay, endpoint)
    assert shell.document("dlq", "redrive", *only, "--limit", "1") == {"dry_run": False, "count": 1}
    assert shell.document("receipt", receipts[0], "--watch")["outcome"] == "delivered_after_redrive"
    assert shell.document("dlq", "redrive", *only, "--since", "1h") == {"dry_run": False, "count": 2}
    assert shell.document("receipt", receipts[2], "--watch")["outcome"] == "delivered_after_redrive"
    assert shell.document("dlq", "list", *only) == []


def test_discarded_letters_are_gone_and_their_receipts_closed(relay: Service, shell: Shell) -> None:
    refuses(relay, shell, "given-up")
    receipts = [dead(shell, "given-up") for _ in range(2)]
    only = ("--consumer", "given-up")
    done = shell.run("dlq", "discard", *only)
    assert done.returncode == 2
    assert "There is nobody to ask: add --yes." in only_line(done.stderr)
    assert shell.document("dlq", "discard", *only, "--limit", "1") == {"dry_run": False, "count": 1}
    assert shell.document("dlq", "discard", *only, "--yes") == {"dry_run": False, "count": 1}
    assert shell.document("dlq", "list", *only) == []
    assert shell.document("receipt", receipts[1])["outcome"] == "closed_incomplete"
    assert "dead, discarded" in on_a_terminal(shell, "receipt", receipts[0])


@pytest.mark.parametrize(("what", "asks"), [("redrive", "Re-drive 2 dead"), ("discard", "Discard, for good, 2 dead")])
def test_a_person_is_asked_before_more_than_one_is_changed(relay: Service, shell: Shell, what: str, asks: str) -> None:
    name = f"asked-{what}"
    refuses(relay, shell, name)
    for _ in range(2):
        dead(shell, name)
    shown = on_a_terminal(shell, "dlq", what, "--consumer", name, typed=b"n\n")
    assert f"{asks} letters?" in shown
    assert "nothing is" in shown
    assert len(shell.document("dlq", "list", "--consumer", name)) == 2
    shown = on_a_terminal(shell, "dlq", what, "--consumer", name, typed=b"y\n")
    assert re.search(r"\b2 (re-driven|discarded)\r?$", shown, re.MULTILINE)


def test_a_test_event_goes_to_that_endpoint_alone(relay: Service, shell: Shell) -> None:
    shell.document("endpoints", "add", receiver(relay, "/ok"), "--name", "tested", "--type", "never.sent")
    shell.document("endpoints", "add", receiver(relay, "/ok"), "--name", "tested-not", "--type", "relay.test")
    accepted = shell.document("endpoints", "test", "tested")
    receipt = shell.document("receipt", accepted["receipt_id"], "--watch")
    assert receipt["type"] == "relay.test"
    assert [each["consumer"] for each in receipt["deliveries"]] == ["tested"]
    assert json.loads(shell.run("receipt", "--type", "relay.test").stdout)[0]["receipt_id"] == accepted["receipt_id"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("redrive", "0198c0de-4b5e-7a3c-9f10-d2b4a6c8e0f1", "--consumer", "ledger"), "leave it out"),
        (("dlq", "redrive", "--reason", "bored"), "'bored' is not one of 'exhausted'"),
        (("dlq", "discard", "--limit", "0"), "0 is not in the range"),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, tuple) else "",
)
def test_what_cannot_be_asked_for_is_a_wrong_usage(lonely: Shell, words: tuple[str, ...], says: str) -> None:
    done = lonely.run(*words)
    assert done.returncode == 2
    assert says in only_line(done.stderr)


def test_what_is_not_there_is_told(shell: Shell) -> None:
    for words in (("redrive", "rcp_" + "0" * 32), ("redrive", "0198c0de-4b5e-7a3c-9f10-d2b4a6c8e0f1")):
        done = shell.run(*words)
        assert done.returncode == 1
        assert "(not_found)" in only_line(done.stderr)
