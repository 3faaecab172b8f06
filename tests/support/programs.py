"""Programs of Debian's for the tests: the machine's own, or those of the package, unpacked and not installed.

Prometheus with promtool, and faketime, which lets the clock of a process jump.

The package is fetched with apt as the machine is set up, which needs no root, and kept in pytest's own cache. Where
apt's lists are empty, lists of our own are fetched for it. What is missing skips the test with the reason, and fails it
where `CI=true`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.npm import kept_folder
from tests.support.run import once

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
    folder = _fetched("prometheus", ("usr/bin/prometheus", "usr/bin/promtool"), config, factory)
    return Programs(folder / "usr/bin/prometheus", folder / "usr/bin/promtool")


def find_faketime(config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    """The library of faketime, for `LD_PRELOAD`; fetched if need be. Skips the test where it cannot be had."""
    library = f"usr/lib/{sysconfig.get_config_var('MULTIARCH')}/faketime/libfaketime.so.1"
    installed = Path("/", library)
    return installed if installed.exists() else _fetched("libfaketime", (library,), config, factory) / library


def _fetched(package: str, files: Sequence[str], config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    """A folder with these files of a package, at their places. Skips the test where they cannot be had."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        pytest.skip(f"missing tool: {package}, and no apt-get with dpkg-deb to fetch it")
    folder = kept_folder(package, config, factory)

    def fetch() -> str | None:
        return None if (folder / files[-1]).exists() else _fetch(folder, package, files)

    # workers share the folder, and a mirror that cannot be reached is waited for once
    why = once(f"apt{folder}".replace("/", "-"), fetch)
    if why is not None:
        pytest.skip(f"missing tool: {package}, which apt-get could not fetch ({why})")
    return folder


def _fetch(folder: Path, package: str, files: Sequence[str]) -> str | None:
    """Fetch the package and unpack these files; answers why that did not work. The last one moves in last."""
    own = [f"-oDir::State={folder}/state", f"-oDir::Cache={folder}/cache", f"-oDir::State::status={_STATUS}"]
    for empty in ("state/lists/partial", "cache/archives/partial", "unpacked"):
        (folder / empty).mkdir(parents=True, exist_ok=True)
    why = _run(["apt-get", "-qq", "-oAPT::Sandbox::User=root", "download", package], folder)
    if why is not None:  # no lists, or older ones than the mirror
        why = _run(["apt-get", "-qq", "-oAPT::Sandbox::User=root", *own, "update"], folder) or _run(
            ["apt-get", "-qq", "-oAPT::Sandbox::User=root", *own, "download", package], folder
        )
    if why is not None:
        return why
    (archive,) = folder.glob(f"{package}_*.deb")
    why = _run(["dpkg-deb", "--extract", str(archive), "unpacked"], folder)
    if why is None:
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "unpacked" / name).resolve().replace(folder / name)
    archive.unlink()
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
