"""Claims about the names that README, docs and the files of ``ops/`` speak of: there is such a setting, such a command.

The changelog is left out: it tells of names that there were, and of misspelt ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from relay.cli.reference import commands
from relay.settings import rows
from tests.docs.tree import ROOT, project_files

SETTINGS = {row.name for row in rows()} | {f"{row.name}_FILE" for row in rows() if row.kind.secret}
OTHERS = {"RELAY_PORT", "RELAY_SERVICE_HOST", "RELAY_SERVICE_PORT"}
"""What Kubernetes sets."""

COMMANDS = {path.split()[1] for path, *_ in ((ctx.command_path, command) for ctx, command in commands())}
SUBCOMMANDS = {ctx.command_path for ctx, _ in commands()}
GROUPS = {path.rpartition(" ")[0] for path in SUBCOMMANDS if path.count(" ") == 2}


def _texts() -> Iterator[tuple[str, str]]:
    """What people read or install, decisions included."""
    for path in project_files():
        name = str(path.relative_to(ROOT))
        if name != "CHANGELOG.md" and (path.suffix in (".md", ".service", ".yml") or name == "Dockerfile"):
            yield name, path.read_text(encoding="utf-8")


def test_every_setting_that_is_spoken_of_exists() -> None:
    unknown = {
        (page, name)
        for page, text in _texts()
        for name in re.findall(r"(?<![\w_])RELAY_[A-Z]+(?:_[A-Z]+)*(?![\w*…])", text)
        if name not in SETTINGS | OTHERS
    }
    assert unknown == set()


def test_every_command_that_is_spoken_of_exists() -> None:
    unknown = {
        (page, f"relay {word} {after}".strip())
        for page, text in _texts()
        for word, after in re.findall(r"`relay ([a-z-]+)(?: ([a-z-]+))?", text)
        if word not in COMMANDS or (after and f"relay {word}" in GROUPS and f"relay {word} {after}" not in SUBCOMMANDS)
    }
    assert unknown == set()
