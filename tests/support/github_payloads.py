"""Real payloads: what GitHub sent to its users' webhooks, as `@octokit/webhooks-examples` publishes it on npm.

Owns the one version that the tests are written for; `tests/support/npm.py` brings it. Each payload is the exact bytes
of its place in the file: pretty-printed, with the escapes and the numbers as they were found there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.support.npm import install

PACKAGE = "@octokit/webhooks-examples"
VERSION = "7.6.1"

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
    file = install(folder, [f"{PACKAGE}@{VERSION}"]) / _FILE
    events = msgspec.json.decode(file.read_bytes(), type=list[_Event])
    return [Payload(event.name, bytes(body)) for event in events for body in event.examples]
