"""Claims about the units in ``ops/systemd``: systemd takes them, they are shut tight, and they leave time to stop."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from relay.app.crew import KILLED_SECONDS
from relay.app.roles import Role, bounds
from relay.app.worker import OPEN_FILES
from relay.settings import read
from tests.support.containers import PROGRAMS
from tests.support.pages import block
from tests.support.units import COMMAND, FOLDER, NAMES, command, environment, unit

PAGE = "docs/deployment.md"
ASK_SECONDS = 30.0
EXPOSURE_IN_TENTHS = 15
"""Of 100; systemd calls everything up to 20 safe."""

each_unit = pytest.mark.parametrize("name", NAMES)


def _analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=ASK_SECONDS, check=False)


def test_every_unit_is_looked_at() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(NAMES)


@pytest.mark.requires_tool("systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for name in NAMES:
        text = (FOLDER / f"{name}.service").read_text()
        (tmp_path / f"{name}.service").write_text(text.replace(COMMAND, str(PROGRAMS / "relay")))
    told = _analyze("verify", "--man=no", *sorted(tmp_path.iterdir()))
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


@each_unit
@pytest.mark.requires_tool("systemd-analyze")
def test_a_unit_exposes_little(name: str) -> None:
    told = _analyze("security", "--offline=true", f"--threshold={EXPOSURE_IN_TENTHS}", FOLDER / f"{name}.service")
    assert told.returncode == 0, told.stdout


@each_unit
def test_a_unit_takes_secrets_as_credentials_only(name: str) -> None:
    said = unit(name)
    named = {line.partition("=")[2].removeprefix("%d/") for line in said["Environment"]}
    assert named == {line.partition(":")[0] for line in said["LoadCredential"]}
    assert all(line.partition("=")[0].endswith("_FILE") for line in said["Environment"])


@pytest.mark.parametrize("role", [Role.GATEWAY, Role.DISPATCHER])
def test_a_unit_leaves_more_time_to_stop_than_its_process_takes(role: Role) -> None:
    (seconds,) = unit(f"relay-{role}")["TimeoutStopSec"]
    assert float(seconds.removesuffix("s")) > bounds(role, read({})).stop + KILLED_SECONDS


@pytest.mark.parametrize("role", [Role.GATEWAY, Role.DISPATCHER])
def test_a_unit_lets_a_process_open_what_it_may_need(role: Role) -> None:
    assert (command(f"relay-{role}"), unit(f"relay-{role}")["LimitNOFILE"]) == ([str(role)], [str(OPEN_FILES)])


@pytest.mark.requires_tool("systemd-analyze")
def test_systemd_takes_the_unit_of_patroni_that_the_page_shows(tmp_path: Path) -> None:
    text = block(PAGE, "[Unit]").text
    for program in ("/opt/patroni/bin/patroni", "/bin/kill"):
        text = text.replace(program, "/bin/true")
    (tmp_path / "patroni.service").write_text(text.replace("User=postgres\n", ""))
    told = _analyze("verify", "--man=no", tmp_path / "patroni.service")
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_the_doctor_is_run_with_the_settings_of_the_units(tmp_path: Path) -> None:
    lines = block(PAGE, "(set -a;").text
    (tmp_path / "relay.env").write_text("RELAY_WORKERS=2\n")
    (tmp_path / "relay").write_text("#!/bin/sh\nenv\n")
    (tmp_path / "relay").chmod(0o700)
    here = lines.replace(COMMAND, str(tmp_path / "relay")).replace("/etc/relay/relay.env", f"{tmp_path}/relay.env")
    told = subprocess.run(["sh", "-euc", here], capture_output=True, text=True, timeout=ASK_SECONDS, check=True)
    credentials = Path("/etc/relay")
    assert {"RELAY_WORKERS=2"} | {
        f"{name}={path}" for name, path in environment("relay-gateway", credentials).items()
    } <= set(told.stdout.splitlines())
