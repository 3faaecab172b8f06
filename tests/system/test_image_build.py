"""Claims about what the Dockerfile's builder makes: its steps are run in a folder, in the place of an image's layers.

It is what `pip install .` gives as well: the wheel, in an environment of its own, with the locked dependencies.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from relay import __version__
from relay.store.vault import new_key
from tests.docs.tree import ROOT, SOURCE, project_files
from tests.support.containers import Stage, dockerfile
from tests.support.database import Server

STEP_SECONDS = 300.0
COMMAND_SECONDS = 60.0

pytestmark = pytest.mark.timeout(400)


def _run(*words: str | Path, environment: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, env=environment, cwd=folder, capture_output=True, text=True, timeout=STEP_SECONDS, check=False
    )


def _copy(words: list[str], folder: Path, made: Path) -> None:
    """What `COPY` does, of what .dockerignore lets through."""
    *sources, target = words
    let_through = (ROOT / ".dockerignore").read_text().split()
    for source in sources:
        assert any(f"!{parent}" in let_through for parent in (source, *map(str, Path(source).parents)))
        place = made if target.startswith("/") else folder / target
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / source, place)


def _build(stage: Stage, folder: Path) -> Path:
    """Take the builder's steps; answers the folder that they make for /opt/relay. Skips where there is no registry."""
    made, source, system = folder / "made", folder / "src", folder / "system"
    source.mkdir()
    subprocess.run([sys.executable, "-m", "venv", system], check=True, timeout=STEP_SECONDS)
    environment = {**os.environ, **stage.environment, "PATH": f"{system / 'bin'}:{os.environ['PATH']}"}
    del environment["PIP_NO_CACHE_DIR"]  # what a layer must not keep saves a test its time
    for instruction, words in stage.steps:
        if instruction == "COPY":
            _copy(shlex.split(words), source, made)
        elif instruction == "RUN":
            step = words.replace("/opt/relay", str(made))
            done = _run("sh", "-euc", step, environment=environment, folder=source)
            if done.returncode and re.search(r"connection|Could not find a version", done.stderr):
                pytest.skip(f"missing tool: a package registry ({done.stderr.strip().splitlines()[-1]})")
            assert done.returncode == 0, f"{step}\n{done.stderr}"
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the runtime images copy from the builder."""
    return _build(dockerfile()["builder"], tmp_path_factory.mktemp("image"))


def test_the_command_is_there_and_knows_its_version(built: Path, tmp_path: Path) -> None:
    done = _run(built / "bin" / "relay", "--version", environment={"PATH": os.defpath}, folder=tmp_path)
    assert (done.returncode, __version__ in done.stdout) == (0, True), done.stderr


def test_every_file_of_the_package_is_installed(built: Path) -> None:
    (installed,) = built.glob("lib/python3*/site-packages/relay")
    files = {path.relative_to(SOURCE) for path in project_files() if path.is_relative_to(SOURCE)}
    assert {str(file) for file in files if not (installed / file).is_file()} == set()


def test_only_what_runs_relay_is_handed_on(built: Path, tmp_path: Path) -> None:
    names = "import importlib.metadata as m; print(*sorted(d.name.lower() for d in m.distributions()))"
    done = _run(built / "bin" / "python", "-I", "-c", names, environment={}, folder=tmp_path)
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    normal = {re.sub(r"[-_.]+", "-", name) for name in done.stdout.split()}
    assert normal == {"relay", *(re.sub(r"[-_.]+", "-", name.lower()) for name in locked)}


def test_an_installed_relay_migrates_a_database(built: Path, database_server: Server, tmp_path: Path) -> None:
    name = f"relay_image_{os.getpid()}"
    asyncio.run(database_server.run(f"create database {name}"))
    try:
        environment = {"DATABASE_URL": database_server.dsn(name), "RELAY_SECRET_KEYS": new_key().expose()}
        done = _run(built / "bin" / "relay", "migrate", environment=environment, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        again = _run(built / "bin" / "relay", "migrate", "--json", environment=environment, folder=tmp_path)
        assert json.loads(again.stdout) == {"applied": []}
    finally:
        asyncio.run(database_server.drop(name))


def test_the_health_check_tells_a_server_that_is_not_there(built: Path, tmp_path: Path) -> None:
    python, program = built / "bin" / "python", built / "healthy.py"
    done = _run(python, "-I", program, "1", "/healthz", environment={}, folder=tmp_path)
    assert (done.returncode, "refused" in done.stdout.lower()) == (1, True)
