"""Claims about output: it survives every stream and locale, and never makes a deed look undone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from relay.cli.text import printable
from tests.cli.conftest import Shell, only_line
from tests.support.installation import RELAY, START_SECONDS

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
ODD = "caf\u00e9 \u202f\U0001f600 \u202egnp.exe \x1b[31mred\x07 \ud800"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("invoice.paid", "invoice.paid"),
        ("caf\u00e9 \U0001f469\u200d\U0001f52c", "caf\u00e9 \U0001f469\u200d\U0001f52c"),
        ("narrow\u202fspace", "narrow\u202fspace"),
        ("\x1b[2J", "\\x1b[2J"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
        ("back\\slash", "back\\slash"),
    ],
)
def test_what_could_steer_a_terminal_is_escaped_and_the_rest_is_left(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_key_for_a_shell_is_bare_even_when_piped(lonely: Shell) -> None:
    key = lonely.run("secret-key").stdout.decode().strip()
    assert len(key) == 44
    assert json.loads(lonely.run("secret-key", "--json").stdout)["key"] != key


def test_piped_output_is_json_in_ascii_in_every_locale(lonely: Shell) -> None:
    data = {"RELAY_DATA_DIR": "/srv/caf\u00e9"}
    done = lonely.run("config", environment={**ASCII, **data})
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    (value,) = [row["value"] for row in json.loads(done.stdout) if row["name"] == "RELAY_DATA_DIR"]
    # what a locale cannot read, Python keeps as surrogates; JSON carries them
    assert value.encode("utf-8", "surrogateescape").decode() == "/srv/caf\u00e9"


def test_secrets_are_stars_and_origins_are_told(lonely: Shell) -> None:
    settings = {"DATABASE_URL": "postgresql://relay:hunter2@db/relay", "RELAY_ALLOW_PRIVATE_ENDPOINTS": "true"}
    done = lonely.run("config", environment=settings)
    shown = {row["name"]: row for row in json.loads(done.stdout)}
    assert shown["DATABASE_URL"]["value"] == "postgresql://relay:***@db/relay"
    assert shown["RELAY_REQUIRE_HTTPS"]["origin"] == "follows RELAY_ALLOW_PRIVATE_ENDPOINTS"
    assert b"hunter2" not in done.stdout


@pytest.mark.parametrize("command", ["config", "--help", "send --help"])
def test_a_reader_who_has_seen_enough_is_no_fault(lonely: Shell, command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = lonely.run(*command.split(), stdout=pipe)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_command_that_only_shows_fails_where_it_cannot_show(lonely: Shell) -> None:
    with Path("/dev/full").open("wb") as full:
        done = lonely.run("config", stdout=full)
    assert done.returncode == 1
    assert only_line(done.stderr) == "the output could not be written: No space left on device"


def test_a_deed_is_done_although_its_description_cannot_be_written(shell: Shell) -> None:
    with Path("/dev/full").open("wb") as full:
        done = shell.run("send", "disk.full", stdout=full, environment=ASCII)
    assert done.returncode == 0
    assert only_line(done.stderr).startswith("the event is accepted as rcp_")


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_fault(shell: Shell, closed: str) -> None:
    words = ["sh", "-c", f'exec "$0" send streams.closed {closed}', str(RELAY)]
    done = subprocess.run(words, env=shell.environment, timeout=START_SECONDS, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_odd_text_in_a_receipt_is_valid_json_in_an_ascii_locale(shell: Shell) -> None:
    payload = json.dumps({"type": "odd.text", "text": ODD}).encode()
    accepted = json.loads(shell.run("send", "odd.text", "-", stdin=payload, environment=ASCII).stdout)
    done = shell.run("receipt", accepted["receipt_id"], environment=ASCII)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["receipt_id"] == accepted["receipt_id"]
