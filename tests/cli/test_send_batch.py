"""Claims about `relay send --batch`: every event of the file, as its bytes, and a truthful end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from relay.cli import batch
from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.cli.scripted_api import Answer, Call, scripted
from tests.support.installation import Service

ODD_PAYLOADS = [b'{"n": 1.0, "n": 1e400}', b'"\\ud800"', b"[ 1,2 ]", b"null"]


def event(payload: bytes) -> bytes:
    return b'{"type": "in.batch", "payload": ' + payload + b"}"


def payloads(relay: Service, results: Any) -> list[bytes]:
    paths = [f"{relay.url}/v1/receipts/{each['receipt_id']}/payload" for each in results]
    return [httpx.get(path, trust_env=False).content for path in paths]


def test_each_line_of_a_file_is_an_event_byte_for_byte(relay: Service, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "events.ndjson").write_bytes(b"\r\n".join(map(event, ODD_PAYLOADS)) + b"\n\n")
    sent = shell.document("send", "--batch", str(tmp_path / "events.ndjson"))
    assert payloads(relay, sent["data"]) == ODD_PAYLOADS


def test_a_json_array_is_taken_from_stdin(relay: Service, shell: Shell) -> None:
    text = b" [" + b" ,\n".join(event(each) for each in (ODD_PAYLOADS[0], ODD_PAYLOADS[2])) + b"]\n"
    sent = shell.document("send", "--batch", "-", stdin=text)
    assert payloads(relay, sent["data"]) == [ODD_PAYLOADS[0], ODD_PAYLOADS[2]]


def test_one_refused_event_makes_it_1_and_spoils_no_other(shell: Shell) -> None:
    done = shell.run("send", "--batch", "-", stdin=event(b"1") + b'\n{"payload": 2}\n' + event(b"3"))
    assert done.returncode == 1
    assert re.fullmatch(r"event 2: .*\(type_missing\)", only_line(done.stderr))
    assert ["error" in each for each in json.loads(done.stdout)["data"]] == [False, True, False]


@pytest.mark.parametrize(
    ("words", "stdin", "says"),
    [
        (("a.b", "--batch", "-"), b"", r"leave out TYPE"),
        (("--batch", "-", "--key", "k"), b"", r"leave out TYPE"),
        (("--batch", "no-such-file"), b"", r"no-such-file cannot be read"),
        (("--batch", "-"), b'{"type": "a"}\n{]\n', r"Line 2 is no JSON .*: nothing was sent\."),
        (("--batch", "-"), b"[1, ", r"The file is no JSON array: "),
        ((), b"", r"Missing argument 'TYPE'\."),
    ],
    ids=["type", "key", "no file", "bad line", "bad array", "nothing"],
)
def test_what_cannot_be_sent_is_a_wrong_usage(lonely: Shell, words: tuple[str, ...], stdin: bytes, says: str) -> None:
    done = lonely.run("send", *words, stdin=stdin)
    assert done.returncode == 2
    assert re.search(says, only_line(done.stderr))


def accepting(call: Call) -> Answer:
    return 202, {"data": [{"receipt_id": f"rcp_{each['payload']}"} for each in call.body]}


def many(count: int) -> bytes:
    return b"\n".join(event(str(number).encode()) for number in range(count))


def test_many_events_are_several_requests_in_order(lonely: Shell) -> None:
    with scripted(accepting) as api:
        lonely.environment["RELAY_URL"] = api.url
        sent = lonely.document("send", "--batch", "-", stdin=many(2_300))
    assert [len(call.body) for call in api.calls] == [1_000, 1_000, 300]
    assert [each["receipt_id"] for each in sent["data"]] == [f"rcp_{number}" for number in range(2_300)]


def test_large_events_are_fewer_in_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MOST_BYTES", 100)
    requests = batch._requests([b"x" * 60, b"x" * 30, b"x" * 200, b"x"])
    assert [[len(each) for each in request] for request in requests] == [[60, 30], [200], [1]]


def test_a_failure_halfway_tells_how_far_it_came(lonely: Shell) -> None:
    def answer(call: Call) -> Answer:
        return accepting(call) if len(call.body) == 1_000 else (503, {"code": "overloaded", "title": "later"})

    with scripted(answer) as api:
        lonely.environment["RELAY_URL"] = api.url
        done = lonely.run("send", "--batch", "-", stdin=many(1_001))
    assert done.returncode == 1
    assert only_line(done.stderr) == "of the first 1000 of 1001 events 1000 are accepted, then: later (overloaded)"


def test_a_person_sees_how_many_were_accepted(lonely: Shell, tmp_path: Path) -> None:
    (tmp_path / "events.ndjson").write_bytes(many(2_300))
    with scripted(accepting) as api:
        lonely.environment["RELAY_URL"] = api.url
        shown = on_a_terminal(lonely, "send", "--batch", str(tmp_path / "events.ndjson"))
    assert "1000/2300" in shown
    assert "2300 accepted, 0 refused" in shown
