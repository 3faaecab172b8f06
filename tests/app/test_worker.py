"""Claims about the frame of a worker process."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator

import pytest

from relay.app import worker
from relay.app.tether import Ready, WorkerEnd, decode


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
