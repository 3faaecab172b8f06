"""HAProxy with the settings of ``docs/deployment.md``: the machine's own program, or Debian's package."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.debian import unpacked
from tests.support.npm import kept_folder
from tests.support.pages import block

SETTINGS = block("docs/deployment.md", "frontend senders").text
STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class HAProxy:
    """The program, and the environment in which it finds its libraries."""

    path: str
    environment: Mapping[str, str]

    def says(self, folder: Path, settings: str) -> subprocess.CompletedProcess[str]:
        """What it says of settings, which it reads and does not carry out."""
        return subprocess.run(
            [self.path, "-c", "-f", _file(folder, settings)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=STOP_SECONDS,
            check=False,
        )

    @contextmanager
    def running(self, folder: Path, settings: str) -> Iterator[None]:
        """Run it inside the block."""
        process = subprocess.Popen([self.path, "-db", "-f", _file(folder, settings)], env=self.environment)
        try:
            yield
        finally:
            process.kill()
            process.wait(STOP_SECONDS)


def _file(folder: Path, settings: str) -> Path:
    path = folder / "haproxy.cfg"
    path.write_text(f"{settings}\n")
    return path


@pytest.fixture(scope="session")
def haproxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HAProxy:
    """The program, fetched if need be. Skips the test where it cannot be had."""
    environment = {"PATH": os.defpath}
    own = shutil.which("haproxy")
    if own is not None:
        return HAProxy(own, environment)
    root = unpacked("haproxy", kept_folder("haproxy", request.config, tmp_path_factory))
    libraries = ":".join(map(str, (root / "usr" / "lib").glob("*-linux-gnu*")))
    return HAProxy(str(root / "usr" / "sbin" / "haproxy"), environment | {"LD_LIBRARY_PATH": libraries})
