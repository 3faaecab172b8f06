"""Receivers around the vendors' own libraries, each a process; their programs are in `tests/support/receiving`.

Owns which library speaks which signature profile, the versions from npm, and the handle that tests hold. All processes
end with the block that started them: their stdin is a pipe from it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from select import select
from typing import Any

import httpx

from tests.support.installation import TRUSTING_NOBODY
from tests.support.npm import find_node, install
from tests.support.run import once

PROGRAMS = Path(__file__).parent / "receiving"
START_SECONDS = 60.0
STOP_SECONDS = 20.0

NPM_PACKAGES = ("standardwebhooks@1.1.1", "stripe@23.1.0", "@octokit/webhooks-methods@6.0.0")


@dataclass(frozen=True, slots=True)
class Library:
    """One library and the signature profile that it verifies. `registry` is `pypi`, `npm`, or `none` for no library."""

    profile: str
    registry: str
    name: str

    def __str__(self) -> str:
        return f"{self.profile}-{self.registry}-{self.name}"


RELAY_DOCUMENTED = Library("relay", "none", "documented")
STANDARD_DOCUMENTED = Library("standard", "none", "documented")
STRIPE_DOCUMENTED = Library("stripe", "none", "documented")
GITHUB_DOCUMENTED = Library("github", "none", "documented")
STANDARD_PYPI = Library("standard", "pypi", "standardwebhooks")
STANDARD_SVIX = Library("standard", "pypi", "svix")
STRIPE_PYPI = Library("stripe", "pypi", "stripe")
STANDARD_NPM = Library("standard", "npm", "standardwebhooks")
STRIPE_NPM = Library("stripe", "npm", "stripe")
GITHUB_NPM = Library("github", "npm", "octokit")

VENDORS = (STANDARD_PYPI, STANDARD_SVIX, STRIPE_PYPI, STANDARD_NPM, STRIPE_NPM, GITHUB_NPM)
DOCUMENTED = (RELAY_DOCUMENTED, STANDARD_DOCUMENTED, STRIPE_DOCUMENTED, GITHUB_DOCUMENTED)


@dataclass(frozen=True, slots=True)
class Seen:
    """One delivery as a receiver saw it. `at` is its clock, header names are in lower case."""

    status: int
    why: str
    sha256: str
    at: float
    headers: Mapping[str, str]


class Hook:
    """One path of a receiver."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self._client = client
        self.url = url

    def trust(self, *secrets: str, busy: int = 0) -> None:
        """Trust these secrets alone, the one in force first, and turn away so many verified deliveries with a 503."""
        answer = self._client.put(self.url, json={"secrets": secrets, "busy": busy})
        assert answer.status_code == 204, answer.text

    def seen(self) -> list[Seen]:
        """What was delivered so far, in order."""
        return [Seen(**seen) for seen in self._client.get(self.url).json()]

    def deliver(self, headers: Mapping[str, str], body: bytes) -> int:
        """Deliver something by hand, with the headers of a delivery that was seen; answers the status."""
        sent = {name: value for name, value in headers.items() if name not in {"host", "content-length"}}
        return self._client.post(self.url, content=body, headers=sent).status_code


class Vendors:
    """The receivers that run, by library; started when first asked for."""

    def __init__(self, stack: ExitStack, npm_folder: Callable[[], Path]) -> None:
        self._stack = stack
        self._client = stack.enter_context(httpx.Client(timeout=30.0, trust_env=False, verify=TRUSTING_NOBODY))
        self._npm_folder = npm_folder
        self._urls: dict[tuple[str, str], str] = {}

    def hook(self, library: Library, name: str) -> Hook:
        """A path of the library's receiver. Skips the test where the tools of the library are missing."""
        self.start([library])
        return Hook(self._client, f"{self._urls[library.registry, library.name]}/{library.profile}-{name}")

    def start(self, libraries: Sequence[Library]) -> None:
        """Start what does not run yet, all at once."""
        wanted = {(library.registry, library.name) for library in libraries} - self._urls.keys()
        commands = {each: self._command(*each) for each in sorted(wanted)}
        started = {each: self._stack.enter_context(_running(command)) for each, command in commands.items()}
        for each, process in started.items():
            self._urls[each] = f"http://127.0.0.1:{_told(process)['port']}"

    def _command(self, registry: str, name: str) -> list[str]:
        if registry != "npm":
            return [sys.executable, "-I", str(PROGRAMS / "receiver.py"), name]
        folder, node = install(self._npm_folder(), NPM_PACKAGES), find_node().node
        program = folder / "receiver.mjs"  # libraries are looked for from where the program stands
        once(f"program{program}".replace("/", "-"), lambda: str(shutil.copyfile(PROGRAMS / "receiver.mjs", program)))
        return [*node, str(program), name]


@contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that ends when its stdin does, at the end of the block."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=STOP_SECONDS)
        process.kill()
        process.communicate()


def _told(process: subprocess.Popen[str]) -> Mapping[str, Any]:
    """What a process says when it listens."""
    assert process.stdout is not None
    ready, _, _ = select([process.stdout], [], [], START_SECONDS)
    line = process.stdout.readline() if ready else ""
    assert line, f"{process.args!r} did not start"
    return dict(json.loads(line))
