"""Claims about what the systemd units start: their commands in their environments, their credentials in a folder.

What systemd itself forbids them is not in force here, but for one thing that a process can forbid itself.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest

from tests.support.installation import Installation, Service, add_endpoint, post
from tests.support.receiver import Receiver
from tests.support.units import NAMES, command, environment, unit

CLOSED_SECONDS = 30.0
PR_SET_MDWE, PR_GET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 66, 1
SHIM = f"""
import ctypes, os, sys
assert ctypes.CDLL(None).prctl({PR_SET_MDWE}, {PR_MDWE_REFUSE_EXEC_GAIN}, 0, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Becomes the command that follows, for which MemoryDenyWriteExecute is in force as under systemd (Linux 6.3); what it
starts inherits that."""


@pytest.fixture
def credentials(installation: Installation) -> Path:
    """The folder in which systemd would put what LoadCredential names."""
    folder = installation.folder / "credentials"
    folder.mkdir()
    (folder / "database-url").write_text(installation.environment.pop("DATABASE_URL") + "\n")
    (folder / "secret-keys").write_text(installation.environment.pop("RELAY_SECRET_KEYS") + "\n")
    return folder


def _start(installation: Installation, name: str, through: tuple[str, ...] = ()) -> Service:
    log = installation.folder / f"{name}.log"
    service = Service(name, tuple(command(name)), installation.environment, log, through)
    installation.services.append(service)
    service.start()
    return service


async def _deliver_one(
    installation: Installation, credentials: Path, receiver: Receiver, through: tuple[str, ...] = ()
) -> None:
    migrate, gateway, dispatcher = NAMES
    installation.environment |= {"RELAY_BIND": "127.0.0.1:0", "RELAY_METRICS_BIND": "127.0.0.1:0"}
    for name in NAMES:
        installation.environment |= environment(name, credentials)
    done = installation.run(*command(migrate))
    assert done.returncode == 0, done.stderr
    running = _start(installation, gateway, through)
    assert _start(installation, dispatcher, through).started
    add_endpoint(running, receiver.url().replace("127.0.0.1", "localhost"))  # a name is looked up
    assert post(running, b'{"type": "order.paid"}').status_code == 202
    await installation.all_closed(1, CLOSED_SECONDS)


async def test_the_units_commands_run_by_their_credentials(
    installation: Installation, credentials: Path, receiver: Receiver
) -> None:
    await _deliver_one(installation, credentials, receiver)


async def test_nothing_wants_memory_that_it_writes_and_executes(
    installation: Installation, credentials: Path, receiver: Receiver
) -> None:
    assert {tuple(unit(name)["MemoryDenyWriteExecute"]) for name in NAMES} == {("yes",)}
    if ctypes.CDLL(None).prctl(PR_GET_MDWE, 0, 0, 0, 0) < 0:
        pytest.skip("this kernel cannot refuse executable memory to a process")
    await _deliver_one(installation, credentials, receiver, (sys.executable, "-c", SHIM))
