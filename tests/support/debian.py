"""Programs that only a package of Debian brings: the machine's own, or unpacked from the package and not installed.

The package and what it needs beyond this machine are fetched with apt as the machine is set up, and kept in pytest's
own cache. Where apt's lists are empty, lists of our own are fetched. What cannot be had skips the test with the reason,
and fails it where `CI=true`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.run import once

FETCH_SECONDS = 100.0
_OPTIONS = ("-qq", "-oDebug::NoLocking=true", "-oAPT::Sandbox::User=root", "--no-install-recommends")


def unpacked(package: str, folder: Path) -> Path:
    """The folder in which a package lies as it would under `/`. Skips the test where it cannot be fetched."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        pytest.skip(f"missing tool: {package}, and no apt-get with dpkg-deb to fetch it")
    root = folder / "root"
    # workers that share the folder fetch once, and wait once for a mirror that cannot be reached
    name = f"debian-{package}{folder}".replace("/", "-")
    why = once(name, lambda: None if root.exists() else _fetch(package, folder, root))
    if why is not None:
        pytest.skip(f"missing tool: {package}, which apt-get could not fetch ({why})")
    return root


def _fetch(package: str, folder: Path, root: Path) -> str | None:
    """Fetch and unpack a package; answers why that did not work. The root appears whole or not at all."""
    aside = folder / "unpacked"
    shutil.rmtree(aside, ignore_errors=True)
    for made in ("state/lists/partial", "cache/archives/partial", "unpacked"):
        (folder / made).mkdir(parents=True, exist_ok=True)
    cache = [*_OPTIONS, f"-oDir::Cache={folder}/cache"]
    own = [*cache, f"-oDir::State={folder}/state", "-oDir::State::status=/var/lib/dpkg/status"]
    fetch = ["--download-only", "--yes", "install", package]
    why = _run(["apt-get", *cache, *fetch])
    if why is not None:  # no lists, or older ones than the mirror
        why = _run(["apt-get", *own, "update"]) or _run(["apt-get", *own, *fetch])
    for archive in sorted((folder / "cache" / "archives").glob("*.deb")):
        why = why or _run(["dpkg-deb", "--extract", str(archive), str(aside)])
    for left in ("state", "cache"):
        shutil.rmtree(folder / left)
    if why is None:
        aside.rename(root)
    return why


def _run(command: Sequence[str]) -> str | None:
    """Run a command; answers the last thing that it said if it failed."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"nothing within {FETCH_SECONDS:g} s"
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
