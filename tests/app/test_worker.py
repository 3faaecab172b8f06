"""Claims about the frame of a worker process."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from relay.app import worker
from relay.app.tether import Ready, Refused, WorkerEnd, decode


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """Whatever is frozen inside the test is an object like any other after it."""
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("unfrozen")
def test_what_a_worker_starts_with_is_walked_by_no_later_collection() -> None:
    ours, its = socket.socketpair()
    started_with = [[] for _ in range(1000)]  # type: ignore[var-annotated]  # what is in them does not matter
    with ours:
        tether = WorkerEnd(its.detach())
        worker.ready(tether)
        walked = gc.get_objects()
        assert gc.get_freeze_count() > len(walked)
        assert not {id(each) for each in started_with} & {id(each) for each in walked}
        assert decode(ours.recv(1024)) == Ready()
        tether.close()


def test_a_worker_that_lacks_a_library_is_refused_in_words_and_does_not_crash() -> None:
    """The broker's client is imported late, in the body."""
    program = """
import sys
from relay.app.roles import Role
from relay.app.worker import main
async def body(work):
    import missing_part
sys.exit(main(Role.DISPATCHER, body, sys.argv[1:]))
"""
    ours, its = socket.socketpair()
    with ours, its, socket.create_server(("127.0.0.1", 0)) as listener:
        numbers = (listener.fileno(), its.fileno())
        words = ["--slot=0", f"--listen={numbers[0]}", f"--tether={numbers[1]}"]
        done = subprocess.run(
            [sys.executable, "-c", program, *words], pass_fds=numbers, env={}, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (1, b"")
        refused = decode(ours.recv(4096))
    assert isinstance(refused, Refused)
    assert "No module named 'missing_part'" in refused.reason
