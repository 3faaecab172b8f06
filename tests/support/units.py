"""What the systemd units say, read line by line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.docs.tree import ROOT

FOLDER = ROOT / "ops" / "systemd"
NAMES = ("relay-migrate", "relay-gateway", "relay-dispatcher")
COMMAND = "/opt/relay/bin/relay"
CREDENTIALS = "%d"


def unit(name: str) -> Mapping[str, Sequence[str]]:
    """Each directive with all that it is given, whatever the section."""
    said: defaultdict[str, list[str]] = defaultdict(list)
    for line in (FOLDER / f"{name}.service").read_text().splitlines():
        if not line.startswith(("#", "[")):
            directive, _, value = line.partition("=")
            said[directive].append(value)
    return said


def command(name: str) -> list[str]:
    """The arguments of the command that it starts."""
    (line,) = unit(name)["ExecStart"]
    program, *words = line.split()
    assert program == COMMAND
    return words


def environment(name: str, credentials: Path) -> dict[str, str]:
    """What its process finds, with the credentials in a folder."""
    pairs = (line.partition("=") for line in unit(name)["Environment"])
    return {key: value.replace(CREDENTIALS, str(credentials)) for key, _, value in pairs}
