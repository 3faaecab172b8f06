"""Prometheus and promtool for the tests: the machine's own, or those of Debian's package."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.debian import unpacked
from tests.support.npm import kept_folder


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
    binaries = unpacked("prometheus", kept_folder("prometheus", config, factory)) / "usr" / "bin"
    return Programs(binaries / "prometheus", binaries / "promtool")
