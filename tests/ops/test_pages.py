"""The commands of ``docs/operations.md``, run as whoever is woken would run them."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.docs.tree import ROOT
from tests.ops.conftest import Watched
from tests.support.installation import RELAY

PAGE = "docs/operations.md"
GATEWAY, DISPATCHER = "http://127.0.0.1:8080", "http://127.0.0.1:9091"
FENCE = re.compile(r"^<!-- run: tests/ops/test_pages\.py -->\n```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINES = [line for block in FENCE.findall((ROOT / PAGE).read_text()) for line in block.splitlines()]
COMMANDS = sorted({line.partition(" #")[0].strip() for line in LINES})
MAY_FIND_FAULTS = ("relay doctor",)
"""Its exit code 1 says that something is wrong, and in that Relay something is."""


def test_every_block_of_the_page_is_run() -> None:
    assert len(FENCE.findall((ROOT / PAGE).read_text())) == (ROOT / PAGE).read_text().count("```sh") > 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_does_what_it_says(watched: Watched, command: str) -> None:
    environment = {**watched.environment} | {"RELAY_URL": watched.gateway.url}
    environment["PATH"] = f"{RELAY.parent}:{environment['PATH']}"
    words = command.replace(GATEWAY, watched.gateway.url).replace(DISPATCHER, watched.dispatcher.url)
    done = subprocess.run(
        ["bash", "-euc", words], env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    allowed = (0, 1) if command.startswith(MAY_FIND_FAULTS) else (0,)
    assert done.returncode in allowed, done.stderr
    assert done.stdout
