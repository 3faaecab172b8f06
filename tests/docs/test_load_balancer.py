"""The load balancer's settings in ``docs/deployment.md``, read by HAProxy: the machine's own, or Debian's package."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.debian import unpacked
from tests.support.npm import kept_folder
from tests.support.pages import block

SETTINGS = block("docs/deployment.md", "frontend senders").text
READ_SECONDS = 30.0


def test_haproxy_takes_the_settings_of_the_page_without_a_warning(
    tmp_path: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own = shutil.which("haproxy")
    program, libraries = Path(own or ""), ""
    if own is None:
        root = unpacked("haproxy", kept_folder("haproxy", request.config, tmp_path_factory))
        program = root / "usr" / "sbin" / "haproxy"
        libraries = ":".join(map(str, (root / "usr" / "lib").glob("*-linux-gnu*")))
    (tmp_path / "haproxy.cfg").write_text(f"{SETTINGS}\n")
    told = subprocess.run(
        [program, "-c", "-f", tmp_path / "haproxy.cfg"],
        env={"PATH": os.defpath, "LD_LIBRARY_PATH": libraries},
        capture_output=True,
        text=True,
        timeout=READ_SECONDS,
        check=False,
    )
    assert (told.returncode, told.stdout.strip(), told.stderr) == (0, "Configuration file is valid", "")
