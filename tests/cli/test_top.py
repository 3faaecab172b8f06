"""Claims about `relay top`: on a terminal, on a pipe, and while a process is away."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.cli.conftest import Shell, only_line
from tests.support.installation import LOOPBACK, RELAY, START_SECONDS, Service

NOBODY = f"http://{LOOPBACK}:1"
LEAVES_THE_SCREEN = b"\x1b[?1049l"


@dataclass
class Watched:
    """A `relay top` on a terminal of its own."""

    process: subprocess.Popen[bytes]
    ours: int
    its: int
    shown: bytes = b""

    def shows(self, wanted: bytes) -> bool:
        """Wait until it has shown this, once more than before."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if select.select([self.ours], [], [], 0.5)[0]:
                self.shown += os.read(self.ours, 65_536)
            if wanted in self.shown:
                return True
        return False

    def ended(self) -> int:
        """Its exit code, with what it showed at the end read."""
        code = self.process.wait(START_SECONDS)
        while select.select([self.ours], [], [], 0)[0]:
            self.shown += os.read(self.ours, 65_536)
        return code


@contextmanager
def watched(shell: Shell, *words: str) -> Iterator[Watched]:
    ours, its = pty.openpty()
    environment = {**shell.environment, "TERM": "xterm", "COLUMNS": "80", "LINES": "40"}
    command = [str(RELAY), "top", "--every", "0.2", *words]
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment) as process:
        try:
            yield Watched(process, ours, its)
        finally:
            process.kill()
            os.close(ours)
            os.close(its)


def test_it_asks_gateway_and_dispatcher_once_and_prints_on_a_pipe_for_a_program(relay: Service, shell: Shell) -> None:
    urls = [word for url in relay.started["metrics"] for word in ("--metrics", url)]
    seen = shell.document("top", "--every", "0.2", *urls)
    assert seen["away"] == {}
    assert None not in (seen["accepted_per_second"], seen["delivered_per_second"], seen["depth"], seen["dead_letters"])


def test_on_a_pipe_it_prints_one_table_where_text_is_asked_for(relay: Service, shell: Shell) -> None:
    done = shell.run("top", "--every", "0.2", "--text", "--metrics", relay.url)
    assert (done.returncode, b"\x1b" in done.stdout) == (0, False)
    assert b"accepted" in done.stdout


def test_a_process_that_is_away_is_a_line_and_the_code_1(relay: Service, shell: Shell) -> None:
    done = shell.run("top", "--every", "0.2", "--metrics", relay.url, "--metrics", NOBODY)
    assert (done.returncode, f"{NOBODY} is away" in only_line(done.stderr)) == (1, True)


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1:9091"])
def test_what_is_no_address_is_a_wrong_usage(lonely: Shell, url: str) -> None:
    assert lonely.run("top", "--metrics", url).returncode == 2


def test_it_goes_on_while_the_gateway_is_away_and_q_ends_it_with_the_terminal_as_it_was(lonely: Shell) -> None:
    with watched(lonely, "--metrics", NOBODY) as top:
        before = termios.tcgetattr(top.its)
        assert top.shows(b"is away")
        top.shown = b""
        assert top.shows(b"is away")
        os.write(top.ours, b"q")
        assert top.ended() == 0
        assert LEAVES_THE_SCREEN in top.shown
        assert termios.tcgetattr(top.its) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_the_terminal_as_it_was(lonely: Shell, number: signal.Signals) -> None:
    with watched(lonely, "--metrics", NOBODY) as top:
        before = termios.tcgetattr(top.its)
        assert top.shows(b"is away")
        top.process.send_signal(number)
        assert top.ended() == 130
        assert LEAVES_THE_SCREEN in top.shown
        assert termios.tcgetattr(top.its) == before
