"""Servers for the tests of the embedded room: real ones, each ended when its test is over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import asyncpg
import pytest

import relay
from relay.embedded import EmbeddedServer
from relay.embedded.layout import Layout
from relay.embedded.postmaster import Postmaster
from relay.embedded.programs import find_programs
from relay.embedded.replication import REPLICAS

HOLDER = """
import sys
from pathlib import Path
from relay.embedded import EmbeddedFault, EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
try:
    server.start()
except EmbeddedFault as fault:
    sys.exit(f"{type(fault).__name__}: {fault}")
print("up", server.pid, flush=True)
sys.stdin.read()
server.stop()
"""
"""A Relay process in miniature: runs a server until its standard input ends."""

READY_SECONDS = 60.0


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes to another account")


class Switch(TypedDict, total=False):
    """The arguments of `subprocess.Popen` that change the user."""

    user: int
    group: int
    extra_groups: list[int]
    env: dict[str, str]
    cwd: str


@dataclass(frozen=True, slots=True)
class OtherUser:
    """A user who is not us, and what it takes to run Relay's code as that user."""

    uid: int
    gid: int
    python: str
    packages: Sequence[Path]

    def switch(self) -> Switch:
        """For `subprocess.Popen` and its kin."""
        path = ":".join(map(str, self.packages))
        return Switch(user=self.uid, group=self.gid, extra_groups=[], env={"PYTHONPATH": path}, cwd="/")


@contextlib.contextmanager
def data_folder() -> Iterator[Path]:
    """A data folder that does not exist yet, in a new folder that is closed to others; no server survives it."""
    parent = Path(tempfile.mkdtemp(prefix="relay-"))
    try:
        yield parent / "data"
    finally:
        for name in REPLICAS:
            if (left := Postmaster.running(Layout(parent / "data", name).cluster)) is not None:
                assert left.end(signal.SIGQUIT, READY_SECONDS)
        shutil.rmtree(parent)


@pytest.fixture
def data() -> Iterator[Path]:
    """A data folder for one test."""
    with data_folder() as folder:
        yield folder


@pytest.fixture(scope="package")
def pristine() -> Iterator[Path]:
    """A data folder with an empty database in it, whose server was stopped; to be copied only."""
    with data_folder() as folder:
        server = EmbeddedServer(folder)
        server.start()
        server.stop()
        yield folder


@pytest.fixture
def used(pristine: Path, data: Path) -> Path:
    """A data folder for one test with an empty database in it; copying one is quicker than making one."""
    subprocess.run(["cp", "-a", str(pristine), str(data)], check=True)
    return data


@pytest.fixture
def make_server() -> Iterator[Callable[..., EmbeddedServer]]:
    """Make servers that are stopped after the test."""
    with contextlib.ExitStack() as stack:

        def make(folder: Path, settings: dict[str, str] | None = None) -> EmbeddedServer:
            server = EmbeddedServer(folder, settings=settings)
            stack.callback(server.stop)
            return server

        yield make


@pytest.fixture(scope="package")
def shared() -> Iterator[EmbeddedServer]:
    """A running server, with the product's settings, for tests that only look at it."""
    with data_folder() as folder:
        server = EmbeddedServer(folder)
        server.start()
        yield server
        server.stop()


@contextlib.contextmanager
def holder(
    folder: Path, *, before: Sequence[str] = (), user: OtherUser | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs the server of that folder; it is up when this returns, and is killed after.

    `before` is a command that runs the one after it.
    """
    process = subprocess.Popen(
        [*before, user.python if user else sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **(user.switch() if user else {}),
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("up "), process.communicate(timeout=READY_SECONDS)
            yield process
        finally:
            process.kill()


async def fetch(dsn: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement over a connection of its own."""
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


def rows(dsn: str, statement: str) -> list[tuple[object, ...]]:
    """The same where no loop runs."""
    return asyncio.run(fetch(dsn, statement))


def interpreters() -> Iterator[str]:
    """Interpreters that an ordinary user may be able to run: the one of the tests may be in root's own folder."""
    yield sys.executable
    for name in ("python3.13", "python3.12", "python3.11", "python3"):
        if (found := shutil.which(name, path="/usr/local/bin:/usr/bin")) is not None:
            yield found


@pytest.fixture
def nobody() -> OtherUser:
    """An ordinary user with an interpreter that it can run and Relay's code that it can read."""
    entry = pwd.getpwnam("nobody")
    packages = [Path(relay.__file__).parents[1], find_programs().folder.parents[2]]
    check = "import sys, relay.embedded; sys.exit(sys.version_info < (3, 11))"
    for python in interpreters():
        user = OtherUser(entry.pw_uid, entry.pw_gid, python, packages)
        try:
            subprocess.run([python, "-c", check], check=True, capture_output=True, **user.switch())
        except (OSError, subprocess.CalledProcessError):
            continue
        return user
    pytest.skip("no Python that an ordinary user can run together with Relay's files")
