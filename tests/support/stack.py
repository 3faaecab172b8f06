"""The stack of ``docker-compose.yml`` as processes of this machine.

Commands, environments, health checks and the database's script are those of the files. Only what a container has of its
own is replaced by this machine's: names of hosts, ports, folders, and the network of the receivers by loopback.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from relay.embedded.programs import find_programs
from tests.docs.tree import ROOT
from tests.support.containers import PROGRAMS, compose, dockerfile
from tests.support.installation import LOOPBACK, Installation, Service, eventually, free_port

HEALTHY_SECONDS = 60.0
COMMAND_SECONDS = 60.0
PORTS = ("8080", "9091", "9099")


def make_role(superuser_dsn: str) -> None:
    """Make Relay's role and database by the script that the file mounts. Raises `AssertionError`."""
    postgres = compose()["services"]["postgres"]
    (script,) = (mount["source"] for mount in postgres["volumes"] if mount["target"].endswith(".sql"))
    words = ["--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--file={script}", superuser_dsn]
    done = _run([find_programs().path("psql"), *words], postgres["environment"])
    assert done.returncode == 0, done.stderr


def is_ready(port: int) -> bool:
    """Whether the health check of the database is content with the server at this port."""
    program, *words = compose()["services"]["postgres"]["healthcheck"]["test"][1:]
    return _run([find_programs().path(program), *words], {"PGPORT": str(port)}).returncode == 0


def _run(
    command: Sequence[str], environment: Mapping[str, str], folder: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={"PATH": os.defpath, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )


class Stack:
    """The services of the compose file as processes. `postgres` is where the database is reached instead."""

    def __init__(self, installation: Installation, postgres: str) -> None:
        self.installation = installation
        self.services: dict[str, Any] = compose()["services"]
        self._stages = dockerfile()
        folder = installation.folder
        self.keys = folder / "keys"
        self.keys.mkdir()
        self.ports = {port: str(free_port()) for port in PORTS} | {"5432": str(urlsplit(postgres).port)}
        self._replaced = [
            (r"/opt/relay/healthy\.py", str(ROOT / "ops" / "docker" / "healthy.py")),
            (r"(?<![\w/])/keys(?=/)", str(folder / "keys")),
            (r"(?<=[@/])(?:postgres|gateway|dispatcher|testkit)(?=:)", LOOPBACK),
            (re.escape(self.services["gateway"]["environment"]["RELAY_EGRESS_ALLOW_CIDRS"]), f"{LOOPBACK}/32"),
            *((rf"(?<![\w.]){port}(?!\w)", there) for port, there in self.ports.items()),
        ]

    def file(self, name: str) -> str:
        """What is in a file of the volume with the keys."""
        return (self.keys / name).read_text().strip()

    def here(self, text: str, mounts: Sequence[Mapping[str, str]] = ()) -> str:
        """A text of the file, with this machine's names, ports and folders."""
        for mount in mounts:
            if mount["type"] == "bind" and text == mount["target"]:
                return mount["source"]
        for pattern, instead in self._replaced:
            text = re.sub(pattern, instead, text)
        return text

    def environment(self, name: str) -> dict[str, str]:
        """What the container's processes would find."""
        stage = self._stages[self.services[name]["build"]["target"]]
        said = {**stage.environment, **(self.services[name].get("environment") or {})}
        ours = {"PATH": f"{PROGRAMS}:{os.defpath}", "HOME": str(self.installation.folder)}
        ours["TMPDIR"] = str(self.installation.folder)
        return {key: self.here(text) for key, text in said.items()} | ours

    def command(self, name: str) -> list[str]:
        """The program and its arguments."""
        service = self.services[name]
        stage = self._stages[service["build"]["target"]]
        entrypoint = service["entrypoint"] or stage.entrypoint
        command = service["command"] if service["command"] is not None else stage.command
        return [self.here(word, service.get("volumes", ())) for word in (*entrypoint, *command)]

    def health(self, name: str) -> list[str]:
        """The health check's program and arguments."""
        service = self.services[name]
        test = service.get("healthcheck", {}).get("test", [None, *self._stages[service["build"]["target"]].health])
        return [self.here(word) for word in test[1:]]

    def run(self, command: Sequence[str], name: str) -> subprocess.CompletedProcess[str]:
        """Run something to its end, as in a container."""
        program = str(PROGRAMS / command[0])
        return _run([program, *command[1:]], self.environment(name), str(self.installation.folder))

    async def complete(self, name: str) -> str:
        """Run a service that ends; answers what it said."""
        done = await asyncio.to_thread(self.run, self.command(name), name)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def start(self, name: str) -> Service:
        """Start a service that stays."""
        program, *words = self.command(name)
        assert program == "relay"
        log = self.installation.folder / f"{name}.log"
        service = Service(name, tuple(words), self.environment(name), log)
        self.installation.services.append(service)
        service.start()
        return service

    async def healthy(self, name: str) -> None:
        """Return when the service's own health check is content."""

        async def well() -> bool:
            return (await asyncio.to_thread(self.run, self.health(name), name)).returncode == 0

        await eventually(well, HEALTHY_SECONDS, f"{name} is healthy")
