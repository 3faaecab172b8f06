"""Claims about where `relay send` gets its payload from."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from relay.gateway.appender import UNAVAILABLE
from tests.cli.conftest import Shell, on_a_terminal, only_line
from tests.cli.scripted_api import scripted
from tests.support.installation import RELAY, START_SECONDS, Service

PAYLOAD = b'{"amount":12}'


def payload_of(relay: Service, accepted: Any) -> bytes:
    return httpx.get(f"{relay.url}/v1/receipts/{accepted['receipt_id']}/payload", trust_env=False).content


@pytest.mark.parametrize(("piped", "sent"), [(PAYLOAD, PAYLOAD), (b"", b"{}")], ids=["something", "nothing"])
def test_what_is_piped_is_the_payload_without_being_named(
    relay: Service, shell: Shell, piped: bytes, sent: bytes
) -> None:
    assert payload_of(relay, shell.document("send", "piped.in", stdin=piped)) == sent


@pytest.mark.parametrize(("held", "sent"), [(PAYLOAD, PAYLOAD), (b"", b"{}")], ids=["something", "nothing"])
def test_a_file_on_stdin_is_the_payload(relay: Service, shell: Shell, tmp_path: Path, held: bytes, sent: bytes) -> None:
    (tmp_path / "event").write_bytes(held)
    with (tmp_path / "event").open("rb") as stdin:
        done = subprocess.run(
            [str(RELAY), "send", "redirected.in"],
            stdin=stdin,
            env=shell.environment,
            capture_output=True,
            timeout=START_SECONDS,
            check=True,
        )
    assert payload_of(relay, json.loads(done.stdout)) == sent


def test_nothing_is_read_from_a_device_or_for_a_file_that_is_named(
    relay: Service, shell: Shell, tmp_path: Path
) -> None:
    words = [str(RELAY), "send", "null.in"]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, env=shell.environment, capture_output=True, timeout=START_SECONDS, check=True
    )
    assert payload_of(relay, json.loads(done.stdout)) == b"{}"

    (tmp_path / "event.json").write_bytes(PAYLOAD)
    accepted = shell.document("send", "named.in", str(tmp_path / "event.json"), stdin=b"something else")
    assert payload_of(relay, accepted) == PAYLOAD


def test_a_person_at_a_terminal_sends_an_empty_object_without_being_waited_for(shell: Shell) -> None:
    assert "accepted, to be delivered to" in on_a_terminal(shell, "send", "typed.in")


@contextmanager
def idle_pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)


def test_an_open_pipe_on_which_nothing_comes_is_told_and_then_read(relay: Service, shell: Shell) -> None:
    with idle_pipe() as (reading, writing):
        process = subprocess.Popen(
            [str(RELAY), "send", "late.in"],
            stdin=reading,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=shell.environment,
        )
        assert process.stderr is not None
        kill = threading.Timer(START_SECONDS, process.kill)
        kill.start()
        told = process.stderr.readline()
        os.write(writing, PAYLOAD)
        os.close(writing)
        out, _ = process.communicate()
        kill.cancel()
    assert only_line(told).startswith("waiting for input on stdin: end it with Ctrl-D")
    assert payload_of(relay, json.loads(out)) == PAYLOAD


def test_a_stdin_that_cannot_be_read_is_a_wrong_usage(lonely: Shell, tmp_path: Path) -> None:
    stdin = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    done = subprocess.run(
        [str(RELAY), "send", "unreadable.in"],
        stdin=stdin,
        env=lonely.environment,
        capture_output=True,
        timeout=START_SECONDS,
        check=False,
    )
    os.close(stdin)
    assert done.returncode == 2
    assert "stdin cannot be read: Bad file descriptor." in only_line(done.stderr)


@pytest.mark.parametrize("payload", [b'{"s":"x\\ud83d"}', b'{"\\ud800":1}', b'{"s":"\\udc00\\ud800"}'])
def test_half_a_surrogate_pair_is_sent_and_its_receipt_shown(relay: Service, shell: Shell, payload: bytes) -> None:
    """Case C70, on the command line."""
    accepted = shell.document("send", "half.pair", stdin=payload)
    assert payload_of(relay, accepted) == payload
    assert "half.pair" in on_a_terminal(shell, "receipt", accepted["receipt_id"])


def test_half_a_surrogate_pair_in_a_batch_is_sent_and_as_a_name_refused(relay: Service, shell: Shell) -> None:
    """Case C70, on the command line: an event's name has visible ASCII characters only."""
    payload = b'{"s":"x\\ud83d"}'
    sent = shell.document("send", "--batch", "-", stdin=b'{"type":"half.pair","payload":%b}' % payload)
    assert payload_of(relay, sent["data"][0]) == payload
    done = shell.run("send", "--batch", "-", stdin=b'{"type":"half.pair","event_id":"\\ud800","payload":1}')
    assert (done.returncode, "(malformed)" in only_line(done.stderr)) == (1, True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((), "; send the event again; without --key it may count twice (database_unavailable)"),
        (
            ("--key", "a"),
            "; send the event again, with the same --key so that it cannot count twice (database_unavailable)",
        ),
    ],
)
def test_who_is_to_send_again_is_told_of_the_key_that_was_given(
    lonely: Shell, given: tuple[str, ...], says: str
) -> None:
    problem = {"code": "database_unavailable", "detail": UNAVAILABLE.detail}
    with scripted(lambda _: (503, problem)) as api:
        done = lonely.run("send", "a", *given, environment={"RELAY_URL": api.url})
    assert only_line(done.stderr) == f"the database did not answer{says}"
