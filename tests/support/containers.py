"""What the files for containers say, read without a container engine.

The compose file is read by compose itself, whose program a package brings; the Dockerfile by a few lines here, which
know the instructions that ours has and refuse any other.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.docs.tree import ROOT

PROGRAMS = Path(sysconfig.get_path("scripts"))
COMPOSE = (PROGRAMS / "docker-compose", "--env-file", os.devnull)  # and not what a person has in .env
HADOLINT = PROGRAMS / "hadolint"
ASK_SECONDS = 30.0


def ask(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program that only looks, in the project's folder."""
    return subprocess.run(
        command,
        cwd=ROOT,
        env={"PATH": os.defpath, "HOME": tempfile.gettempdir(), **environment},
        capture_output=True,
        text=True,
        timeout=ASK_SECONDS,
        check=False,
    )


def compose(**environment: str) -> dict[str, Any]:
    """The compose file as compose understands it, with these variables. Raises `AssertionError` where it does not."""
    told = ask(*COMPOSE, "config", "--format", "json", **environment)
    assert (told.returncode, told.stderr) == (0, "")
    document: dict[str, Any] = json.loads(told.stdout)
    return document


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the Dockerfile, with what it has from the stages below it. `steps` are its own alone."""

    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    health: tuple[str, ...] = ()
    user: str = "root"
    steps: tuple[tuple[str, str], ...] = ()


def dockerfile() -> dict[str, Stage]:
    """The stages of the Dockerfile by name."""
    stages: dict[str, Stage] = {}
    name = ""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            stages[name] = replace(stages.get(base, Stage()), steps=())
        elif instruction != "ARG":
            stages[name] = _with(stages[name], instruction, rest.strip())
    return stages


def _with(stage: Stage, instruction: str, rest: str) -> Stage:
    match instruction:
        case "ENV":
            pairs = dict(word.split("=", 1) for word in shlex.split(rest))
            return replace(stage, environment={**stage.environment, **pairs})
        case "ENTRYPOINT":
            return replace(stage, entrypoint=tuple(json.loads(rest)))
        case "CMD":
            return replace(stage, command=tuple(json.loads(rest)))
        case "HEALTHCHECK":
            return replace(stage, health=tuple(json.loads(rest.partition(" CMD ")[2])))
        case "USER":
            return replace(stage, user=rest)
        case "RUN" | "COPY" | "WORKDIR":
            return replace(stage, steps=(*stage.steps, (instruction, rest)))
        case "EXPOSE":
            return stage
        case _:
            raise AssertionError(f"an instruction that nobody here knows: {instruction}")
