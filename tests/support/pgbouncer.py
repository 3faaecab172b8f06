"""A real PgBouncer with the settings of `ops/pgbouncer`, before a database of the tests.

The machine's own program or Debian's package. Use it as a context manager; it is stopped and started again like any
server.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import pytest

from relay.embedded.account import Runner, Way, current_account, service_account
from relay.embedded.postmaster import wait_until
from relay.embedded.programs import find_programs
from tests.support.debian import unpacked
from tests.support.installation import LOOPBACK, free_port, kill
from tests.support.npm import kept_folder

SETTINGS = Path(__file__).parents[2] / "ops" / "pgbouncer" / "pgbouncer.ini"
SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Program:
    """Where it is, and where the libraries are that came with it."""

    path: Path
    libraries: Path | None


@pytest.fixture(scope="session")
def pgbouncer_program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """PgBouncer, fetched if need be. Skips the test where it cannot be had."""
    for own in (shutil.which("pgbouncer"), "/usr/sbin/pgbouncer"):
        if own is not None and Path(own).exists():
            return Program(Path(own), None)
    root = unpacked("pgbouncer", kept_folder("pgbouncer", request.config, tmp_path_factory))
    (libraries,) = (root / "usr" / "lib").glob("*-linux-gnu*")
    return Program(root / "usr" / "sbin" / "pgbouncer", libraries)


class PgBouncer:
    """One before the database of an address, with so many server connections at the most."""

    def __init__(self, program: Program, folder: Path, dsn: str, *, connections: int = 2) -> None:
        self._program = program
        self._folder = folder
        self._dsn = urlsplit(dsn)
        self._connections = connections
        self._port = free_port()
        self.more = ""
        """Further lines of its settings, from `lead_to` on."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.lead_to(urlunsplit(self._dsn))
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def dsn(self) -> str:
        """Its address for the same database."""
        login = self._dsn.netloc.rpartition("@")[0]
        return urlunsplit(self._dsn._replace(netloc=f"{login}@{LOOPBACK}:{self._port}", query=""))

    def lead_to(self, dsn: str) -> None:
        """Have it connect to the server of this address from its next start on, or from `reload` on."""
        to = urlsplit(dsn)
        asked: Mapping[str, list[str]] = parse_qs(to.query)
        host, port = to.hostname or asked["host"][0], to.port or asked.get("port", ["5432"])[0]
        name, password = (unquote(each or "") for each in (self._dsn.username, self._dsn.password))
        self._folder.mkdir(exist_ok=True)
        (self._folder / "userlist.txt").write_text(f'"{name}" "{password}"\n')
        own = {
            "relay": f"host={host} port={port} dbname={to.path[1:]}",
            "listen_port": str(self._port),
            "auth_file": f"{self._folder}/userlist.txt",
            "default_pool_size": str(self._connections),
        }
        text = SETTINGS.read_text()
        for key, value in own.items():
            text, changed = re.subn(rf"^{key} = .*", f"{key} = {value}", text, flags=re.MULTILINE)
            assert changed == 1, f"{SETTINGS} sets {key} once"
        text = text.replace("\nrelay = ", f"\n{self._dsn.path[1:]} = ")
        (self._folder / "pgbouncer.ini").write_text(f"{text}unix_socket_dir =\n{self.more}\n")

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        at_home = current_account() if os.geteuid() else service_account()
        runner = Runner(at_home, find_programs(), Way.READING_ANYWHERE if os.geteuid() == 0 else Way.AS_WE_ARE)
        libraries = {} if self._program.libraries is None else {"LD_LIBRARY_PATH": str(self._program.libraries)}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                runner.command(str(self._program.path), str(self._folder / "pgbouncer.ini")),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": os.defpath, "HOME": str(self._folder), **libraries},
                start_new_session=True,
            )
        assert wait_until(self._listens, SECONDS), (self._folder / "log").read_text()

    def reload(self) -> None:
        """Have it read its settings again: who asks next is led by them."""
        assert self._process is not None
        kill(self._process.pid, signal.SIGHUP)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            kill(self._process.pid, signal.SIGKILL)
            self._process.wait(SECONDS)
            self._process = None

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, self._port), timeout=SECONDS):
            return True
        return False
