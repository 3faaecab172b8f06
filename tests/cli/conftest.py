"""A whole Relay for the client commands, started once for the folder, and commands run against it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.installation import LOOPBACK, RELAY, START_SECONDS, Installation, Service

EXAMPLE_KEY = "kfZbZCwrqZg0cxyVZxVGmOn9KdVsz8jzbz8BPzrWmv8="


class Shell:
    """Runs commands with an environment in which nothing is inherited but the PATH."""

    def __init__(self, **settings: str) -> None:
        self.environment = {"PATH": os.environ["PATH"], "RELAY_URL": f"http://{LOOPBACK}:1", **settings}

    def run(
        self,
        *words: str,
        stdin: bytes = b"",
        stdout: Any = subprocess.PIPE,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end; its exit code is not judged."""
        return subprocess.run(
            [str(RELAY), *words],
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**self.environment, **(environment or {})},
            timeout=START_SECONDS,
            check=False,
        )

    def document(self, *words: str, stdin: bytes = b"") -> Any:
        """Run a command that must succeed; answers its JSON."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
        return json.loads(done.stdout)


def broken(library: str, folder: Path) -> None:
    """In that folder a library that cannot be imported, for it wants another one that is not installed."""
    (folder / f"{library}.py").write_text("import missing_part\n")


def only_line(stderr: bytes) -> str:
    """The one line that a fault is told in, without the program's name."""
    (line,) = stderr.decode().splitlines()
    assert line.startswith("relay: ")
    return line.removeprefix("relay: ")


def on_a_terminal(shell: Shell, *words: str, columns: int = 200, typed: bytes = b"") -> str:
    """What a person sees, colours taken out, on a terminal so wide; `typed` is what that person has typed ahead."""
    ours, its = pty.openpty()
    environment = {**shell.environment, "TERM": "xterm", "COLUMNS": str(columns)}
    os.write(ours, typed)
    with subprocess.Popen([str(RELAY), *words], stdin=its, stdout=its, stderr=its, env=environment) as process:
        os.close(its)
        shown = b""
        try:
            while piece := os.read(ours, 65_536):
                shown += piece
        except OSError:  # what reading from a terminal raises at its end
            pass
        process.wait(START_SECONDS)
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())


@pytest.fixture(scope="package")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Gateway, dispatcher and receiver with a database of their own."""
    installation = Installation(tmp_path_factory.mktemp("relay"), None)
    try:
        service = installation.up("--dev")
        assert service.started
        yield service
    finally:
        installation.close()


@pytest.fixture
def shell(relay: Service) -> Shell:
    """Commands that talk to the running Relay."""
    return Shell(RELAY_URL=relay.url)


@pytest.fixture
def lonely() -> Shell:
    """Commands without a Relay to talk to."""
    return Shell()
