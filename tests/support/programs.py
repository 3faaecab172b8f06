"""Prometheus and promtool for the tests: the machine's own, or those of Debian's package, unpacked and not installed.

The package is fetched with apt as the machine is set up, which needs no root, and kept in pytest's own cache. Where
apt's lists are empty, lists of our own are fetched for it. What is missing skips the test with the reason, and fails it
where `CI=true`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.npm import kept_folder
from tests.support.run import once

PACKAGE = "prometheus"
FETCH_SECONDS = 100.0
_STATUS = "/var/lib/dpkg/status"


@dataclass(frozen=True, slots=True)
class Programs:
    """Where they are."""

    prometheus: Path
    promtool: Path


def find_programs(config: pytest.Config, factory: pytest.TempPathFactory) -> Programs:
    """Both programs, fetched if need be. Skips the test where they cannot be had."""
    server, tool = shutil.which("prometheus"), shutil.which("promtool")
    if server and tool:
        return Programs(Path(server), Path(tool))
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        pytest.skip("missing tool: prometheus with promtool, and no apt-get with dpkg-deb to fetch them")
    folder = kept_folder("prometheus", config, factory)
    found = Programs(folder / "usr/bin/prometheus", folder / "usr/bin/promtool")
    # workers share the folder, and a mirror that cannot be reached is waited for once
    why = once(f"apt{folder}".replace("/", "-"), lambda: None if found.promtool.exists() else _fetch(folder))
    if why is not None:
        pytest.skip(f"missing tool: prometheus, which apt-get could not fetch ({why})")
    return found


def _fetch(folder: Path) -> str | None:
    """Fetch the package and unpack it; answers why that did not work. The last program moves in last."""
    own = [f"-oDir::State={folder}/state", f"-oDir::Cache={folder}/cache", f"-oDir::State::status={_STATUS}"]
    for empty in ("state/lists/partial", "cache/archives/partial", "unpacked"):
        (folder / empty).mkdir(parents=True, exist_ok=True)
    why = _run(["apt-get", "-qq", "-oAPT::Sandbox::User=root", "download", PACKAGE], folder)
    if why is not None:  # no lists, or older ones than the mirror
        why = _run(["apt-get", "-qq", "-oAPT::Sandbox::User=root", *own, "update"], folder) or _run(
            ["apt-get", "-qq", "-oAPT::Sandbox::User=root", *own, "download", PACKAGE], folder
        )
    if why is not None:
        return why
    (package,) = folder.glob(f"{PACKAGE}_*.deb")
    why = _run(["dpkg-deb", "--extract", str(package), "unpacked"], folder)
    if why is None:
        (folder / "usr/bin").mkdir(parents=True, exist_ok=True)
        for name in ("prometheus", "promtool"):
            (folder / "unpacked/usr/bin" / name).replace(folder / "usr/bin" / name)
    package.unlink()
    for left in ("state", "cache", "unpacked"):
        shutil.rmtree(folder / left)
    return why


def _run(command: Sequence[str], folder: Path) -> str | None:
    """Run a command in the folder; answers the last thing that it said if it failed."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
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
