"""Claims about the commands that list and watch: filters, cursors, how much is shown, and what a person sees of it."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.cli.scripted_api import Answer, Call, scripted
from tests.cli.test_clients import receiver
from tests.support.installation import Service


def sent(shell: Shell, event_type: str, *words: str) -> str:
    return str(shell.document("send", event_type, *words)["receipt_id"])


def ids(listed: Any) -> list[str]:
    return [each["receipt_id"] for each in listed]


def test_receipts_are_listed_newest_first_by_what_is_asked_for(relay: Service, shell: Shell) -> None:
    endpoint = receiver(relay, "/ok/listed")
    shell.document("endpoints", "add", endpoint, "--name", "listed", "--type", "listed.routed")
    first, second = sent(shell, "listed.routed"), sent(shell, "listed.routed", "--key", "listed-2")
    other = sent(shell, "listed.unrouted")
    for receipt in (first, second):
        assert shell.run("receipt", receipt, "--watch").returncode == 0

    def found(*words: str) -> list[str]:
        return ids(shell.document("receipt", *words))

    assert found("--type", "listed.*") == [other, second, first]
    assert found("--type", "listed.*", "--state", "open") == [other]
    assert found("--consumer", "listed", "--since", "1h") == [second, first]
    assert found("--event-id", "listed-2") == [second]
    assert found("--type", "listed.*", "--until", "2020-01-01T00:00:00+01:00") == []


def test_a_list_that_was_cut_short_says_so_and_all_of_it_can_be_had(shell: Shell) -> None:
    receipts = [sent(shell, "cut.short") for _ in range(3)]
    done = shell.run("receipt", "--type", "cut.short", "--limit", "2")
    assert ids(json.loads(done.stdout)) == receipts[:0:-1]
    assert only_line(done.stderr) == "there are more, of which 2 are listed: --limit and --all list them"

    done = shell.run("receipt", "--type", "cut.short", "--all")
    assert (ids(json.loads(done.stdout)), done.stderr) == (receipts[::-1], b"")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("receipt", "--watch"), r"--watch watches one receipt: add its ID\."),
        (("receipt", "rcp_1", "--state", "open"), r"A filter is for the list"),
        (("receipt", "--since", "yesterday"), r"'yesterday' is no instant: write 2026-11-30T12:00:00Z, or 15m"),
        (("receipt", "--since", "2026-11-30T12:00:00"), r"is no instant"),
        (("receipt", "--all", "--limit", "3"), r"--all has no --limit"),
        (("receipt", "--limit", "0"), r"0 is not in the range"),
        (("deliveries", "ledger", "--status", "lost"), r"'lost' is not one of 'pending', 'in_flight'"),
        (("deliveries", "0198c0de-4b5e-7a3c-9f10-d2b4a6c8e0f1", "--status", "dead"), r"--status is for the list"),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, tuple) else "",
)
def test_what_cannot_be_asked_for_is_a_wrong_usage(lonely: Shell, words: tuple[str, ...], says: str) -> None:
    done = lonely.run(*words)
    assert done.returncode == 2
    assert re.search(says, only_line(done.stderr))


def test_a_consumer_that_nobody_knows_is_told_with_those_there_are(relay: Service, shell: Shell) -> None:
    shell.document("endpoints", "add", receiver(relay, "/ok"), "--name", "known", "--type", "known.*")
    done = shell.run("receipt", "--consumer", "unknown")
    assert done.returncode == 1
    assert "(bad_filter)" in only_line(done.stderr)


def test_cursors_are_followed_over_empty_pages(lonely: Shell) -> None:
    pages = {
        None: {"data": [{"receipt_id": "rcp_2"}], "next_cursor": "a+b/c="},
        "a+b/c=": {"data": [], "next_cursor": "last"},
        "last": {"data": [{"receipt_id": "rcp_1"}], "next_cursor": None},
    }

    def answer(call: Call) -> Answer:
        query = query_of(call.path)
        assert query["type"] == "invoice.*"
        return 200, pages[query.get("cursor")]

    with scripted(answer) as api:
        lonely.environment["RELAY_URL"] = api.url
        assert ids(lonely.document("receipt", "--type", "invoice.*", "--all")) == ["rcp_2", "rcp_1"]


def query_of(path: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(path).query))


def test_the_deliveries_of_an_endpoint_and_one_with_its_attempts(relay: Service, shell: Shell) -> None:
    shell.document("endpoints", "add", receiver(relay, "/status/400"), "--name", "owed", "--type", "owed.*")
    receipts = [sent(shell, "owed.first"), sent(shell, "owed.second")]
    for receipt in receipts:
        shell.run("receipt", receipt, "--watch")

    listed = shell.document("deliveries", "owed")
    assert ids(listed) == receipts[::-1]
    assert shell.document("deliveries", "owed", "--status", "dead", "--limit", "5") == listed
    assert shell.document("deliveries", "owed", "--status", "delivered") == []
    one = shell.document("deliveries", listed[0]["id"])
    assert [each["status_code"] for each in one["attempts"]] == [400]

    shown = on_a_terminal(shell, "deliveries", "owed")
    assert re.search(rf"{listed[0]['id']} +{receipts[1]} +dead +1 +(?:- +)*permanent_failure", shown)
    shown = on_a_terminal(shell, "deliveries", listed[0]["id"])
    assert re.search(r"^at +attempt +generation +outcome +answer", shown, re.MULTILINE)
    assert re.search(r" 1 +0 +permanent.* 400 ", shown)


def test_a_list_of_receipts_tells_what_comes_by_itself_from_what_does_not(lonely: Shell) -> None:
    def delivery(status: str, waiting_for: str | None = None) -> dict[str, object]:
        return {"status": status, "waiting_for": waiting_for}

    receipt = {
        "receipt_id": "rcp_1", "received_at": "2026-01-31T09:05:00Z", "type": "a.b", "state": "open", "outcome": None,
        "reason": None, "delivery_count": 7,
        "deliveries": [
            delivery("delivered"), delivery("dead"), delivery("pending", "retry"), delivery("pending", "breaker"),
            delivery("in_flight"), delivery("in_flight", "ack"), delivery("pending"),
        ],
    }  # fmt: skip
    with scripted(lambda _: (200, {"data": [receipt], "next_cursor": None})) as api:
        lonely.environment["RELAY_URL"] = api.url
        shown = on_a_terminal(lonely, "receipt", "--state", "open")
    assert "1 dead, 1 waiting: retry, 1 waiting: breaker, 1 in flight, 1 waiting: ack, 1 due" in shown


def test_how_a_receipt_closed_is_said_without_a_second_closed(lonely: Shell) -> None:
    receipt: dict[str, object] = {
        "receipt_id": "rcp_1", "received_at": "2026-01-31T09:05:00Z", "type": "a.b", "state": "closed",
        "outcome": "closed_incomplete", "reason": None, "delivery_count": 0, "deliveries": [], "timeline": [],
        "discarded": 1,
    }  # fmt: skip

    def answer(call: Call) -> Answer:
        return 200, {"data": [receipt], "next_cursor": None} if "?" in call.path else receipt

    with scripted(answer) as api:
        lonely.environment["RELAY_URL"] = api.url
        for words in (("receipt", "rcp_1"), ("receipt", "--state", "closed")):
            assert "closed: incomplete" in on_a_terminal(lonely, *words)


def test_a_wait_behind_a_gate_is_shown_as_a_wait_and_not_as_an_attempt(lonely: Shell) -> None:
    plain = {
        "at": "2026-01-31T09:05:00Z", "generation": 0, "status_code": None, "error_class": None, "snippet": None,
        "deferred_for_ms": None, "total_ms": None,
    }  # fmt: skip
    attempts = [
        {**plain, "attempt": 1, "outcome_class": "retryable", "reason": "500 (server_error)", "status_code": 500,
         "total_ms": 2.0},
        {**plain, "attempt": 1, "outcome_class": "deferred", "reason": "breaker", "deferred_for_ms": 30_250},
    ]  # fmt: skip
    delivery_id = "0198c0de-4b5e-7a3c-9f10-d2b4a6c8e0f1"
    one = {"id": delivery_id, "status": "pending", "attempts": attempts}
    with scripted(lambda _: (200, one)) as api:
        lonely.environment["RELAY_URL"] = api.url
        shown = on_a_terminal(lonely, "deliveries", delivery_id)
    assert re.search(r"Z +1 +0 +retryable: 500 \(server_error\) +500 +2\.0 +- *\r?$", shown, re.MULTILINE)
    assert re.search(r"Z +- +0 +deferred: breaker +- +- +30\.2 s *\r?$", shown, re.MULTILINE)


def test_a_person_sees_a_line_for_each_receipt(shell: Shell) -> None:
    receipt = sent(shell, "seen.as-line")
    shown = on_a_terminal(shell, "receipt", "--type", "seen.as-line")
    assert re.search(rf"Z +{receipt} +seen\.as-line +0 +open: no_route", shown)
    assert "no such receipts" in on_a_terminal(shell, "receipt", "--type", "seen.never")


def test_watching_waits_at_the_relay_and_looks_again_where_it_is_overloaded(lonely: Shell) -> None:
    opened = {
        "receipt_id": "rcp_1", "type": "a.b", "state": "open", "outcome": None, "reason": None, "timeline": [],
        "deliveries": [{"status": "pending", "waiting_for": None}],
    }  # fmt: skip
    answers = [
        (200, opened),
        (200, opened),
        (503, {"code": "overloaded", "title": "Too many wait"}),
        (200, opened),
        (200, {**opened, "state": "closed", "outcome": "delivered"}),
    ]
    with scripted(lambda _: answers.pop(0)) as api:
        lonely.environment["RELAY_URL"] = api.url
        assert lonely.document("receipt", "rcp_1", "--watch")["outcome"] == "delivered"
    assert [call.path.partition("?")[0].removeprefix("/v1/receipts/rcp_1") for call in api.calls] == [
        "", "/wait", "/wait", "", "/wait",
    ]  # fmt: skip
