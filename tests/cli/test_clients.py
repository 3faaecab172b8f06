"""Claims about the commands that talk to a running Relay."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.support.installation import Service


def receiver(relay: Service, path: str) -> str:
    return f"{relay.started['receiver']}{path}"


def arrived(relay: Service, path: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{relay.started['receiver']}/received", params={"path": path}, trust_env=False)
    return list(answer.json()["data"])


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [
        (b'{"amount": 1e400, "amount": 2}', "application/json"),
        (b"\x00\xff no JSON", "application/octet-stream"),
        (b"[" * 100_000, "application/octet-stream"),
    ],
    ids=["json", "bytes", "too deep for JSON"],
)
def test_a_payload_arrives_byte_for_byte(
    relay: Service, shell: Shell, payload: bytes, content_type: str, request: pytest.FixtureRequest
) -> None:
    event_type = f"bytes.{request.node.callspec.id.replace(' ', '-')}"
    path = f"/ok/{event_type}"
    shell.document("endpoints", "add", receiver(relay, f"{path}?body=1"), "--type", event_type)
    accepted = shell.document("send", event_type, "-", stdin=payload)
    assert shell.document("receipt", accepted["receipt_id"], "--watch")["outcome"] == "delivered"

    (delivery,) = arrived(relay, path)
    body = httpx.get(f"{relay.started['receiver']}/received/{delivery['delivery_id']}/body", trust_env=False)
    assert body.content == payload
    assert dict(delivery["headers"])["content-type"] == content_type


def test_a_file_is_sent_and_a_second_time_under_its_key_is_a_replay(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "event.json").write_text('{"amount": 12}')
    words = ("send", "sent.twice", str(tmp_path / "event.json"), "--key", "invoice-4711")
    first = shell.document(*words)
    assert shell.document(*words) == first
    assert first["event_id"] == "invoice-4711"
    assert "not stored again" in on_a_terminal(shell, *words)


def test_an_endpoint_lives_by_its_name(relay: Service, shell: Shell) -> None:
    url = receiver(relay, "/ok/lives")
    words = ("--name", "lives", "--type", "lives.*", "--rate", "50", "--header", "X-Team: billing")
    made = shell.document("endpoints", "add", url, *words)
    assert made["secret"].startswith("whsec_")
    assert (made["event_types"], made["rate_per_second"], made["headers"]) == (["lives.*"], 50, {"X-Team": "billing"})

    shown = shell.document("endpoints", "show", "lives")
    assert shown["id"] == made["id"]
    assert "secret" not in shown
    assert shell.document("endpoints", "pause", "lives")["state"] == "paused"
    assert shell.document("endpoints", "resume", made["id"])["state"] == "active"
    assert shell.document("endpoints", "rotate-secret", "lives")["secret"] != made["secret"]
    assert "lives" in [each["name"] for each in shell.document("endpoints", "list")]
    assert shell.document("endpoints", "remove", "lives", "--yes") == {"id": made["id"], "removed": True}
    assert only_line(shell.run("endpoints", "show", "lives").stderr).startswith("no endpoint is called 'lives'")


def test_an_own_secret_comes_from_stdin_and_never_from_an_argument(relay: Service, shell: Shell) -> None:
    url = receiver(relay, "/ok/own-secret")
    words = ("endpoints", "add", url, "--name", "own-secret", "--type", "own.secret", "--secret-file", "-")
    made = shell.document(*words, stdin=b"my-own-secret-of-some-length\n")
    assert made["secret"] == "***"
    assert "--secret " not in shell.run("endpoints", "add", "--help").stdout.decode()


def test_what_the_api_refuses_is_told_with_its_code_and_is_1(shell: Shell) -> None:
    done = shell.run("endpoints", "add", "ftp://example.com/hooks")
    assert done.returncode == 1
    assert "(url_refused: scheme)" in only_line(done.stderr)


def test_several_faults_of_a_body_are_told_with_their_places(shell: Shell) -> None:
    done = shell.run("endpoints", "add", "https://example.com", "--rate", "-1", "--burst", "0")
    assert done.returncode == 1
    assert re.search(r"--rate: .*--burst: ", only_line(done.stderr))


def test_an_unknown_receipt_is_1(shell: Shell) -> None:
    done = shell.run("receipt", "rcp_0198c0de4b5e7a3c9f10d2b4a6c8e0f1")
    assert done.returncode == 1
    assert "(not_found)" in only_line(done.stderr)


def test_an_event_that_nobody_gets_is_accepted_and_watching_it_says_what_to_do(shell: Shell) -> None:
    accepted = shell.document("send", "nobody.cares")
    done = shell.run("receipt", accepted["receipt_id"], "--watch")
    assert done.returncode == 1
    assert "relay endpoints add" in only_line(done.stderr)
    assert json.loads(done.stdout)["reason"] == "no_route"


def test_watching_what_only_a_person_can_help_on_ends(relay: Service, shell: Shell) -> None:
    shell.document("endpoints", "add", receiver(relay, "/status/400"), "--type", "always.refused")
    accepted = shell.document("send", "always.refused")
    done = shell.run("receipt", accepted["receipt_id"], "--watch")
    assert done.returncode == 1
    assert "dead-lettered" in only_line(done.stderr)
    assert json.loads(done.stdout)["state"] == "open"


def test_watching_ends_at_its_timeout(relay: Service, shell: Shell) -> None:
    shell.document("endpoints", "add", receiver(relay, "/hang"), "--name", "held-up", "--type", "held.up")
    accepted = shell.document("send", "held.up")
    done = shell.run("receipt", accepted["receipt_id"], "--watch", "--timeout", "0.3")
    assert done.returncode == 1
    assert "still open after 0.3 s" in only_line(done.stderr)


def test_watching_what_a_pause_holds_ends_at_once_and_says_how_it_goes_on(relay: Service, shell: Shell) -> None:
    shell.document("endpoints", "add", receiver(relay, "/ok/held"), "--name", "on hold", "--type", "on.hold")
    shell.document("endpoints", "pause", "on hold")
    accepted = shell.document("send", "on.hold")
    done = shell.run("receipt", accepted["receipt_id"], "--watch")
    assert done.returncode == 1
    assert only_line(done.stderr) == "on hold is paused: it waits until `relay endpoints resume 'on hold'`"


def test_a_test_event_and_a_redrive_say_what_they_wait_for(relay: Service, shell: Shell) -> None:
    shell.document("endpoints", "add", receiver(relay, "/status/410"), "--name", "went", "--type", "went.away")
    receipt = shell.document("send", "went.away")["receipt_id"]
    (delivery,) = json.loads(shell.run("receipt", receipt, "--watch").stdout)["deliveries"]
    for words in (("endpoints", "test", "went"), ("redrive", receipt), ("redrive", delivery["id"])):
        done = shell.run(*words)
        assert done.returncode == 0
        says = only_line(done.stderr)
        assert says.startswith("went is disabled (the endpoint answered 410")
        assert says.endswith("then `relay endpoints resume went`")


def test_a_redrive_that_sends_nothing_says_why(relay: Service, shell: Shell) -> None:
    def says(receipt: str, *words: str) -> str:
        done = shell.run("redrive", receipt, *words)
        assert (done.returncode, json.loads(done.stdout)["redriven"]) == (0, [])
        return done.stderr.decode()

    shell.document("endpoints", "add", receiver(relay, "/ok"), "--name", "taker", "--type", "why.acked")
    acked = shell.document("send", "why.acked")["receipt_id"]
    shell.run("receipt", acked, "--watch")
    assert "taker: acknowledged" in says(acked)
    assert "nothing of it is owed to went" in says(acked, "--consumer", "went")
    assert "no endpoint subscribes to it" in says(shell.document("send", "why.nobody")["receipt_id"])

    shell.document("endpoints", "add", receiver(relay, "/status/400"), "--name", "left", "--type", "why.removed")
    dead = shell.document("send", "why.removed")["receipt_id"]
    shell.run("receipt", dead, "--watch")
    shell.document("endpoints", "remove", "left", "--yes")
    assert "left: the endpoint was removed" in says(dead)

    shell.document("endpoints", "add", receiver(relay, "/ok"), "--name", "rests", "--type", "why.paused")
    shell.document("endpoints", "pause", "rests")
    assert "rests is paused" in says(shell.document("send", "why.paused")["receipt_id"])


def test_a_chats_token_is_given_and_not_shown_again(shell: Shell, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw\n")
    words = ("--name", "given", "--type", "given.*", "--secret-file", str(token))
    for done in (
        shell.run("endpoints", "add", "telegram://42", *words),
        shell.run("endpoints", "rotate-secret", "given", "--secret-file", str(token)),
    ):
        assert done.returncode == 0
        assert json.loads(done.stdout)["secret"] == "***"
        assert "the secret is the one that was given" in only_line(done.stderr)
        assert b"AAHdqTcv" not in done.stdout + done.stderr


def test_what_is_refused_is_told_in_the_names_of_the_options(shell: Shell) -> None:
    said = only_line(shell.run("endpoints", "add", "telegram://42").stderr)
    assert said.startswith("--secret-file: the secret of a telegram endpoint")
    shell.document("endpoints", "add", "https://example.com/named", "--name", "named", "--type", "named.*")
    assert only_line(shell.run("endpoints", "change", "named", "--rate", "-1").stderr).startswith("--rate: ")


def test_an_endpoint_is_changed_by_what_is_named_and_nothing_else(shell: Shell, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("Bearer abcdefgh\n")
    words = ("--name", "changed", "--type", "changed.*", "--header", "X-Team: billing", "--timeout", "4")
    made = shell.document(
        "endpoints", "add", "https://example.com/a", *words, "--header-file", f"Authorization={token}",
        "--retry", "max_attempts=5", "--retry", "window_seconds=600",
    )  # fmt: skip
    assert made["retry"] == {"max_attempts": 5, "window_seconds": 600}
    assert made["headers"] == {"X-Team": "billing", "Authorization": "***"}

    changed = shell.document(
        "endpoints", "change", "changed", "--url", "https://example.com/b", "--rate", "50", "--event-type", "b.*",
        "--header", "X-More: 1", "--remove-header", "x-team", "--reset", "retry",
    )  # fmt: skip
    wanted = {
        "url": "https://example.com/b", "rate_per_second": 50, "event_types": ["b.*"], "retry": None,
        "headers": {"Authorization": "***", "X-More": "1"}, "timeout_seconds": 4, "burst": made["burst"],
    }  # fmt: skip
    assert {name: changed[name] for name in wanted} == wanted
    assert shell.document("endpoints", "change", "changed", "--reset", "timeout")["timeout_seconds"] is None
    assert shell.document("endpoints", "change", "changed", "--preset", "patient")["retry"] == {"preset": "patient"}
    gone = shell.run("endpoints", "change", "changed", "--remove-header", "X-Team")
    assert (gone.returncode, "has no header X-Team" in only_line(gone.stderr)) == (1, True)


def a_table(shown: str, columns: Sequence[str]) -> bool:
    return any(all(column in line for column in columns) for line in shown.splitlines())


def test_a_person_sees_tables_and_the_story_of_a_receipt(relay: Service, shell: Shell) -> None:
    shell.document("endpoints", "add", receiver(relay, "/ok/person"), "--name", "person", "--type", "person.*")
    accepted = shell.document("send", "person.saw")
    assert a_table(on_a_terminal(shell, "endpoints", "list"), ("id", "name", "url", "state"))

    shown = on_a_terminal(shell, "receipt", accepted["receipt_id"], "--watch")
    assert re.findall(r"^ +(B\d) ", shown, re.MULTILINE)[0] == "B1"
    assert re.search(r"B4 +acked +[\d.]+ ms +person", shown)
    assert "closed: delivered" in shown
    assert a_table(shown, ("B1 Accept", "B2 Durable", "B3 Route", "B4 Prove"))
    assert a_table(shown, ("person", "delivered", "1 try"))


def test_the_story_of_a_receipt_is_drawn_on_a_pipe_where_it_is_asked_for(relay: Service, shell: Shell) -> None:
    shell.document("endpoints", "add", receiver(relay, "/status/400"), "--name", "piped", "--type", "piped.*")
    accepted = shell.document("send", "piped.saw")
    shell.run("receipt", accepted["receipt_id"], "--watch")
    shown = shell.run("receipt", accepted["receipt_id"], "--text").stdout.decode()
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "It has not arrived at piped: it is a dead letter at B3" in " ".join(shown.split())
    assert re.search(r"^  x \+.*try 1  400 .*permanent", shown, re.MULTILINE)


def test_json_goes_before_text_where_both_are_asked_for(shell: Shell) -> None:
    accepted = shell.document("send", "both.asked")
    assert shell.document("receipt", accepted["receipt_id"], "--text", "--json")["type"] == "both.asked"


def test_json_can_be_asked_for_on_a_terminal(shell: Shell) -> None:
    shown = json.loads(on_a_terminal(shell, "endpoints", "list", "--json"))
    document = shell.document("endpoints", "list")
    assert [each["id"] for each in shown] == [each["id"] for each in document]


def test_a_person_sees_the_settings_with_where_they_come_from(lonely: Shell) -> None:
    lonely.environment["RELAY_WORKERS"] = "3"
    shown = on_a_terminal(lonely, "config")
    assert re.search(r"RELAY_WORKERS +3 +environment", shown)


def test_a_standalone_service_finds_the_embedded_database_by_its_folder(relay: Service, shell: Shell) -> None:
    folder = str(relay.started["data_dir"])
    assert shell.run("migrate", environment={"RELAY_DATA_DIR": folder}).stdout == b'{\n  "applied": []\n}\n'
