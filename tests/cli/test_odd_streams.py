"""Claims about every command that talks to Relay, whatever its streams are: the exit code tells the truth about the
deed, odd text from elsewhere spoils nothing, and a reader who leaves early is no fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.cli.scripted_api import Answer, Call, ScriptedApi, scripted
from tests.cli.test_streams import ASCII, ODD
from tests.support.installation import RELAY, START_SECONDS

RECEIPT_ID = "rcp_" + "1" * 32
ENDPOINT_ID = "ep_" + "2" * 32
DELIVERY_ID = "0198c0de-4b5e-7a3c-9f10-d2b4a6c8e0f1"
AT = "2026-01-31T09:05:00.120Z"

DELIVERY = {
    "id": DELIVERY_ID,
    "receipt_id": RECEIPT_ID,
    "endpoint_id": ENDPOINT_ID,
    "consumer": ODD,
    "status": "dead",
    "attempts": 1,
    "generation": 0,
    "acked_at": None,
    "next_attempt_at": None,
    "waiting_for": None,
    "reason": "permanent_failure",
    "boundary": "B3",
    "last_error": ODD,
    "redriven_at": None,
    "discarded_at": None,
}
ATTEMPT = {
    "attempt": 1,
    "generation": 0,
    "at": AT,
    "outcome_class": "permanent",
    "reason": None,
    "deferred_for_ms": None,
    "status_code": 400,
    "error_class": None,
    "snippet": ODD,
    "wait_ms": 0.1,
    "connect_ms": None,
    "send_ms": None,
    "first_byte_ms": None,
    "total_ms": 1.5,
}
RECEIPT = {
    "receipt_id": RECEIPT_ID,
    "event_id": ODD,
    "type": ODD,
    "received_at": AT,
    "state": "closed",
    "outcome": "closed_incomplete",
    "reason": None,
    "deliveries": [DELIVERY],
    "delivery_count": 1,
    "discarded": 1,
    "timeline": [{"boundary": "B1", "what": "checked", "at_ms": 0.1, "consumer": ODD}],
}
ENDPOINT = {
    "id": ENDPOINT_ID,
    "name": ODD,
    "url": f"https://example.com/{ODD}",
    "event_types": ["*"],
    "state": "active",
    "headers": {"X-Odd": ODD},
    "closed_by": None,
    "opens_at": None,
    "previous_secret_expires_at": None,
}
LETTER = {
    "receipt_id": RECEIPT_ID,
    "delivery_id": DELIVERY_ID,
    "consumer": ODD,
    "type": ODD,
    "reason": "permanent_failure",
    "attempts": 1,
    "last_error": ODD,
    "dead_at": AT,
}
REDRIVEN = {"id": DELIVERY_ID, "endpoint_id": ENDPOINT_ID, "consumer": ODD, "generation": 1}

ANSWERS = {
    f"GET /v1/receipts/{RECEIPT_ID}": RECEIPT,
    "GET /v1/receipts": {"data": [RECEIPT], "next_cursor": None},
    f"POST /v1/receipts/{RECEIPT_ID}/redrive": {"receipt_id": RECEIPT_ID, "redriven": [REDRIVEN]},
    "GET /v1/endpoints": {"data": [ENDPOINT], "next_cursor": None},
    f"GET /v1/endpoints/{ENDPOINT_ID}": ENDPOINT,
    f"GET /v1/endpoints/{ENDPOINT_ID}/deliveries": {"data": [DELIVERY], "next_cursor": None},
    f"POST /v1/endpoints/{ENDPOINT_ID}/rotate-secret": {
        "id": ENDPOINT_ID,
        "secret": "whsec_x",
        "previous_secret_expires_at": AT,
    },
    f"POST /v1/endpoints/{ENDPOINT_ID}/pause": ENDPOINT,
    f"POST /v1/endpoints/{ENDPOINT_ID}/test": {"receipt_id": RECEIPT_ID, "deliveries": []},
    f"GET /v1/deliveries/{DELIVERY_ID}": {**DELIVERY, "attempts": [ATTEMPT]},
    f"POST /v1/deliveries/{DELIVERY_ID}/redrive": {**DELIVERY, "generation": 1},
    "GET /v1/dead-letters": {"data": [LETTER], "next_cursor": None},
    "POST /v1/dead-letters/redrive": {"dry_run": False, "count": 2, "more": False},
    "POST /v1/dead-letters/discard": {"dry_run": False, "count": 2, "more": False},
}

SHOWING = [
    f"receipt {RECEIPT_ID}",
    f"receipt {RECEIPT_ID} --watch",
    "receipt --state closed",
    "endpoints list",
    f"endpoints show {ENDPOINT_ID}",
    f"deliveries {ENDPOINT_ID}",
    f"deliveries {DELIVERY_ID}",
    "dlq list",
    "dlq redrive --dry-run",
]
DOING = [
    f"redrive {RECEIPT_ID}",
    f"redrive {DELIVERY_ID}",
    "dlq redrive --yes",
    "dlq discard --yes",
    f"endpoints test {ENDPOINT_ID}",
    f"endpoints pause {ENDPOINT_ID}",
    f"endpoints rotate-secret {ENDPOINT_ID}",
]
each_command = pytest.mark.parametrize("command", [*SHOWING, *DOING])


@pytest.fixture
def api(lonely: Shell) -> Iterator[ScriptedApi]:
    """A Relay all of whose texts are odd."""

    def answer(call: Call) -> Answer:
        return 200, ANSWERS[f"{call.method} {call.path.partition('?')[0]}"]

    with scripted(answer) as odd:
        lonely.environment |= {**ASCII, "RELAY_URL": odd.url}
        yield odd


@each_command
def test_in_an_ascii_locale_the_output_is_json_in_ascii(api: ScriptedApi, lonely: Shell, command: str) -> None:
    assert lonely.document(*command.split())


@each_command
def test_on_an_ascii_terminal_odd_text_is_escaped(api: ScriptedApi, lonely: Shell, command: str) -> None:
    shown = on_a_terminal(lonely, *command.split(), columns=80)
    assert "Traceback" not in shown
    assert shown.isascii()
    assert not set(shown) & {"\x1b", "\x07"} - ({"\x1b"} if "\x1b[?25" in shown else set())


@pytest.mark.requires_tool("bash")
@each_command
def test_a_reader_who_leaves_early_is_no_fault(api: ScriptedApi, lonely: Shell, command: str) -> None:
    words = ["bash", "-c", f'set -o pipefail; "$0" {command} | head -1', str(RELAY)]
    done = subprocess.run(words, env=lonely.environment, timeout=START_SECONDS, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")

    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        gone = lonely.run(*command.split(), stdout=pipe)
    assert (gone.returncode, gone.stderr) == (0, b"")


@each_command
def test_a_closed_stdout_is_no_fault(api: ScriptedApi, lonely: Shell, command: str) -> None:
    words = ["sh", "-c", f'exec "$0" {command} >&-', str(RELAY)]
    done = subprocess.run(words, env=lonely.environment, timeout=START_SECONDS, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_whoever_is_started_has_the_descriptors_that_were_closed() -> None:
    """The processes of `relay up` ended at once where its stderr was closed, and nobody said why."""
    child = "import os; [os.fstat(each) for each in range(3)]"
    code = (
        "import subprocess, sys\nfrom relay.cli.streams import prepared_streams\n"
        f"with prepared_streams():\n    sys.exit(subprocess.run([sys.executable, '-c', {child!r}]).returncode)"
    )
    words = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, code]
    assert subprocess.run(words, timeout=START_SECONDS, check=False).returncode == 0


@pytest.mark.parametrize("command", DOING)
def test_a_deed_whose_description_cannot_be_written_is_done(api: ScriptedApi, lonely: Shell, command: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = lonely.run(*command.split(), stdout=full)
    assert done.returncode == 0
    assert only_line(done.stderr).endswith("but the output could not be written: No space left on device")


@pytest.mark.parametrize("command", SHOWING)
def test_what_only_shows_fails_where_it_cannot_show(api: ScriptedApi, lonely: Shell, command: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = lonely.run(*command.split(), stdout=full)
    assert done.returncode == 1
    assert only_line(done.stderr) == "the output could not be written: No space left on device"


def test_a_deed_that_is_refused_is_not_done_whatever_the_output(api: ScriptedApi, lonely: Shell) -> None:
    api.answer = lambda _: (409, {"code": "not_redrivable", "detail": ODD})
    with Path("/dev/full").open("wb") as full:
        done = lonely.run("redrive", DELIVERY_ID, stdout=full)
    assert done.returncode == 1
    assert only_line(done.stderr).endswith("(not_redrivable)")
    assert done.stderr.isascii()


def test_odd_text_comes_back_from_json_as_it_was(api: ScriptedApi, lonely: Shell) -> None:
    assert json.loads(lonely.run("dlq", "list").stdout)[0]["last_error"] == ODD
